// attend_block_absorbed.wgsl for devices without subgroups: every thread loads every basis vector.
// Run: lla-sim bench --kernel attend_block_absorbed
#include "block_scores.wgsl"

fn add_eight_even(at: u32, first: u32) {
  if (first >= EVEN) { return; }
  if (first + 0u < EVEN) { add_even(first + 0u, basis[at + first + 0u]); }
  if (first + 1u < EVEN) { add_even(first + 1u, basis[at + first + 1u]); }
  if (first + 2u < EVEN) { add_even(first + 2u, basis[at + first + 2u]); }
  if (first + 3u < EVEN) { add_even(first + 3u, basis[at + first + 3u]); }
  if (first + 4u < EVEN) { add_even(first + 4u, basis[at + first + 4u]); }
  if (first + 5u < EVEN) { add_even(first + 5u, basis[at + first + 5u]); }
  if (first + 6u < EVEN) { add_even(first + 6u, basis[at + first + 6u]); }
  if (first + 7u < EVEN) { add_even(first + 7u, basis[at + first + 7u]); }
}

fn add_eight_odd(at: u32, first: u32) {
  if (first >= ODD) { return; }
  if (first + 0u < ODD) { add_odd(first + 0u, basis[at + EVEN + first + 0u]); }
  if (first + 1u < ODD) { add_odd(first + 1u, basis[at + EVEN + first + 1u]); }
  if (first + 2u < ODD) { add_odd(first + 2u, basis[at + EVEN + first + 2u]); }
  if (first + 3u < ODD) { add_odd(first + 3u, basis[at + EVEN + first + 3u]); }
  if (first + 4u < ODD) { add_odd(first + 4u, basis[at + EVEN + first + 4u]); }
  if (first + 5u < ODD) { add_odd(first + 5u, basis[at + EVEN + first + 5u]); }
  if (first + 6u < ODD) { add_odd(first + 6u, basis[at + EVEN + first + 6u]); }
  if (first + 7u < ODD) { add_odd(first + 7u, basis[at + EVEN + first + 7u]); }
}

fn add_psi(at: u32, t: Turned) {
  if (PSI_QUADS > 0u) { add_more(0u, functions[at + 0u], t); }
  if (PSI_QUADS > 1u) { add_more(1u, functions[at + 1u], t); }
  if (PSI_QUADS > 2u) { add_more(2u, functions[at + 2u], t); }
  if (PSI_QUADS > 3u) { add_more(3u, functions[at + 3u], t); }
  if (PSI_QUADS > 4u) { add_more(4u, functions[at + 4u], t); }
  if (PSI_QUADS > 5u) { add_more(5u, functions[at + 5u], t); }
  if (PSI_QUADS > 6u) { add_more(6u, functions[at + 6u], t); }
  if (PSI_QUADS > 7u) { add_more(7u, functions[at + 7u], t); }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group_id: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) l: u32) {
  attend_blocks(place_of(group_id, groups), l);
}
