// Rebuilds PAIR_STEP rotary pairs of K (or rows of V) of two tokens a thread: x = W c + mu, from latents in the key layout. Rows of
// W are staged in workgroup memory, so that a staged weight serves two tokens of every thread. The including file has WG, `params.key_pairs`
// (half the rank) and the bindings `keys` (latents), `weights` [head][2 HEAD_PAIRS][key_pairs] f16 pairs, `means` [head][2 HEAD_PAIRS], `centres`, `offsets`.
override HEAD_PAIRS: u32;
override RANK_STEP: u32;   // latent pairs staged at a time
const PAIR_STEP = 4u;

// [latent pair][pair m of the step]: (w_m[2i], w_m[2i + 1], w_(m + half)[2i], w_(m + half)[2i + 1])
var<workgroup> staged: array<vec4f, RANK_STEP * PAIR_STEP>;

fn stage_weights(l: u32, head_row: u32, m0: u32, r0: u32) {
  for (var i = l; i < min(RANK_STEP, params.key_pairs - r0) * PAIR_STEP; i += WG) {
    let m = m0 + i % PAIR_STEP;
    let r = r0 + i / PAIR_STEP;
    var w = vec4f(0.0);
    if (m < HEAD_PAIRS) {
      w = vec4f(unpack2x16float(weights[(head_row + m) * params.key_pairs + r]), unpack2x16float(weights[(head_row + m + HEAD_PAIRS) * params.key_pairs + r]));
    }
    staged[i] = w;
  }
}

// Pairs m0 … m0 + 3 as (x_m, x_(m + half)) of token a, then of token b. `key_a`, `key_b`: where their latents start.
fn rebuild_pairs(l: u32, head_row: u32, m0: u32, key_a: u32, key_b: u32) -> array<vec4f, PAIR_STEP> {
  var x: array<vec4f, PAIR_STEP>;
  for (var p = 0u; p < PAIR_STEP; p++) {
    let at = head_row + min(m0 + p, HEAD_PAIRS - 1u);
    let mean = vec2f(means[at], means[at + HEAD_PAIRS]);
    x[p] = vec4f(mean, mean);
  }
  for (var r0 = 0u; r0 < params.key_pairs; r0 += RANK_STEP) {
    workgroupBarrier();
    stage_weights(l, head_row, m0, r0);
    workgroupBarrier();
    for (var r = 0u; r < min(RANK_STEP, params.key_pairs - r0); r++) {
      let c = load_pair(keys[key_a + (r0 + r) * TILE_TOKENS]);
      let d = load_pair(keys[key_b + (r0 + r) * TILE_TOKENS]);
      for (var p = 0u; p < PAIR_STEP; p++) {
        let w = staged[r * PAIR_STEP + p];
        x[p] += vec4f(dot(w.xy, c), dot(w.zw, c), dot(w.xy, d), dot(w.zw, d));
      }
    }
  }
  return x;
}

fn turn_at(position: u32, m: u32) -> vec2f {
  return add_angles(centres[(position / ROTARY_BLOCK) * HEAD_PAIRS + m], offsets[m * ROTARY_BLOCK + position % ROTARY_BLOCK]);
}

// Both tokens' pairs, rotated.
fn rotate_pair(x: vec4f, a: vec2f, b: vec2f) -> vec4f {
  return vec4f(x.x * a.x - x.y * a.y, x.x * a.y + x.y * a.x, x.z * b.x - x.w * b.y, x.z * b.y + x.w * b.x);
}
