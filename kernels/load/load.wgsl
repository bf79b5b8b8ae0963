// Reads rows of consecutive cached tokens back, stored words -> f32: the inverse of append for a cache whose slots are
// positions. A thread is one unit of a row. Bindings: 0 params, 1 cache, 2 rows f32 (see row_offset). Run: lla-sim
// bench --kernel load
#storage

const WG = 64u;

struct Params {
  shape: CachedRow,
  width: u32,        // components of a row
  tiles: u32,        // of a row
  first_row: u32,    // cached row of the first sequence's first head
  first: u32,        // slot of token 0
  chunk: u32,        // tokens of a sequence
  row_offset: u32,   // float of token 0, head 0; heads follow each other
  row_stride: u32,   // floats from a token to the next, through all sequences
  spare: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> cache: array<vec4u>;
@group(0) @binding(2) var<storage, read_write> rows: array<f32>;

// Workgroups: (WG units of the chunk's tokens, head, sequence).
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  let token = id.x / params.shape.units;
  let unit = id.x % params.shape.units;
  if (token >= params.chunk) { return; }
  let at = token_at(params.shape, params.first_row + id.z * groups.y + id.y, params.tiles, params.first + token);
  let x = load_unit(&cache, params.shape, at, unit);
  let to = params.row_offset + (id.z * params.chunk + token) * params.row_stride + id.y * params.width;
  for (var e = 0u; e < UNIT_VECS; e++) {
    for (var i = 0u; i < 4u; i++) {
      let component = unit * UNIT + 4u * e + i;
      if (component < params.width) { rows[to + component] = x[e][i]; }
    }
  }
}
