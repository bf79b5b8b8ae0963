enable subgroups;
// Split-KV decode attention with full RoPE straight on latents: K is never rebuilt. In a block of 2 HALF positions
// centred on n0, with offset delta and the pairs' vectors turned to the centre (A_m, B_m of block_basis.wgsl),
//   s(n0 + delta) = sum_m (cos(theta_m delta) A_m + sin(theta_m delta) B_m) . c
// The tables cos(theta_m delta) and sin(theta_m delta) are the same in every block and numerically of low rank, so that
// a few functions phi_j of the offset with a vector of latent components each (the block's basis) stand for all pairs.
// Even and odd sums P and Q serve both signs of an offset: u(+delta) = P + Q, u(-delta) = P - Q.
//
// This one is for GPUs, where a load of one address by all threads is cheap: every thread loads the basis, four
// components at a time. attend_block_components.wgsl does the same for software adapters.
// Run: lla-sim bench --kernel attend_block_absorbed
#include "attend_block.wgsl"

var<private> even: array<vec4f, MOST_OFFSETS>;
var<private> odd: array<vec4f, MOST_OFFSETS>;
var<private> after_units: array<Unit, MOST_OFFSETS>;
var<private> before_units: array<Unit, MOST_OFFSETS>;

// Even and odd sums of a quad of components at all offsets of this thread.
fn add_functions(at: u32) {
  for (var k = 0u; k < OFFSETS; k++) {
    even[k] = vec4f(0.0);
    odd[k] = vec4f(0.0);
  }
  for (var j = 0u; j < EVEN + ODD; j++) {
    let v = basis[at + j];
    for (var k = 0u; k < OFFSETS; k++) {
      if (j < EVEN) { even[k] = fma(vec4f(even_at[k * MOST_QUADS + j / 4u][j % 4u]), v, even[k]); }
      else { odd[k] = fma(vec4f(odd_at[k * MOST_QUADS + (j - EVEN) / 4u][(j - EVEN) % 4u]), v, odd[k]); }
    }
  }
}

// Quad `quad` of a row, from the unit that holds it: zero past the row's end. A choice between constants, as arrays
// that are indexed at run time are not in registers.
fn quad_of(unit: Unit, quad: u32) -> vec4f {
  var v = unit[0];
  for (var i = 1u; i < UNIT_VECS; i++) { v = select(v, unit[i], i == quad % UNIT_VECS); }
  if (EDGES == 0u) { return v; }
  return select(vec4f(0.0), v, vec4u(4u * quad) + vec4u(0u, 1u, 2u, 3u) < vec4u(params.key_width));
}

fn score_block(at: u32) {
  let quads = quads_of_key();
  add_functions(at + quads * (EVEN + ODD));
  for (var k = 0u; k < OFFSETS; k++) {
    sides[k] = even[k].x + odd[k].x;
    sides[OFFSETS + k] = even[k].x - odd[k].x;
  }
  for (var unit = 0u; unit * UNIT_VECS < quads; unit++) {
    for (var k = 0u; k < OFFSETS; k++) {
      after_units[k] = load_unit(&keys, params.keys, after[k], unit);
      before_units[k] = load_unit(&keys, params.keys, before[k], unit);
    }
    for (var quad = unit * UNIT_VECS; quad < min((unit + 1u) * UNIT_VECS, quads); quad++) {
      add_functions(at + quad * (EVEN + ODD));
      for (var k = 0u; k < OFFSETS; k++) {
        sides[k] += dot(even[k] + odd[k], quad_of(after_units[k], quad));
        sides[OFFSETS + k] += dot(even[k] - odd[k], quad_of(before_units[k], quad));
      }
    }
  }
}
