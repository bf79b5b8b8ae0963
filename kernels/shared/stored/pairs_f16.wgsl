// Pairs of components of cached rows of f16 (storage_f16.wgsl): a word each.

// Components 2 pair and 2 pair + 1; zero past the row's end.
fn load_pair(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, pair: u32) -> vec2f {
  if (EDGES == 0u) { return unpack2x16float(word_at(cache, token.tile + token.t * 4u * shape.quads + pair)); }
  if (pair < 4u * shape.quads + shape.rest) { return unpack2x16float(unit_word(cache, shape, token, pair)); }
  return vec2f(unpack2x16float(word_at(cache, token.tile + shape.tails_at + token.t / 2u) >> (16u * (token.t % 2u))).x,
      0.0);
}
