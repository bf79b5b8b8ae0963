enable subgroups;
// Split-KV decode attention with full RoPE straight on latents: K is never rebuilt. In a block of 2 HALF positions centred on n0,
// with offset delta and the pairs' vectors (block_vectors.wgsl) turned to the centre,
//   A_m = cos(theta_m n0) a_m + sin(theta_m n0) b_m     B_m = cos(theta_m n0) b_m - sin(theta_m n0) a_m
//   s(n0 + delta) = sum_m (cos(theta_m delta) A_m + sin(theta_m delta) B_m) . c
// The tables cos(theta_m delta) and sin(theta_m delta) are the same in every block and numerically of low rank: the EXACT fastest
// pairs are taken as they are, the others through few functions phi_j(delta) with psi_j,m (src/schedule/block-basis.ts). Per block
// and latent component, `basis` holds A_m and sum_m psi_j,m A_m (even in delta), B_m and sum_m psi_j,m B_m (odd). Even and odd sums
// P and Q serve both signs of an offset: u(+delta) = P + Q, u(-delta) = P - Q.
//
// A thread holds phi at OFFSETS offsets, so that a basis vector serves OFFSETS tokens of either sign. Blocks are counted from where a
// split begins, so that no split starts inside a block. Basis vectors and psi are the same for all threads: eight threads load one
// each and hand it round, in subgroups of at least eight.
// Bindings: 0 params, 1 vectors [query head][pair][component pair] (a, b, a, b), 2 keys (latents), 3 values (latents), 4 partials,
// 5 spans, 6 scores (not written), 7 angles (cos, sin): [position % FINE][pair], turned on by HALF - 1/2, then [position / FINE][pair],
// 8 functions: psi [pair that is not exact][quad], then phi [offset][quads of even functions, then of odd ones].
// Run: lla-sim bench --kernel attend_block_absorbed
#include "block_scores.wgsl"

var<private> lane: u32;   // of eight

fn add_eight_even(at: u32, first: u32) {
  if (first >= EVEN) { return; }
  let held = basis[at + first + lane];
  if (first + 0u < EVEN) { add_even(first + 0u, subgroupBroadcast(held, 0u)); }
  if (first + 1u < EVEN) { add_even(first + 1u, subgroupBroadcast(held, 1u)); }
  if (first + 2u < EVEN) { add_even(first + 2u, subgroupBroadcast(held, 2u)); }
  if (first + 3u < EVEN) { add_even(first + 3u, subgroupBroadcast(held, 3u)); }
  if (first + 4u < EVEN) { add_even(first + 4u, subgroupBroadcast(held, 4u)); }
  if (first + 5u < EVEN) { add_even(first + 5u, subgroupBroadcast(held, 5u)); }
  if (first + 6u < EVEN) { add_even(first + 6u, subgroupBroadcast(held, 6u)); }
  if (first + 7u < EVEN) { add_even(first + 7u, subgroupBroadcast(held, 7u)); }
}

fn add_eight_odd(at: u32, first: u32) {
  if (first >= ODD) { return; }
  let held = basis[at + EVEN + first + lane];
  if (first + 0u < ODD) { add_odd(first + 0u, subgroupBroadcast(held, 0u)); }
  if (first + 1u < ODD) { add_odd(first + 1u, subgroupBroadcast(held, 1u)); }
  if (first + 2u < ODD) { add_odd(first + 2u, subgroupBroadcast(held, 2u)); }
  if (first + 3u < ODD) { add_odd(first + 3u, subgroupBroadcast(held, 3u)); }
  if (first + 4u < ODD) { add_odd(first + 4u, subgroupBroadcast(held, 4u)); }
  if (first + 5u < ODD) { add_odd(first + 5u, subgroupBroadcast(held, 5u)); }
  if (first + 6u < ODD) { add_odd(first + 6u, subgroupBroadcast(held, 6u)); }
  if (first + 7u < ODD) { add_odd(first + 7u, subgroupBroadcast(held, 7u)); }
}

fn add_psi(at: u32, t: Turned) {
  let held = functions[at + min(lane, max(PSI_QUADS, 1u) - 1u)];
  if (PSI_QUADS > 0u) { add_more(0u, subgroupBroadcast(held, 0u), t); }
  if (PSI_QUADS > 1u) { add_more(1u, subgroupBroadcast(held, 1u), t); }
  if (PSI_QUADS > 2u) { add_more(2u, subgroupBroadcast(held, 2u), t); }
  if (PSI_QUADS > 3u) { add_more(3u, subgroupBroadcast(held, 3u), t); }
  if (PSI_QUADS > 4u) { add_more(4u, subgroupBroadcast(held, 4u), t); }
  if (PSI_QUADS > 5u) { add_more(5u, subgroupBroadcast(held, 5u), t); }
  if (PSI_QUADS > 6u) { add_more(6u, subgroupBroadcast(held, 6u), t); }
  if (PSI_QUADS > 7u) { add_more(7u, subgroupBroadcast(held, 7u), t); }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32, @builtin(subgroup_invocation_id) id: u32) {
  lane = id % 8u;
  attend_blocks(place_of(group_id, groups), l);
}
