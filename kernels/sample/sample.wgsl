// Greedy choice: the token with the largest logit, the lowest of equals. A row with a NaN among its logits gives NONE,
// so that a broken model does not go on unseen. One workgroup a row.
// Bindings: 0 params, 1 logits [row][vocab] f32 as bits, 2 tokens [row] u32. Run: lla-sim bench --kernel sample
#include "sample_common.wgsl"

struct Params { vocab: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;

const REDUCERS = 16u;
var<workgroup> best_logit: array<f32, WG>;
var<workgroup> best_token: array<u32, WG>;
var<workgroup> broken: atomic<u32>;

// NONE stands for no token yet: everything is better.
fn better(a: f32, i: u32, b: f32, j: u32) -> bool { return j == NONE || (i != NONE && (a > b || (a == b && i < j))); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = group_id.x * params.vocab;
  var logit = 0.0;
  var token = NONE;
  var nan = false;
  for (var i = l; i < params.vocab; i += WG) {
    let bits = logits[base + i];
    nan = nan || is_nan(bits);
    if (better(bitcast<f32>(bits), i, logit, token)) {
      logit = bitcast<f32>(bits);
      token = i;
    }
  }
  if (nan) { atomicStore(&broken, 1u); }
  best_logit[l] = logit;
  best_token[l] = token;
  workgroupBarrier();
  if (l < REDUCERS) {
    for (var i = l + REDUCERS; i < WG; i += REDUCERS) {
      if (better(best_logit[i], best_token[i], logit, token)) {
        logit = best_logit[i];
        token = best_token[i];
      }
    }
    best_logit[l] = logit;
    best_token[l] = token;
  }
  workgroupBarrier();
  if (l == 0u) {
    for (var i = 1u; i < REDUCERS; i++) {
      if (better(best_logit[i], best_token[i], logit, token)) {
        logit = best_logit[i];
        token = best_token[i];
      }
    }
    tokens[group_id.x] = select(token, NONE, atomicLoad(&broken) != 0u);
  }
}
