enable subgroups;
// Block-absorbed attention (attend_block_absorbed.wgsl) for software adapters, where every word that a thread loads
// costs a dozen instructions, whatever its address. Eight threads load one basis vector each and share it by shuffles,
// so that a thread can have many offsets. The registers hold only one component's sums of these, so components are
// processed one at a time, two of them for each word of the keys. Run: lla-sim bench --kernel attend_block_absorbed
#include "attend_block.wgsl"
#pairs

var<private> even: array<f32, MOST_OFFSETS>;
var<private> odd: array<f32, MOST_OFFSETS>;

// Function j at all offsets of this thread. `j` is a constant wherever this is called: arrays that are indexed at run
// time are not in registers.
fn add_function(j: u32, v: f32) {
  for (var k = 0u; k < OFFSETS; k++) {
    if (j < EVEN) { even[k] = fma(even_at[k * MOST_QUADS + j / 4u][j % 4u], v, even[k]); }
    else { odd[k] = fma(odd_at[k * MOST_QUADS + (j - EVEN) / 4u][(j - EVEN) % 4u], v, odd[k]); }
  }
}

fn add_eight(at: u32, component: u32, first: u32) {
  if (first >= EVEN + ODD) { return; }
  let held = basis[at + first + lane][component];
  if (first + 0u < EVEN + ODD) { add_function(first + 0u, subgroupBroadcast(held, 0u)); }
  if (first + 1u < EVEN + ODD) { add_function(first + 1u, subgroupBroadcast(held, 1u)); }
  if (first + 2u < EVEN + ODD) { add_function(first + 2u, subgroupBroadcast(held, 2u)); }
  if (first + 3u < EVEN + ODD) { add_function(first + 3u, subgroupBroadcast(held, 3u)); }
  if (first + 4u < EVEN + ODD) { add_function(first + 4u, subgroupBroadcast(held, 4u)); }
  if (first + 5u < EVEN + ODD) { add_function(first + 5u, subgroupBroadcast(held, 5u)); }
  if (first + 6u < EVEN + ODD) { add_function(first + 6u, subgroupBroadcast(held, 6u)); }
  if (first + 7u < EVEN + ODD) { add_function(first + 7u, subgroupBroadcast(held, 7u)); }
}

// Sums of a component of a quad on both sides of the centre, at all offsets of this thread.
fn sum_functions(at: u32, component: u32) -> array<f32, 2u * MOST_OFFSETS> {
  for (var k = 0u; k < OFFSETS; k++) {
    even[k] = 0.0;
    odd[k] = 0.0;
  }
  add_eight(at, component, 0u);
  add_eight(at, component, 8u);
  add_eight(at, component, 16u);
  add_eight(at, component, 24u);
  add_eight(at, component, 32u);
  add_eight(at, component, 40u);
  add_eight(at, component, 48u);
  add_eight(at, component, 56u);
  var u: array<f32, 2u * MOST_OFFSETS>;
  for (var k = 0u; k < OFFSETS; k++) {
    u[k] = even[k] + odd[k];
    u[OFFSETS + k] = even[k] - odd[k];
  }
  return u;
}

fn score_block(at: u32) {
  sides = sum_functions(at + quads_of_key() * (EVEN + ODD), 0u);
  for (var pair = 0u; 2u * pair < params.key_width; pair++) {
    let quad = at + pair / 2u * (EVEN + ODD);
    let u = sum_functions(quad, 2u * (pair % 2u));
    let w = sum_functions(quad, 2u * (pair % 2u) + 1u);
    // The last word of a row may hold a component less.
    let second = select(0.0, 1.0, EDGES == 0u || 2u * pair + 1u < params.key_width);
    // Keys last: what has been loaded is used at once and takes no registers.
    for (var k = 0u; k < OFFSETS; k++) {
      let x = load_pair(&keys, params.keys, after[k], pair);
      let y = load_pair(&keys, params.keys, before[k], pair);
      sides[k] = fma(u[k], x.x, fma(second * w[k], x.y, sides[k]));
      sides[OFFSETS + k] = fma(u[OFFSETS + k], y.x, fma(second * w[OFFSETS + k], y.y, sides[OFFSETS + k]));
    }
  }
}
