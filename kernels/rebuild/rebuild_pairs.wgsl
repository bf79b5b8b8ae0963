// Rows of the up-projection W that rebuild PAIR_STEP rotary pairs, x = W c + mu, staged in workgroup memory as f32 for
// a part of the rank, so that a staged weight serves all tokens of every thread. The including file has WG and the
// bindings `weights` [KV head][head width][rank, padded to even] f16 pairs and `means` [KV head][head width].
override PAIR_STEP: u32;    // rotary pairs staged at a time
override STEP_VECS: u32;    // vec4 of a row staged at a time
override STAGED: u32;       // 2 * PAIR_STEP * STEP_VECS

// How the rows of a head lie.
struct HeadRows {
  first: u32,      // row of the KV head's component 0
  pairs: u32,      // half the head width
  rank: u32,
  adjacent: u32,   // 1: pairs are neighbouring components, 0: (m, m + pairs)
}

var<workgroup> staged: array<vec4f, STAGED>;        // [pair][row of the pair][vec]
var<workgroup> mean_of: array<vec2f, PAIR_STEP>;

// Stages components [first, first + 4 STEP_VECS) of the rows of pairs m0 on. What lies past the rank or the head is
// zero.
fn stage_pairs(l: u32, head: HeadRows, m0: u32, first: u32) {
  for (var i = l; i < STAGED; i += WG) {
    let row = i / STEP_VECS;
    let component = first + 4u * (i % STEP_VECS);
    let m = m0 + row / 2u;
    var w = vec4f(0.0);
    if (m < head.pairs && component < head.rank) {
      let words = (head.rank + 1u) / 2u;
      let at = (head.first + pair_rows(m, head.pairs, head.adjacent)[row % 2u]) * words + component / 2u;
      w = vec4f(unpack2x16float(weights[at]), unpack2x16float(weights[min(at + 1u, arrayLength(&weights) - 1u)]));
      w = select(vec4f(0.0), w, vec4u(component) + vec4u(0u, 1u, 2u, 3u) < vec4u(head.rank));
    }
    staged[i] = w;
  }
  for (var i = l; i < PAIR_STEP; i += WG) {
    let rows = head.first + pair_rows(min(m0 + i, head.pairs - 1u), head.pairs, head.adjacent);
    mean_of[i] = select(vec2f(0.0), vec2f(means[rows.x], means[rows.y]), m0 + i < head.pairs);
  }
}
