// Split-KV decode attention over rows of flashloop (storage_streams.wgsl), the exact ones included: over all tokens, or
// over those that each query head has chosen (choose_keys.wgsl). Tokens go by their position. Read attend_rows.wgsl
// first.
// Bindings: those of attend.wgsl, but 5 spans [sequence] (packed tokens, position of the first exact one, exact ones,
// 0) and 7 lists of chosen tokens [query head]; 8 and 9 exact keys and values of the loop. Run: lla-sim bench --kernel
// attend_streams
enable subgroups;
#include "storage_streams.wgsl"
#include "attend_state.wgsl"

override CHOSEN: u32;   // 1: a query head reads the tokens of its list

fn list_word(head: u32, i: u32) -> u32 {
  let at = (params.keys.first_list + head) * params.keys.list_words + i;
  return branch[at / 4u][at % 4u];
}

fn place_of(id: vec3u, groups: vec3u) -> Place {
  let span = spans[id.z];
  packed_tokens = span.x;
  let head = id.y / params.lane_groups;
  let head0 = (id.y % params.lane_groups) * LANES;
  let kv_row = id.z * (groups.y / params.lane_groups) + head;
  let first_head = kv_row * params.group + head0;
  var tokens = span.x + span.z;
  if (CHOSEN == 1u) { tokens = list_word(first_head, 0u) & 0x7fffffffu; }
  let begin = min(id.x * params.split_tokens, tokens);
  return Place(id.z, kv_row, kv_row / params.keys.sharing, first_head, min(LANES, params.group - head0),
      params.first_split + id.x, false, begin, min(begin + params.split_tokens, tokens), 0u, 0u);
}

fn unit_of(shape: CachedRow, unit: u32) -> u32 { return select(unit, min(unit, shape.units - 1u), EDGES == 1u); }

fn tiles_of_row() -> u32 { return 0u; }

fn slot_of(place: Place, i: u32) -> u32 {
  if (CHOSEN == 1u) { return list_word(place.first_head, 1u + i); }
  return i;
}

#include "attend_fold.wgsl"
#include "attend_stored.wgsl"
