// Set-up of block-absorbed attention: for every query head, rotary pair m of components (i, k) and latent component x
//   a_m[x] = q_i w_i[x] + q_k w_k[x]      b_m[x] = q_k w_i[x] - q_i w_k[x]
// so that the score of a token at position n is sum_m (cos(theta_m n) a_m + sin(theta_m n) b_m) . c. q comes rotated.
// The mean of the keys is component `rank`, whose latent is 1; one more pads to an even count.
// Bindings: 0 params, 1 queries [query head][2 HEAD_PAIRS], 2 weights [KV head][2 HEAD_PAIRS][ceil(rank / 2)] f16
// pairs, 3 means [KV head][2 HEAD_PAIRS] f32, 4 vectors [query head][m][component] (a, b). Workgroups: m, query head.
// Run: lla-sim bench --kernel block_vectors
override HEAD_PAIRS: u32;
override WG: u32;

struct Params {
  rank: u32,
  group: u32,
  kv_heads: u32,
  pair_step: u32,   // between pairs: 1, or 2 where the components of a pair are neighbours
  pair_width: u32,  // between the components of a pair: HEAD_PAIRS, or 1
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> means: array<f32>;
@group(0) @binding(4) var<storage, read_write> vectors: array<vec4f>;

// Components 2 i and 2 i + 1 of a row of the up-projection, the mean and padding after them.
fn row_pair(row: u32, i: u32) -> vec2f {
  let words = (params.rank + 1u) / 2u;
  let w = unpack2x16float(weights[row * words + min(i, words - 1u)]);
  let mean = means[row];
  return vec2f(select(select(0.0, mean, 2u * i == params.rank), w.x, 2u * i < params.rank),
      select(select(0.0, mean, 2u * i + 1u == params.rank), w.y, 2u * i + 1u < params.rank));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let m = group_id.x;
  let head = group_id.y;
  let first = m * params.pair_step;
  let row = ((head / params.group) % params.kv_heads) * 2u * HEAD_PAIRS + first;
  let q0 = queries[head * 2u * HEAD_PAIRS + first];
  let q1 = queries[head * 2u * HEAD_PAIRS + first + params.pair_width];
  let pairs = params.rank / 2u + 1u;
  for (var i = l; i < pairs; i += WG) {
    let w0 = row_pair(row, i);
    let w1 = row_pair(row + params.pair_width, i);
    let a = q0 * w0 + q1 * w1;
    let b = q1 * w0 - q0 * w1;
    vectors[(head * HEAD_PAIRS + m) * pairs + i] = vec4f(a.x, b.x, a.y, b.y);
  }
}
