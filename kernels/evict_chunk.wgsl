// H2O, after a chunk of a prompt that stands behind cached tokens: which of both stay. Tokens of the run are those that the cache holds, the
// pinned ones in order of their slots, then the ring's in order of position, then the chunk's. The last ones lie in the ring, in the slot of
// their position; of those before them the `heavy` heaviest are pinned, the earlier of equals first: in their slot where they were pinned
// before, the others in the slots that are free, in order. Masses and positions are written, and for each slot the token whose rows it gets,
// which evict_gather.wgsl copies. One workgroup a row that evicts on its own. The threshold is found as in evict_prefill.wgsl.
// Bindings: 0 params, 1 run [row][token] masses, 2 mass [row][slot], 3 positions [row][slot], 4 sources [row][slot] (NONE where the rows
// stay). Run: lla-sim bench --kernel evict_chunk
override WG: u32;

const DIGITS = 256u;   // values of a digit
const NONE = 0xffffffffu;

struct Params {
  held: u32,          // tokens of the run that the cache holds
  pinned_held: u32,   // of these, pinned ones
  tokens: u32,        // of the run
  position: u32,      // of the chunk's first token
  room: u32,          // floats of a row of the run's masses
  capacity: u32,      // slots of a row
  pinned: u32,        // slots before the ring
  ring: u32,          // slots of the ring
  heavy: u32,         // pinned slots that are filled at most
  first_row: u32,     // rows before the first in mass, positions and sources
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> run: array<u32>;                // bits of masses
@group(0) @binding(2) var<storage, read_write> mass: array<u32>;         // the same; for a while the tokens that are newly pinned
@group(0) @binding(3) var<storage, read_write> positions: array<u32>;
@group(0) @binding(4) var<storage, read_write> sources: array<u32>;      // for a while the rank of a free slot among these

var<workgroup> counts: array<atomic<u32>, DIGITS>;
var<workgroup> found: vec2u;
var<workgroup> before: array<vec2u, WG>;   // tokens above the threshold, and at it, before those of a thread
var<workgroup> staying: atomic<u32>;       // tokens that were pinned and stay so

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
fn stays(bits: u32, earlier: vec2u, least: vec2u) -> bool { return bits > least.x || (bits == least.x && earlier.y < least.y); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = id.x * params.room;
  let slots = (params.first_row + id.x) * params.capacity;
  let older = params.tokens - min(params.ring, params.tokens);
  let filled = min(params.heavy, older);
  let least = threshold(l, base, older, filled);
  // Each thread takes neighbouring tokens, so that what is counted before them is known.
  let each = (older + WG - 1u) / WG;
  let begin = min(l * each, older);
  let end = min(begin + each, older);
  var own = vec2u(0u);
  for (var t = begin; t < end; t++) { own += compare(run[base + t], least.x); }
  before[l] = own;
  if (l == 0u) { atomicStore(&staying, 0u); }
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
  var earlier = before[l];
  for (var t = begin; t < min(end, params.pinned_held); t++) {
    let bits = run[base + t];
    if (stays(bits, earlier, least)) { atomicAdd(&staying, 1u); }
    earlier += compare(bits, least.x);
  }
  workgroupBarrier();
  let stayed = atomicLoad(&staying);
  earlier = before[l];
  for (var t = begin; t < end; t++) {
    let bits = run[base + t];
    let chosen = earlier.x + min(earlier.y, least.y);   // of the tokens before
    if (t < params.pinned_held) {
      sources[slots + t] = select(t - chosen, NONE, stays(bits, earlier, least));
    } else if (stays(bits, earlier, least)) {
      mass[slots + chosen - stayed] = t;
    }
    earlier += compare(bits, least.x);
  }
  for (var s = params.pinned_held + l; s < filled; s += WG) { sources[slots + s] = s - stayed; }
  storageBarrier();
  for (var s = l; s < filled; s += WG) {
    let rank = sources[slots + s];
    if (rank != NONE) { sources[slots + s] = mass[slots + rank]; }
  }
  storageBarrier();
  for (var s = l; s < filled; s += WG) {
    let token = sources[slots + s];
    mass[slots + s] = run[base + select(token, s, token == NONE)];
    if (token != NONE) { positions[slots + s] = params.position - params.held + token; }
  }
  for (var t = older + l; t < params.tokens; t += WG) {
    let position = params.position - params.held + t;
    let at = slots + params.pinned + position % params.ring;
    mass[at] = run[base + t];
    positions[at] = position;
    sources[at] = select(NONE, t, t >= params.held);
  }
}
