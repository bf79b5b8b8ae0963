// The tokens that loops after the dense ones read of flashloop's cache: of each query head those of the largest scores,
// the current one among them, the earlier of equals first. A list has how many of them are cached, the highest bit set
// where the current token is chosen, too; then their positions, ascending. A workgroup a query head.
// Bindings: 0 params, 1 scores as choose_order.wgsl leaves them, 2 spans [sequence] (packed tokens, position of the
// first exact one, exact ones, tokens to choose), 3 lists [query head]. Run: lla-sim bench --kernel choose_keys
#include "evict_threshold.wgsl"

struct Params {
  heads: u32,        // query heads of a sequence
  capacity: u32,     // slots of a row of scores
  list_words: u32,
  first_list: u32,   // lists before that of the call's first query head
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> spans: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> chosen: array<u32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let span = spans[id.x / params.heads];
  let base = id.x * params.capacity;
  let list = (params.first_list + id.x) * params.list_words;
  let current = span.x + span.z;
  let least = threshold(l, base, current + 1u, span.w);
  let own = tokens_of(l, current + 1u);
  var earlier = count_before(l, base, own, least.x);
  for (var t = own.x; t < own.y; t++) {
    let bits = run[base + t];
    let stay = stays(bits, earlier, least);
    if (t == current) {
      chosen[list] = select(span.w, (span.w - 1u) | 0x80000000u, stay);
    } else if (stay) {
      chosen[list + 1u + staying_of(earlier, least)] = t;
    }
    earlier += compare(bits, least.x);
  }
}
