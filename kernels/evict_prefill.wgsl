// H2O, after a run of prompt tokens that began an empty cache: which of them stay. The last ones lie in the ring, in the slot of their
// position; of those before them the `heavy` heaviest are pinned in order of position, the earlier of equals first. Their masses and
// positions are written, and evict_gather.wgsl copies their rows. One workgroup a row that evicts on its own.
//
// The mass that the lightest pinned token has is found digit by digit: masses are not negative, so that their bits order as they do.
// Bindings: 0 params, 1 run [row][token] masses, 2 mass [row][slot], 3 positions [row][slot]. Run: lla-sim bench --kernel evict_prefill
override WG: u32;

const DIGITS = 256u;   // values of a digit

struct Params {
  tokens: u32,      // of the run
  room: u32,        // floats of a row of the run's masses
  capacity: u32,    // slots of a row
  pinned: u32,      // slots before the ring
  ring: u32,        // slots of the ring
  heavy: u32,       // pinned slots that are filled at most
  first_row: u32,   // rows before the first in mass and positions
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> run: array<f32>;
@group(0) @binding(2) var<storage, read_write> mass: array<f32>;
@group(0) @binding(3) var<storage, read_write> positions: array<u32>;

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
      let bits = bitcast<u32>(run[base + t]);
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

fn keep(row: u32, slot: u32, token: u32, base: u32) {
  let at = (params.first_row + row) * params.capacity + slot;
  mass[at] = run[base + token];
  positions[at] = token;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = id.x * params.room;
  let older = params.tokens - min(params.ring, params.tokens);
  let least = threshold(l, base, older, min(params.heavy, older));
  // Each thread takes neighbouring tokens, so that slots are in order of position.
  let each = (older + WG - 1u) / WG;
  let begin = min(l * each, older);
  let end = min(begin + each, older);
  var own = vec2u(0u);
  for (var t = begin; t < end; t++) {
    let bits = bitcast<u32>(run[base + t]);
    own += vec2u(u32(bits > least.x), u32(bits == least.x));
  }
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
  var chosen = before[l];
  for (var t = begin; t < end; t++) {
    let bits = bitcast<u32>(run[base + t]);
    let slot = chosen.x + min(chosen.y, least.y);
    if (bits > least.x || (bits == least.x && chosen.y < least.y)) { keep(id.x, slot, t, base); }
    chosen += vec2u(u32(bits > least.x), u32(bits == least.x));
  }
  for (var t = older + l; t < params.tokens; t += WG) { keep(id.x, params.pinned + t % params.ring, t, base); }
}
