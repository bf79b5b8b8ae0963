// H2O, after a chunk of a prompt that follows cached tokens: which of both stay. Tokens of the run are those that the
// cache holds, the pinned ones in order of their slots, then the ring's in order of position, then the chunk's. The
// last ones lie in the ring, in the slot of their position; of those before them the `heavy` heaviest are pinned, the
// earlier of equals first: in their slot where they were pinned before, the others in the slots that are free, in
// order. Masses and positions are written, and for each slot the token whose rows it gets, which evict_gather.wgsl
// copies. One workgroup a row that evicts on its own. Bindings: 0 params, 1 run [row][token] masses, 2 mass
// [row][slot], 3 positions [row][slot], 4 sources [row][slot] (NONE where the rows stay). Run: lla-sim bench --kernel
// evict_chunk
#include "evict_threshold.wgsl"

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
// bits, as the run's; for a while the tokens that are newly pinned
@group(0) @binding(2) var<storage, read_write> mass: array<u32>;
@group(0) @binding(3) var<storage, read_write> positions: array<u32>;
// for a while the rank of a free slot among these
@group(0) @binding(4) var<storage, read_write> sources: array<u32>;

var<workgroup> staying: atomic<u32>;       // tokens that were pinned and stay so

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = id.x * params.room;
  let slots = (params.first_row + id.x) * params.capacity;
  let older = params.tokens - min(params.ring, params.tokens);
  let filled = min(params.heavy, older);
  let least = threshold(l, base, older, filled);
  if (l == 0u) { atomicStore(&staying, 0u); }
  let own = tokens_of(l, older);
  let first = count_before(l, base, own, least.x);
  var earlier = first;
  for (var t = own.x; t < min(own.y, params.pinned_held); t++) {
    let bits = run[base + t];
    if (stays(bits, earlier, least)) { atomicAdd(&staying, 1u); }
    earlier += compare(bits, least.x);
  }
  workgroupBarrier();
  let stayed = atomicLoad(&staying);
  earlier = first;
  for (var t = own.x; t < own.y; t++) {
    let bits = run[base + t];
    let chosen = staying_of(earlier, least);
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
