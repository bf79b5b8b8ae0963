// Set-up of block-absorbed attention: for every query head, rotary pair m and latent component x
//   a_m[x] = q_m w_m[x] + q_(m + half) w_(m + half)[x]      b_m[x] = q_(m + half) w_m[x] - q_m w_(m + half)[x]
// so that the score of a token at position n is sum_m (cos(theta_m n) a_m + sin(theta_m n) b_m) . c. q comes rotated. The mean of
// the keys is component `rank`, whose latent is 1; one more pads to an even count.
// Bindings: 0 params, 1 queries [query head][2 HEAD_PAIRS], 2 weights [KV head][2 HEAD_PAIRS][rank / 2] f16 pairs, 3 means
// [KV head][2 HEAD_PAIRS] f32, 4 vectors [query head][m][rank + 2] (a, b). Workgroups: m, query head.
// Run: part of attend_block_absorbed.
override HEAD_PAIRS: u32;
const WG = 64u;

struct Params { rank: u32, group: u32, kv_heads: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> means: array<f32>;
@group(0) @binding(4) var<storage, read_write> vectors: array<vec2f>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let m = group_id.x;
  let head = group_id.y;
  let kv_row = ((head / params.group) % params.kv_heads) * 2u * HEAD_PAIRS + m;
  let q0 = queries[head * 2u * HEAD_PAIRS + m];
  let q1 = queries[head * 2u * HEAD_PAIRS + m + HEAD_PAIRS];
  let base = (head * HEAD_PAIRS + m) * (params.rank + 2u);
  for (var i = l; i <= params.rank / 2u; i += WG) {
    var w0 = vec2f(means[kv_row], 0.0);
    var w1 = vec2f(means[kv_row + HEAD_PAIRS], 0.0);
    if (i < params.rank / 2u) {
      w0 = unpack2x16float(weights[kv_row * (params.rank / 2u) + i]);
      w1 = unpack2x16float(weights[(kv_row + HEAD_PAIRS) * (params.rank / 2u) + i]);
    }
    let a = q0 * w0 + q1 * w1;
    let b = q1 * w0 - q0 * w1;
    vectors[base + 2u * i] = vec2f(a.x, b.x);
    vectors[base + 2u * i + 1u] = vec2f(a.y, b.y);
  }
}
