// Greedy choice: the token with the largest logit, the lowest of equals. One workgroup a row.
// Bindings: 0 params, 1 logits [row][VOCAB] f32, 2 tokens [row] u32. Run: lla-sim bench --kernel sample
override WG: u32;

struct Params { vocab: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;

const REDUCERS = 16u;
var<workgroup> best_logit: array<f32, WG>;
var<workgroup> best_token: array<u32, WG>;

fn better(a: f32, i: u32, b: f32, j: u32) -> bool { return a > b || (a == b && i < j); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(local_invocation_index) l: u32) {
  let base = group_id.x * params.vocab;
  var logit = -3.4e38;
  var token = params.vocab - 1u;
  for (var i = l; i < params.vocab; i += WG) {
    if (better(logits[base + i], i, logit, token)) {
      logit = logits[base + i];
      token = i;
    }
  }
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
    tokens[group_id.x] = token;
  }
}
