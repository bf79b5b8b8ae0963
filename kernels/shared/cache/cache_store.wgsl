// Where the words of a cached row lie, for kernels that write them. The layout is described in host/cache-layout.ts,
// which has the same addresses in TypeScript. One invocation owns a word at a time: tails and scales are shared by the
// tokens of a tile, so a kernel gives all of a tile's words of a group to one workgroup, and replaces the bits of its
// own tokens only.
const TILE = 32u;

override BITS: u32;     // of a stored component: 32, 16, 8, 4, 3, 2
override UNIT: u32;     // components of a unit: 32 / BITS, or 32 for three bits
override PLANES: u32;   // words of a unit: 1, or 3 for three bits

// Counts and word offsets of one tile of a row.
struct RowLayout {
  width: u32,
  units: u32,
  tail: u32,
  tails_at: u32,
  scales_at: u32,
  tile_words: u32,
  group_size: u32,
  groups: u32,       // with a scale of their own; 0 for f32 and f16
}

fn quantised() -> bool { return BITS < 16u; }

// Word of a unit's plane of the tile's token t, from the tile's first word.
fn main_word(shape: RowLayout, t: u32, unit: u32, plane: u32) -> u32 {
  let word = unit * PLANES + plane;
  let quad_words = (shape.units * PLANES) / 4u * 4u;
  return select(TILE * word + t, t * quad_words + word, word < quad_words);
}

// A tail component takes BITS words for the 32 tokens of a tile. Of three bits the third word holds the high ones.
fn tail_word(shape: RowLayout, component: u32, word: u32) -> u32 { return shape.tails_at + component * BITS + word; }

fn scale_word(shape: RowLayout, group: u32, word: u32) -> u32 { return shape.scales_at + group * (TILE / 2u) + word; }

// Tokens that share word `word` of a tail: the first of them, how many, and the bits that each has there.
fn tail_first(word: u32) -> u32 {
  if (BITS == 3u) { return select(word * 16u, 0u, word == 2u); }
  return word * (32u / BITS);
}
fn tail_count(word: u32) -> u32 {
  if (BITS == 3u) { return select(16u, 32u, word == 2u); }
  return 32u / BITS;
}
fn tail_bits(word: u32) -> u32 {
  if (BITS == 3u) { return select(2u, 1u, word == 2u); }
  return BITS;
}
// The part of a code that belongs into that word.
fn tail_part(code: u32, word: u32) -> u32 {
  if (BITS == 3u) { return select(code & 3u, code >> 2u, word == 2u); }
  return code;
}

fn replace_bits(word: u32, shift: u32, bits: u32, value: u32) -> u32 {
  let mask = (0xffffffffu >> (32u - bits)) << shift;
  return (word & ~mask) | (value << shift);
}
