// Pairs of components of codes of which whole words hold a power of two (storage_quads.wgsl).

// Code of component i of a token's tail, whose tokens share words.
fn tail_code(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, i: u32) -> u32 {
  let shared_word = word_at(cache, token.tile + shape.tails_at + i * BITS + token.t / PER_WORD);
  return (shared_word >> (BITS * (token.t % PER_WORD))) & CODES;
}

// Components 2 pair and 2 pair + 1; what lies past the row's end is some finite number.
fn load_pair(cache: ptr<storage, array<vec4u>, read>, shape: CachedRow, token: Token, pair: u32) -> vec2f {
  let scale = scale_at(cache, shape, token, 2u * pair / shape.group_size);
  let words = 4u * shape.quads + shape.rest;
  var codes: vec2u;
  if (EDGES == 1u && 2u * pair >= PER_WORD * words) {
    let i = 2u * pair - PER_WORD * words;
    codes = vec2u(tail_code(cache, shape, token, i), tail_code(cache, shape, token, min(i + 1u, shape.tail - 1u)));
  } else {
    codes = vec2u(unit_word(cache, shape, token, 2u * pair / PER_WORD)) >> (BITS *
        (vec2u(2u * pair % PER_WORD) + vec2u(0u, 1u)));
  }
  return fma(vec2f(codes & vec2u(CODES)), vec2f(scale), vec2f(-MIDDLE * scale));
}
