// Scores as words that order as they do, those of the current token behind those of the cached ones: what
// choose_keys.wgsl chooses from. A workgroup a query head.
// Bindings: 0 params, 1 scores [query head][slot] by position, f32 in and words out, 2 queries [query head][width], 3
// new_keys, 4 spans [sequence] (packed tokens, position of the first exact one, exact ones, tokens to choose). Run:
// lla-sim bench --kernel choose_keys
override WG: u32;

struct Params {
  heads: u32,        // query heads of a sequence
  group: u32,        // that share a KV head
  width: u32,
  capacity: u32,     // slots of a row of scores
  key_offset: u32,   // float of sequence 0, head 0
  key_stride: u32,   // floats from a sequence to the next
  scale: f32,        // of a score, times log2(e)
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> scores: array<u32>;
@group(0) @binding(2) var<storage, read> queries: array<f32>;
@group(0) @binding(3) var<storage, read> new_keys: array<f32>;
@group(0) @binding(4) var<storage, read> spans: array<vec4u>;

var<workgroup> parts: array<f32, WG>;

fn ordered(bits: u32) -> u32 { return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) id: vec3u, @builtin(local_invocation_index) l: u32) {
  let row = id.x;
  let sequence = row / params.heads;
  let key = params.key_offset + sequence * params.key_stride + (row % params.heads) / params.group * params.width;
  var dot = 0.0;
  for (var i = l; i < params.width; i += WG) { dot += queries[row * params.width + i] * new_keys[key + i]; }
  parts[l] = dot;
  workgroupBarrier();
  let base = row * params.capacity;
  let tokens = spans[sequence].x + spans[sequence].z;
  for (var t = l; t < tokens; t += WG) { scores[base + t] = ordered(scores[base + t]); }
  if (l == 0u) {
    var score = 0.0;
    for (var i = 0u; i < min(WG, params.width); i++) { score += parts[i]; }
    scores[base + tokens] = ordered(bitcast<u32>(score * params.scale));
  }
}
