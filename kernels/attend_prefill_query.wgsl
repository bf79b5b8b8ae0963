var<private> query: array<vec4f, MOST_VECS>;      // [lane][unit][vec]
var<private> sums: array<vec4f, MOST_VECS>;       // [lane][unit][vec]
var<private> branch: array<vec4f, MOST_BRANCH>;   // [component], a lane each

// Threads without a unit of their own repeat the last one; what they make of it is not used.
fn unit_of(shape: CachedRow, unit: u32) -> u32 { return min(unit, shape.units - 1u); }

fn load_query(lane: u32, token: u32, head: u32, c: u32) {
  let at = params.query_offset + token * params.query_row + head * params.key_width;
  for (var k = 0u; k < KEY_EACH; k++) {
    for (var e = 0u; e < UNIT_VECS; e++) {
      let first = (c + WIDE * k) * UNIT + 4u * e;
      var q = vec4f(0.0);
      for (var x = 0u; x < 4u * params.once; x++) {
        if (first + x < params.key_width) { q[x] = queries[at + first + x]; }
      }
      query[(lane * KEY_EACH + k) * UNIT_VECS + e] = q;
    }
  }
  let branch_at = params.branch_offset + token * params.branch_row + head * params.branch_head;
  for (var k = 0u; k < BRANCH_EACH; k++) {
    let component = c + WIDE * k;
    branch[k][lane] = 0.0;
    if (component < params.branch_width) { branch[k][lane] = branch_queries[branch_at + component]; }
  }
}
