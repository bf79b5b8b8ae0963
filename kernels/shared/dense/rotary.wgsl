// Cosine and sine of theta_m * position without f32 angles, which are wrong by 5e-2 at position 900,000. Two tables,
// made in float64 and rounded to f32 (host/rotary.ts): the first position of each block of 32, and the offsets in a
// block; the angles are added. Error 1.4e-7 at any position.
const ROTARY_BLOCK = 32u;

// e^(i (a + b)) = e^(ia) e^(ib), as (cos, sin)
fn add_angles(a: vec2f, b: vec2f) -> vec2f { return vec2f(a.x * b.x - a.y * b.y, a.y * b.x + a.x * b.y); }

// Turn of pair m at a position. `table`: offsets [pair][32], then block starts [block][pair].
fn turn_at(table: ptr<storage, array<vec2f>, read>, pairs: u32, position: u32, m: u32) -> vec2f {
  return add_angles((*table)[(ROTARY_BLOCK + position / ROTARY_BLOCK) * pairs + m],
      (*table)[m * ROTARY_BLOCK + position % ROTARY_BLOCK]);
}

fn rotated(x: vec2f, turn: vec2f) -> vec2f { return vec2f(x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x); }

// The two components of pair m: (m, m + pairs), or neighbours.
fn pair_rows(m: u32, pairs: u32, adjacent: u32) -> vec2u {
  return select(vec2u(m, m + pairs), vec2u(2u * m, 2u * m + 1u), adjacent == 1u);
}
