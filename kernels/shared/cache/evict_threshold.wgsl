// Shared by H2O's choices of pinned tokens (evict_prefill, evict_chunk): of the `older` first tokens of a run the
// `heavy` heaviest stay, the earlier of equals first. The mass that the lightest of them has is found digit by digit:
// masses are not negative, so that their bits order as they do. One workgroup a row of the run.
override WG: u32;

const DIGITS = 256u;   // values of a digit

@group(0) @binding(1) var<storage, read> run: array<u32>;   // bits of masses

var<workgroup> counts: array<atomic<u32>, DIGITS>;
var<workgroup> found: vec2u;
var<workgroup> before: array<vec2u, WG>;   // tokens above the threshold, and at it, before those of a thread

// The bits of the lightest mass that stays, of `older` tokens, and how many of those that have just it.
fn threshold(l: u32, base: u32, older: u32, heavy: u32) -> vec2u {
  var at = vec2u(0u, heavy);
  for (var round = 0u; round < 4u; round++) {
    let shift = 24u - 8u * round;
    for (var d = l; d < DIGITS; d += WG) { atomicStore(&counts[d], 0u); }
    workgroupBarrier();
    for (var t = l; t < older; t += WG) {
      let bits = run[base + t];
      if (round == 0u || bits >> (shift + 8u) == at.x) { atomicAdd(&counts[(bits >> shift) % DIGITS], 1u); }
    }
    workgroupBarrier();
    if (l == 0u) {
      var d = DIGITS - 1u;
      var rest = at.y;
      for (; d > 0u; d--) {
        let count = atomicLoad(&counts[d]);
        if (count >= rest) { break; }
        rest -= count;
      }
      found = vec2u(at.x * DIGITS + d, rest);
    }
    at = workgroupUniformLoad(&found);
  }
  return at;
}

fn compare(bits: u32, least: u32) -> vec2u { return vec2u(u32(bits > least), u32(bits == least)); }
// `earlier`: tokens above the threshold, and at it, before this one.
fn stays(bits: u32, earlier: vec2u, least: vec2u) -> bool {
  return bits > least.x || (bits == least.x && earlier.y < least.y);
}
// How many of those tokens stay.
fn staying_of(earlier: vec2u, least: vec2u) -> u32 { return earlier.x + min(earlier.y, least.y); }

// Each thread takes neighbouring tokens, [x, y) of the run, so that what is counted before them is known.
fn tokens_of(l: u32, older: u32) -> vec2u {
  let each = (older + WG - 1u) / WG;
  let begin = min(l * each, older);
  return vec2u(begin, min(begin + each, older));
}

// Tokens above the threshold, and at it, before this thread's. Afterwards all threads see what the others wrote to
// workgroup memory.
fn count_before(l: u32, base: u32, tokens: vec2u, least: u32) -> vec2u {
  var own = vec2u(0u);
  for (var t = tokens.x; t < tokens.y; t++) { own += compare(run[base + t], least); }
  before[l] = own;
  workgroupBarrier();
  if (l == 0u) {
    var sum = vec2u(0u);
    for (var i = 0u; i < WG; i++) {
      let count = before[i];
      before[i] = sum;
      sum += count;
    }
  }
  workgroupBarrier();
  return before[l];
}
