// The online softmax over the tokens of a split, and its partials: attend_rows.wgsl.
// The tokens of this thread's stream, in whole steps of `unit` tokens: [x, y) of the run. Streams share out the split.
fn stream_tokens(l: u32, place: Place, unit: u32) -> vec2u {
  let streams = WG / STREAM;
  let each = (place.end - place.begin + streams * unit - 1u) / (streams * unit) * unit;
  let start = min(place.begin + (l / STREAM) * each, place.end);
  return vec2u(start, min(start + each, place.end));
}

fn start_rows() {
  top = vec4f(LOWEST);
  mass = vec4f(0.0);
  for (var k = 0u; k < LANES * VALUE_EACH * UNIT_VECS; k++) { sums[k] = vec4f(0.0); }
}

// Folds token i of the run, of scores `s` (scaled, base-2 logarithm), the same in all threads of a row group. A token
// past the end has the score LOWEST and any i within the run; it adds nothing.
fn fold_row(l: u32, place: Place, i: u32, s: vec4f) {
  let peak = max(top, s);
  let fade = exp2(max(top - peak, vec4f(-200.0)));
  // No bound on s - peak: it would turn a NaN into a weight of 0.
  let p = select(exp2(s - peak), vec4f(0.0), s <= vec4f(LOWEST));
  top = peak;
  mass = fma(mass, fade, p);
  let c = l % WIDE;
  let slot = slot_of(place, i);
  let token = token_at(params.values, place.row, tiles_of_row(), slot);
  for (var k = 0u; k < VALUE_EACH; k++) {
    let v = load_unit(&values, params.values, token, unit_of(params.values, c + WIDE * k));
    for (var lane = 0u; lane < LANES; lane++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let at = (lane * VALUE_EACH + k) * UNIT_VECS + e;
        sums[at] = fma(vec4f(p[lane]), v[e], sums[at] * fade[lane]);
      }
    }
  }
  if (SCORES == 1u && c == 0u) {
    for (var lane = 0u; lane < place.lanes; lane++) {
      if (s[lane] > LOWEST) { scores[(place.first_head + lane) * (params.pinned + params.ring) + slot] = s[lane]; }
    }
  }
}

// Merges the row groups and writes the partials.
fn finish_rows(l: u32, place: Place) {
  let stride = params.value_width + 2u;
  for (var lane = 0u; lane < LANES; lane++) {
    let out = ((place.first_head + lane) * params.splits + place.split) * stride;
    masses[l] = vec2f(top[lane], mass[lane]);
    workgroupBarrier();
    var peak = LOWEST;
    for (var r = 0u; r < WG * params.once; r += WIDE) { peak = max(peak, masses[r].x); }
    let fade = exp2(max(top[lane] - peak, -200.0));
    if (l == 0u && lane < place.lanes) {
      var sum = 0.0;
      for (var r = 0u; r < WG * params.once; r += WIDE) { sum += masses[r].y * exp2(max(masses[r].x - peak, -200.0)); }
      partials[out + params.value_width] = peak;
      partials[out + params.value_width + 1u] = sum;
    }
    for (var k = 0u; k < VALUE_EACH; k++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let sum = sums[(lane * VALUE_EACH + k) * UNIT_VECS + e] * fade;
        for (var x = 0u; x < 4u; x++) { scratch[(4u * e + x) * WG + l] = sum[x]; }
      }
      workgroupBarrier();
      // Components of the units c + WIDE k of all c.
      for (var i = l; i < WIDE * UNIT * params.once; i += WG) {
        let component = ((i / UNIT) + WIDE * k) * UNIT + i % UNIT;
        if (lane < place.lanes && component < params.value_width) {
          var sum = 0.0;
          for (var r = 0u; r < WG * params.once; r += WIDE) { sum += scratch[(i % UNIT) * WG + i / UNIT + r]; }
          partials[out + component] = sum;
        }
      }
      workgroupBarrier();
    }
  }
}
