var<private> query: array<vec4f, MOST_VECS>;      // [lane][unit][vec]
var<private> sums: array<vec4f, MOST_VECS>;       // [lane][unit][vec]
var<private> branch: array<vec4f, MOST_BRANCH>;   // [component], a lane each

// Threads without a unit of their own repeat the last one; their results are not used.
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

var<private> top: vec4f;    // running maximum of each lane
var<private> mass: vec4f;   // running sum of each lane

// Folds a token into the lanes that see it.
fn fold_token(c: u32, key_token: Token, value_token: Token, branch_at: u32, seen: vec4<bool>) {
  var dots: array<vec4f, LANES>;
  for (var lane = 0u; lane < LANES; lane++) { dots[lane] = vec4f(0.0); }
  for (var k = 0u; k < KEY_EACH; k++) {
    let x = load_unit(&keys, params.keys, key_token, unit_of(params.keys, c + WIDE * k));
    for (var lane = 0u; lane < LANES; lane++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        dots[lane] = fma(query[(lane * KEY_EACH + k) * UNIT_VECS + e], x[e], dots[lane]);
      }
    }
  }
  var s: vec4f;
  for (var lane = 0u; lane < LANES; lane++) { s[lane] = dot(dots[lane], vec4f(1.0)); }
  for (var k = 0u; k < BRANCH_EACH; k++) {
    let component = min(c + WIDE * k, params.branch_width - 1u);
    s = fma(branch[k], vec4f(branch_keys[branch_at + component]), s);
  }
  for (var step = 1u; step < WIDE; step *= 2u) { s += subgroupShuffleXor(s, step); }
  s *= params.scale;
  let peak = select(top, max(top, s), seen);
  let fade = exp2(max(top - peak, vec4f(-200.0)));
  // No bound on s - peak: it would turn a NaN into a weight of 0.
  let p = select(vec4f(0.0), exp2(s - peak), seen);
  top = peak;
  mass = fma(mass, fade, p);
  for (var k = 0u; k < VALUE_EACH; k++) {
    let v = load_unit(&values, params.values, value_token, unit_of(params.values, c + WIDE * k));
    for (var lane = 0u; lane < LANES; lane++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let at = (lane * VALUE_EACH + k) * UNIT_VECS + e;
        sums[at] = fma(vec4f(p[lane]), v[e], sums[at] * fade[lane]);
      }
    }
  }
}
