// Which tokens a split of a plain cache or of segments has, and where they lie: attend_rows.wgsl.
fn place_of(id: vec3u, groups: vec3u) -> Place {
  let span = spans[id.z];
  let head = id.y / params.lane_groups;
  let head0 = (id.y % params.lane_groups) * LANES;
  let kv_row = id.z * (groups.y / params.lane_groups) + head;
  let pinned = id.x < params.pinned_splits;
  let part = select(id.x - params.pinned_splits, id.x, pinned);
  let tokens = select(span.z, span.x, pinned);
  let begin = min(part * params.split_tokens, tokens);
  return Place(id.z, kv_row, select(kv_row, id.z, params.row_shared == 1u), kv_row * params.group + head0,
      min(LANES, params.group - head0),
    params.first_split + id.x, pinned, begin, min(begin + params.split_tokens, tokens), span.y % max(params.ring, 1u),
        span.y);
}

// Threads without a unit of their own repeat the last one; their results are not used.
fn unit_of(shape: CachedRow, unit: u32) -> u32 { return select(unit, min(unit, shape.units - 1u), EDGES == 1u); }

fn tiles_of_row() -> u32 { return (params.pinned + params.ring) / TILE_TOKENS; }

// Slot of token i of the run.
fn slot_of(place: Place, i: u32) -> u32 {
  let turned = place.phase + i;
  return select(params.pinned + turned - select(0u, params.ring, turned >= params.ring), i, place.pinned);
}
