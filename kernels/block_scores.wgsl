// Block-absorbed attention but for the way in which threads get what all of them need: see attend_block_absorbed.wgsl. A file that
// includes this one defines
//   fn add_eight_even(at, first), fn add_eight_odd(at, first)   add_even / add_odd of functions first to first + 7 of the basis at `at`
//   fn add_psi(at, t)                                            add_more of the PSI_QUADS quads of psi at `at`
#include "attend_fold.wgsl"

override HEAD_PAIRS: u32;
override HALF: u32;          // TILE / 2, OFFSETS * WG
override OFFSETS: u32;       // offsets of a thread, at most MOST_OFFSETS
override EXACT: u32;         // fast pairs taken as they are
override MORE_EVEN: u32;     // functions of the other pairs
override MORE_ODD: u32;
override EVEN: u32;          // EXACT + MORE_EVEN
override ODD: u32;
override EVEN_QUADS: u32;    // ceil(EVEN / 4)
override ODD_QUADS: u32;
override FUNCTIONS: u32;     // EVEN + ODD
override PSI_QUADS: u32;     // ceil((MORE_EVEN + MORE_ODD) / 4)
override CHUNK: u32;         // quads of latent components whose basis vectors are held at a time
override BASIS: u32;         // CHUNK * FUNCTIONS
const FINE = 1024u;
const MOST_OFFSETS = 8u;
const MOST_QUADS = 16u;
const MOST_MORE = 32u;

@group(0) @binding(1) var<storage, read> vectors: array<vec4f>;
@group(0) @binding(7) var<storage, read> angles: array<vec2f>;
@group(0) @binding(8) var<storage, read> functions: array<vec4f>;

var<workgroup> turns: array<vec2f, HEAD_PAIRS>;
var<workgroup> basis: array<vec4f, BASIS>;            // [quad of components][function]
var<private> phi_at: array<vec4f, MOST_OFFSETS * MOST_QUADS>;   // [offset of this thread][quad of even functions, then of odd ones]
var<private> sides: array<vec2f, MOST_OFFSETS>;       // scores of this thread's tokens after and before the centre

var<private> more: array<vec4f, MOST_MORE>;
var<private> even: array<vec4f, MOST_OFFSETS>;
var<private> odd: array<vec4f, MOST_OFFSETS>;
var<private> after_units: array<Unit, MOST_OFFSETS>;
var<private> before_units: array<Unit, MOST_OFFSETS>;

// Angles to the centre of the block that starts at `position`.
fn turn_pairs(l: u32, position: u32) {
  for (var m = l; m < HEAD_PAIRS * params.once; m += WG) {
    let x = angles[(FINE + position / FINE) * HEAD_PAIRS + m];
    let y = angles[(position % FINE) * HEAD_PAIRS + m];
    turns[m] = vec2f(x.x * y.x - x.y * y.y, x.y * y.x + x.x * y.y);
  }
}

// A and B of four components of a pair.
struct Turned { a: vec4f, b: vec4f }
fn turned(head: u32, m: u32, quad: u32) -> Turned {
  let width = (params.key_width + 2u) / 2u;   // pairs of components with the mean, padded to even
  let from_vector = (head * HEAD_PAIRS + m) * width;
  let v = vectors[from_vector + min(2u * quad, width - 1u)];
  let w = vectors[from_vector + min(2u * quad + 1u, width - 1u)];
  let turn = turns[m];
  let a = vec4f(v.xz, w.xz);
  let b = vec4f(v.yw, w.yw);
  return Turned(turn.x * a + turn.y * b, turn.x * b - turn.y * a);
}

// Four numbers of psi of a pair, whose first function is 4 q.
fn add_more(q: u32, p: vec4f, t: Turned) {
  for (var e = 0u; e < 4u; e++) {
    let j = 4u * q + e;
    if (j < MORE_EVEN) { more[j] = fma(vec4f(p[e]), t.a, more[j]); }
    else if (j < MORE_EVEN + MORE_ODD) { more[j] = fma(vec4f(p[e]), t.b, more[j]); }
  }
}

// Basis vectors of a quad of components, one a thread; all threads call it.
fn set_up(head: u32, quad: u32, mean: bool, valid: bool, at: u32) {
  // What a cached row's last quad holds beyond its width is not to count.
  let keep = select(vec4f(0.0), vec4f(1.0), vec4<bool>(mean) | (vec4u(4u * quad) + vec4u(0u, 1u, 2u, 3u) < vec4u(params.key_width)));
  for (var m = 0u; m < EXACT * params.once; m++) {
    let t = turned(head, m, quad);
    if (valid) {
      basis[at + m] = keep * t.a;
      basis[at + EVEN + m] = keep * t.b;
    }
  }
  for (var j = 0u; j < MORE_EVEN + MORE_ODD; j++) { more[j] = vec4f(0.0); }
  for (var m = EXACT; m < HEAD_PAIRS * params.once; m++) { add_psi((m - EXACT) * PSI_QUADS, turned(head, m, quad)); }
  if (!valid) { return; }
  for (var j = 0u; j < MORE_EVEN; j++) { basis[at + EXACT + j] = keep * more[j]; }
  for (var j = 0u; j < MORE_ODD; j++) { basis[at + EVEN + EXACT + j] = keep * more[MORE_EVEN + j]; }
}

// A function's basis vector at all offsets of this thread. `j` is a constant wherever this is called: functions that are indexed at
// run time are not in registers.
fn add_even(j: u32, v: vec4f) {
  for (var k = 0u; k < OFFSETS; k++) { even[k] = fma(vec4f(phi_at[k * MOST_QUADS + j / 4u][j % 4u]), v, even[k]); }
}
fn add_odd(j: u32, v: vec4f) {
  for (var k = 0u; k < OFFSETS; k++) { odd[k] = fma(vec4f(phi_at[k * MOST_QUADS + EVEN_QUADS + j / 4u][j % 4u]), v, odd[k]); }
}

// Four components of a unit. A choice between constants, again for the registers' sake.
fn part_of(unit: Unit, e: u32) -> vec4f {
  var v = unit[0];
  for (var i = 1u; i < UNIT_VECS; i++) { v = select(v, unit[i], i == e); }
  return v;
}

// What part e of the units adds to the scores.
fn add_quad(at: u32, e: u32) {
  for (var k = 0u; k < OFFSETS; k++) {
    even[k] = vec4f(0.0);
    odd[k] = vec4f(0.0);
  }
  add_eight_even(at, 0u);
  add_eight_even(at, 8u);
  add_eight_even(at, 16u);
  add_eight_even(at, 24u);
  add_eight_odd(at, 0u);
  add_eight_odd(at, 8u);
  add_eight_odd(at, 16u);
  add_eight_odd(at, 24u);
  for (var k = 0u; k < OFFSETS; k++) { sides[k] += vec2f(dot(even[k] + odd[k], part_of(after_units[k], e)), dot(even[k] - odd[k], part_of(before_units[k], e))); }
}

// The tokens of a block at an offset after and before its centre.
fn tokens_at(offset: u32) -> vec2u { return vec2u(HALF + offset, HALF - 1u - offset); }

fn score_of(place: Place, lane: u32, i: u32) -> f32 { return params.scale * scratch[i]; }

fn attend_blocks(place: Place, l: u32) {
  let key_quads = (params.key_width + 3u) / 4u;
  let one = vec4f(vec4u(0u, 1u, 2u, 3u) == vec4u(params.key_width % 4u));
  for (var k = 0u; k < OFFSETS; k++) {
    for (var q = 0u; q < EVEN_QUADS + ODD_QUADS; q++) {
      phi_at[k * MOST_QUADS + q] = functions[(HEAD_PAIRS - EXACT) * PSI_QUADS + (l + k * WG) * (EVEN_QUADS + ODD_QUADS) + q];
    }
  }
  start_lanes();
  for (var first = place.begin; first < place.end; first += TILE) {
    let count = min(TILE, place.end - first);
    turn_pairs(l, place.position + first);
    // Tokens past the end repeat the last one; their scores are not used.
    var after: array<Token, MOST_OFFSETS>;
    var before: array<Token, MOST_OFFSETS>;
    for (var k = 0u; k < OFFSETS; k++) {
      let tokens = tokens_at(l + k * WG);
      after[k] = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, first + min(tokens.x, count - 1u)));
      before[k] = token_at(params.keys, place.row, tiles_of_row(), slot_of(place, first + min(tokens.y, count - 1u)));
      sides[k] = vec2f(0.0);
    }
    for (var quad0 = 0u; quad0 < key_quads; quad0 += CHUNK) {
      workgroupBarrier();
      let staged = min(CHUNK, key_quads - quad0);
      let last = quad0 + staged == key_quads;
      let tasks = staged + select(0u, 1u, last);
      for (var i = 0u; i < tasks; i += WG) {
        let mine = min(i + l, tasks - 1u);
        set_up(place.first_head, select(quad0 + mine, params.key_width / 4u, mine == staged), mine == staged, i + l < tasks, mine * FUNCTIONS);
      }
      workgroupBarrier();
      // The mean is a unit of its own at the end.
      let own_units = (staged + UNIT_VECS - 1u) / UNIT_VECS;
      for (var i = 0u; i < own_units + select(0u, 1u, last); i++) {
        let mean = i == own_units;
        let unit = min(quad0 / UNIT_VECS + i, params.keys.units - 1u);
        // Unrolled only where a load is short: compile time.
        for (var k = 0u; k < select(OFFSETS, OFFSETS * params.once, EDGES == 1u || UNIT_VECS > 2u); k++) {
          after_units[k] = load_unit(&keys, params.keys, after[k], unit);
          before_units[k] = load_unit(&keys, params.keys, before[k], unit);
          after_units[k][0] = select(after_units[k][0], one, mean);
          before_units[k][0] = select(before_units[k][0], one, mean);
        }
        let parts = select(min(UNIT_VECS, staged - i * UNIT_VECS), 1u, mean);
        for (var e = 0u; e < parts; e++) { add_quad(select(i * UNIT_VECS + e, staged, mean) * FUNCTIONS, e); }
      }
    }
    for (var k = 0u; k < OFFSETS; k++) {
      let tokens = tokens_at(l + k * WG);
      scratch[tokens.x] = sides[k].x;
      scratch[tokens.y] = sides[k].y;
    }
    workgroupBarrier();
    fold_tile(l, place, first, count);
  }
  finish_lanes(l, place);
}
