// Pairs of components of cached rows of f32 (storage_f32.wgsl).

// Components 2 pair and 2 pair + 1; zero past the row's end.
fn load_pair(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, pair: u32) -> vec2f {
  let first = bitcast<f32>(unit_word(cache, shape, token, 2u * pair));
  if (EDGES == 1u && 2u * pair + 1u >= 4u * shape.quads + shape.rest) { return vec2f(first, 0.0); }
  return vec2f(first, bitcast<f32>(unit_word(cache, shape, token, 2u * pair + 1u)));
}
