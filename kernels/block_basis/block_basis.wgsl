enable subgroups;
// Basis vectors of block-absorbed attention (attend_block_absorbed.wgsl), once a query and block of the cache. In the
// block of 2 HALF positions centred on n0, the pairs' vectors (block_vectors.wgsl) turned to the centre are
//   A_m = cos(theta_m n0) a_m + sin(theta_m n0) b_m     B_m = cos(theta_m n0) b_m - sin(theta_m n0) a_m
// and per quad of latent components the basis is, in this order, A_m of the EXACT fastest pairs and sum_m psi_j,m A_m
// of the MORE_EVEN functions (even in the offset), then B_m and sum_m psi_j,m B_m of the MORE_ODD functions (odd).
//
// A thread computes a quad of EACH successive blocks, from one to the next by a product, and reads its vectors once for
// all of them. psi is the same for all threads: eight of them load a quad of it each and share it by shuffles.
// Bindings: 0 params, 1 vectors [query head][pair][component pair] (a, b, a, b), 2 spans, 3 angles (cos, sin):
// [position % FINE][pair], turned on by BLOCK / 2 - 1/2, then (from row COARSE on) those of BLOCK and [position /
// FINE], 4 functions: psi [pair that is not exact][quad], 5 basis [query head][block] [quad of components, then the
// mean of the keys, alone in x][function]. Workgroups: threads, query heads of a sequence, sequences. Run: lla-sim
// bench --kernel block_basis
override WG: u32;
override EACH: u32;          // blocks of a thread, at most MOST_EACH
override HEAD_PAIRS: u32;
override BLOCK: u32;
override EXACT: u32;         // fast pairs taken as they are
override MORE_EVEN: u32;     // functions of the other pairs
override MORE_ODD: u32;
override FUNCTIONS: u32;     // 2 EXACT + MORE_EVEN + MORE_ODD
override PSI_QUADS: u32;     // ceil((MORE_EVEN + MORE_ODD) / 4)
const FINE = 1024u;
const COARSE = FINE + 1u;    // row of the table of angles; the one before it turns on by a block
const MOST_MORE = 32u;
const MOST_EACH = 8u;

struct Params {
  rank: u32,     // of the key latent; the mean of the keys is component `rank`, whose latent is 1
  blocks: u32,   // of a sequence, at most
  once: u32,     // 1; as a factor of a loop's bound it keeps compilers from unrolling
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(2) var<storage, read> spans: array<vec4u>;
@group(0) @binding(3) var<storage, read> angles: array<vec2f>;
@group(0) @binding(4) var<storage, read> functions: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> basis: array<vec4f>;

var<private> turned_a: array<vec4f, MOST_EACH>;
var<private> turned_b: array<vec4f, MOST_EACH>;
var<private> more: array<vec4f, MOST_EACH * MOST_MORE>;   // [block of this thread][function]

fn turn(x: vec2f, by: vec2f) -> vec2f { return vec2f(x.x * by.x - x.y * by.y, x.y * by.x + x.x * by.y); }

// Four numbers of psi of a pair, whose first function is 4 q.
fn add_more(q: u32, p: vec4f) {
  for (var e = 0u; e < 4u; e++) {
    let j = 4u * q + e;
    for (var i = 0u; i < EACH; i++) {
      if (j < MORE_EVEN) { more[i * MOST_MORE + j] = fma(vec4f(p[e]), turned_a[i], more[i * MOST_MORE + j]); }
      else if (j < MORE_EVEN + MORE_ODD) {
        more[i * MOST_MORE + j] = fma(vec4f(p[e]), turned_b[i], more[i * MOST_MORE + j]);
      }
    }
  }
}

@compute @workgroup_size(WG)
fn main(
  @builtin(global_invocation_id) id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(subgroup_invocation_id) lane_id: u32
) {
  let quads = (params.rank + 3u) / 4u;
  let span = spans[id.z];
  let used = min(params.blocks, (span.z + BLOCK - 1u) / BLOCK);
  let tasks = (used + EACH - 1u) / EACH * (quads + 1u);
  let head = id.z * groups.y + id.y;
  // Threads beyond the last one repeat it: all of them take part in the shuffles.
  let task = min(id.x, max(tasks, 1u) - 1u);
  let block = task / (quads + 1u) * EACH;
  let quad = task % (quads + 1u);
  let mean = quad == quads;
  let position = span.y + block * BLOCK;
  let stride = (quads + 1u) * FUNCTIONS;   // of blocks
  let at = (head * params.blocks + block) * stride + quad * FUNCTIONS;
  let writes = select(0u, min(EACH, used - min(block, used)), id.x < tasks);   // blocks that this thread writes
  let width = (params.rank + 2u) / 2u;   // pairs of components with the mean, padded to even
  // Components beyond the rank must not count.
  let keep = select(vec4f(0.0), vec4f(1.0),
      vec4<bool>(mean) | (vec4u(4u * quad) + vec4u(0u, 1u, 2u, 3u) < vec4u(params.rank)));
  for (var j = 0u; j < EACH * MOST_MORE; j++) { more[j] = vec4f(0.0); }
  for (var m = 0u; m < HEAD_PAIRS * params.once; m++) {
    let from_vector = (head * HEAD_PAIRS + m) * width;
    let v = vectors[from_vector + select(min(2u * quad, width - 1u), params.rank / 2u, mean)];
    let w = vectors[from_vector + min(2u * quad + 1u, width - 1u)];
    var a = keep * vec4f(v.xz, w.xz);
    var b = keep * vec4f(v.yw, w.yw);
    if (mean && params.rank % 2u == 1u) {
      a.x = a.y;
      b.x = b.y;
    }
    var angle = turn(angles[(COARSE + position / FINE) * HEAD_PAIRS + m], angles[(position % FINE) * HEAD_PAIRS + m]);
    let step = angles[FINE * HEAD_PAIRS + m];
    for (var i = 0u; i < EACH; i++) {
      turned_a[i] = angle.x * a + angle.y * b;
      turned_b[i] = angle.x * b - angle.y * a;
      angle = turn(angle, step);
    }
    if (m < EXACT) {
      for (var i = 0u; i < EACH; i++) {
        if (i < writes) {
          basis[at + i * stride + m] = turned_a[i];
          basis[at + i * stride + EXACT + MORE_EVEN + m] = turned_b[i];
        }
      }
      continue;
    }
    let held = functions[(m - EXACT) * PSI_QUADS + min(lane_id % 8u, max(PSI_QUADS, 1u) - 1u)];
    if (PSI_QUADS > 0u) { add_more(0u, subgroupBroadcast(held, 0u)); }
    if (PSI_QUADS > 1u) { add_more(1u, subgroupBroadcast(held, 1u)); }
    if (PSI_QUADS > 2u) { add_more(2u, subgroupBroadcast(held, 2u)); }
    if (PSI_QUADS > 3u) { add_more(3u, subgroupBroadcast(held, 3u)); }
    if (PSI_QUADS > 4u) { add_more(4u, subgroupBroadcast(held, 4u)); }
    if (PSI_QUADS > 5u) { add_more(5u, subgroupBroadcast(held, 5u)); }
    if (PSI_QUADS > 6u) { add_more(6u, subgroupBroadcast(held, 6u)); }
    if (PSI_QUADS > 7u) { add_more(7u, subgroupBroadcast(held, 7u)); }
  }
  for (var i = 0u; i < EACH; i++) {
    if (i < writes) {
      for (var j = 0u; j < MORE_EVEN; j++) { basis[at + i * stride + EXACT + j] = more[i * MOST_MORE + j]; }
      for (var j = 0u; j < MORE_ODD; j++) {
        basis[at + i * stride + 2u * EXACT + MORE_EVEN + j] = more[i * MOST_MORE + MORE_EVEN + j];
      }
    }
  }
}
