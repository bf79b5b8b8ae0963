enable subgroups;
// Basis vectors of block-absorbed attention (attend_block_absorbed.wgsl), once a query and block of the cache. In the block of 2 HALF
// positions centred on n0, the pairs' vectors (block_vectors.wgsl) turned to the centre are
//   A_m = cos(theta_m n0) a_m + sin(theta_m n0) b_m     B_m = cos(theta_m n0) b_m - sin(theta_m n0) a_m
// and per quad of latent components the basis is, in this order, A_m of the EXACT fastest pairs and sum_m psi_j,m A_m of the MORE_EVEN
// functions (even in the offset), then B_m and sum_m psi_j,m B_m of the MORE_ODD functions (odd).
//
// A thread takes one (block, quad). psi is the same for all of them: eight threads load a quad of it each and hand it round.
// Bindings: 0 params, 1 vectors [query head][pair][component pair] (a, b, a, b), 2 spans, 3 angles (cos, sin): [position % FINE][pair],
// turned on by HALF - 1/2, then [position / FINE][pair], 4 functions: psi [pair that is not exact][quad], 5 basis [query head][block]
// [quad of components][function]. Workgroups: threads, query heads of a sequence, sequences.
// Run: lla-sim bench --kernel block_basis
override WG: u32;
override HEAD_PAIRS: u32;
override BLOCK: u32;
override EXACT: u32;         // fast pairs taken as they are
override MORE_EVEN: u32;     // functions of the other pairs
override MORE_ODD: u32;
override PSI_QUADS: u32;     // ceil((MORE_EVEN + MORE_ODD) / 4)
const FINE = 1024u;
const MOST_MORE = 32u;

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

var<private> more: array<vec4f, MOST_MORE>;

// Four numbers of psi of a pair, whose first function is 4 q.
fn add_more(q: u32, p: vec4f, a: vec4f, b: vec4f) {
  for (var e = 0u; e < 4u; e++) {
    let j = 4u * q + e;
    if (j < MORE_EVEN) { more[j] = fma(vec4f(p[e]), a, more[j]); }
    else if (j < MORE_EVEN + MORE_ODD) { more[j] = fma(vec4f(p[e]), b, more[j]); }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(subgroup_invocation_id) lane_id: u32) {
  let quads = params.rank / 4u + 1u;
  let span = spans[id.z];
  let used = min(params.blocks, (span.z + BLOCK - 1u) / BLOCK);
  let head = id.z * groups.y + id.y;
  // Threads beyond the last one repeat it: all of them take part in handing round.
  let task = min(id.x, max(used, 1u) * quads - 1u);
  let block = task / quads;
  let quad = task % quads;
  let writes = id.x < used * quads;
  let position = span.y + block * BLOCK;
  let at = ((head * params.blocks + block) * quads + quad) * (2u * EXACT + MORE_EVEN + MORE_ODD);
  let width = (params.rank + 2u) / 2u;   // pairs of components with the mean, padded to even
  // What lies beyond the mean is not to count.
  let keep = select(vec4f(0.0), vec4f(1.0), vec4u(4u * quad) + vec4u(0u, 1u, 2u, 3u) <= vec4u(params.rank));
  for (var j = 0u; j < MORE_EVEN + MORE_ODD; j++) { more[j] = vec4f(0.0); }
  for (var m = 0u; m < HEAD_PAIRS * params.once; m++) {
    let x = angles[(FINE + position / FINE) * HEAD_PAIRS + m];
    let y = angles[(position % FINE) * HEAD_PAIRS + m];
    let turn = vec2f(x.x * y.x - x.y * y.y, x.y * y.x + x.x * y.y);
    let from_vector = (head * HEAD_PAIRS + m) * width;
    let v = vectors[from_vector + min(2u * quad, width - 1u)];
    let w = vectors[from_vector + min(2u * quad + 1u, width - 1u)];
    let a = keep * (turn.x * vec4f(v.xz, w.xz) + turn.y * vec4f(v.yw, w.yw));
    let b = keep * (turn.x * vec4f(v.yw, w.yw) - turn.y * vec4f(v.xz, w.xz));
    if (m < EXACT) {
      if (writes) {
        basis[at + m] = a;
        basis[at + EXACT + MORE_EVEN + m] = b;
      }
      continue;
    }
    let held = functions[(m - EXACT) * PSI_QUADS + min(lane_id % 8u, max(PSI_QUADS, 1u) - 1u)];
    if (PSI_QUADS > 0u) { add_more(0u, subgroupBroadcast(held, 0u), a, b); }
    if (PSI_QUADS > 1u) { add_more(1u, subgroupBroadcast(held, 1u), a, b); }
    if (PSI_QUADS > 2u) { add_more(2u, subgroupBroadcast(held, 2u), a, b); }
    if (PSI_QUADS > 3u) { add_more(3u, subgroupBroadcast(held, 3u), a, b); }
    if (PSI_QUADS > 4u) { add_more(4u, subgroupBroadcast(held, 4u), a, b); }
    if (PSI_QUADS > 5u) { add_more(5u, subgroupBroadcast(held, 5u), a, b); }
    if (PSI_QUADS > 6u) { add_more(6u, subgroupBroadcast(held, 6u), a, b); }
    if (PSI_QUADS > 7u) { add_more(7u, subgroupBroadcast(held, 7u), a, b); }
  }
  if (!writes) { return; }
  for (var j = 0u; j < MORE_EVEN; j++) { basis[at + EXACT + j] = more[j]; }
  for (var j = 0u; j < MORE_ODD; j++) { basis[at + 2u * EXACT + MORE_EVEN + j] = more[MORE_EVEN + j]; }
}
