// Pairs of components of 3-bit codes (storage_q3.wgsl).

// Code of component i of a token's tail, whose tokens share words.
fn tail_code(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, i: u32) -> u32 {
  let at = token.tile + shape.tails_at + i * BITS;
  return ((word_at(cache, at + token.t / 16u) >> (2u * (token.t % 16u))) & 3u) +
      4u * ((word_at(cache, at + 2u) >> token.t) & 1u);
}

// Components 2 pair and 2 pair + 1; what lies past the row's end is some finite number.
fn load_pair(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, pair: u32) -> vec2f {
  let scale = scale_at(cache, shape, token, 2u * pair / shape.group_size);
  let unit = pair / 16u;
  let i = 2u * pair % 32u;
  var codes: vec2u;
  if (EDGES == 1u && unit + 1u == shape.units && shape.tail > 0u) {
    codes = vec2u(tail_code(cache, shape, token, i), tail_code(cache, shape, token, min(i + 1u, shape.tail - 1u)));
  } else {
    let low = unit_word(cache, shape, token, 3u * unit + i / 16u);
    let high = unit_word(cache, shape, token, 3u * unit + 2u);
    codes = ((vec2u(low) >> (2u * (vec2u(i % 16u) + vec2u(0u, 1u)))) & vec2u(3u)) +
        4u * ((vec2u(high) >> (vec2u(i) + vec2u(0u, 1u))) & vec2u(1u));
  }
  return fma(vec2f(codes), vec2f(scale), vec2f(-MIDDLE * scale));
}
