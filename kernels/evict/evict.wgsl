// H2O, before the current token of a sequence is appended: where the ring is full, its oldest token leaves. It goes to
// the next pinned slot while fewer than `heavy` are filled, else in the place of the lightest pinned token if it is
// heavier; of equals the lowest slot goes, and a leaving token that is no heavier is dropped. Its mass and position go
// with it; evict_copy.wgsl copies its rows. The slot of the current token starts without mass. One workgroup a row that
// evicts on its own.
// Bindings: 0 params, 1 spans [sequence] (pinned tokens, position of the first ring token, ring tokens, 0), 2 mass
// [row][slot], 3 positions [row][slot], 4 moves [row] (from slot, to slot; NONE without). Run: lla-sim bench --kernel
// evict
override WG: u32;

const NONE = 0xffffffffu;

struct Params {
  heads: u32,      // rows of a sequence
  capacity: u32,   // slots of a row
  pinned: u32,     // slots before the ring
  ring: u32,       // slots of the ring
  heavy: u32,      // pinned slots that are filled at most
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> spans: array<vec4u>;
@group(0) @binding(2) var<storage, read_write> mass: array<f32>;
@group(0) @binding(3) var<storage, read_write> positions: array<u32>;
@group(0) @binding(4) var<storage, read_write> moves: array<vec2u>;

var<workgroup> lightest: array<f32, WG>;
var<workgroup> slots: array<u32, WG>;

fn lighter(a: f32, i: u32, b: f32, j: u32) -> bool { return a < b || (a == b && i < j); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let row = group_id.x;
  let base = row * params.capacity;
  let span = spans[row / params.heads];
  let filled = span.z >= params.ring;
  var best = 3.4e38;
  var slot = NONE;
  if (filled && span.x >= params.heavy) {
    for (var i = l; i < params.heavy; i += WG) {
      if (lighter(mass[base + i], i, best, slot)) {
        best = mass[base + i];
        slot = i;
      }
    }
  }
  lightest[l] = best;
  slots[l] = slot;
  workgroupBarrier();
  if (l != 0u) { return; }
  for (var i = 1u; i < WG; i++) {
    if (lighter(lightest[i], slots[i], best, slot)) {
      best = lightest[i];
      slot = slots[i];
    }
  }
  let place = params.pinned + (span.y + span.z) % params.ring;   // of the current token
  var chosen = vec2u(NONE, NONE);
  if (filled) {
    let leaving = params.pinned + span.y % params.ring;
    if (span.x < params.heavy) {
      chosen = vec2u(leaving, span.x);
    } else if (slot != NONE && mass[base + leaving] > best) {
      chosen = vec2u(leaving, slot);
    }
    if (chosen.x != NONE) {
      mass[base + chosen.y] = mass[base + chosen.x];
      positions[base + chosen.y] = positions[base + chosen.x];
    }
  }
  moves[row] = chosen;
  mass[base + place] = 0.0;
  positions[base + place] = span.y + span.z;
}
