// Where the words of a cached row lie, for kernels that read them. Described in host/cache-layout.ts, which has the
// same addresses in TypeScript. A row is read unit by unit (storage_*.wgsl): 16 bytes at a time where they are there.
const TILE_TOKENS = 32u;

// Counts and word offsets of one tile of a row.
struct CachedRow {
  quads: u32,        // whole quads of words of a token
  rest: u32,         // words of a token beyond them
  tail: u32,         // components beyond whole words
  tile_words: u32,
  units: u32,        // units as storage_*.wgsl counts them, the last perhaps partial
  tails_at: u32,
  scales_at: u32,
  group_size: u32,   // components of a scale, where there are scales
}

override EDGES: u32;   // 0: rows are whole units, and threads that share a row have equally many

// A cached token: the first word of its tile and its number there, or of its row and its slot (token_at of
// storage_*.wgsl).
struct Token { tile: u32, t: u32 }

fn token_in_tile(shape: CachedRow, row: u32, tiles: u32, slot: u32) -> Token {
  return Token((row * tiles + slot / TILE_TOKENS) * shape.tile_words, slot % TILE_TOKENS);
}

fn word_at(cache: ptr<storage, array<vec4u>, read>, index: u32) -> u32 { return (*cache)[index / 4u][index % 4u]; }

// Word `index` of the units of a token (in its tile).
fn unit_word(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, index: u32) -> u32 {
  return word_at(cache, token.tile + select(TILE_TOKENS * index + token.t, token.t * 4u * shape.quads + index,
      index < 4u * shape.quads));
}
