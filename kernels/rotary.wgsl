// Cosine and sine of theta_m * position without f32 angles, which are wrong by 5e-2 at position 900,000. Two tables, made
// in float64 and rounded to f32 (src/gpu/rotary.ts): the first position of each block of 32, and the offsets in a block;
// the angles are added. Error 1.4e-7 at any position.
const ROTARY_BLOCK = 32u;

// e^(i (a + b)) = e^(ia) e^(ib), as (cos, sin)
fn add_angles(a: vec2f, b: vec2f) -> vec2f { return vec2f(a.x * b.x - a.y * b.y, a.y * b.x + a.x * b.y); }
