// H2O, after a run of prompt tokens that began an empty cache: which of them stay. The last ones lie in the ring, in
// the slot of their position; of those before them the `heavy` heaviest are pinned in order of position, the earlier of
// equals first. Their masses and positions are written, and evict_gather.wgsl copies their rows. One workgroup a row
// that evicts on its own.
// Bindings: 0 params, 1 run [row][token] masses, 2 mass [row][slot], 3 positions [row][slot]. Run: lla-sim bench
// --kernel evict_prefill
#include "evict_threshold.wgsl"

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
@group(0) @binding(2) var<storage, read_write> mass: array<u32>;   // bits, as the run's
@group(0) @binding(3) var<storage, read_write> positions: array<u32>;

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
  let own = tokens_of(l, older);
  var earlier = count_before(l, base, own, least.x);
  for (var t = own.x; t < own.y; t++) {
    let bits = run[base + t];
    if (stays(bits, earlier, least)) { keep(id.x, staying_of(earlier, least), t, base); }
    earlier += compare(bits, least.x);
  }
  for (var t = older + l; t < params.tokens; t += WG) { keep(id.x, params.pinned + t % params.ring, t, base); }
}
