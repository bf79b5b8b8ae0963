// Where the words of rows of flashloop lie: streams.launch.ts.
override GROUP: u32;         // tokens of a group
override CHANNELS: u32;      // channels of a pair of values
override ANCHOR_BITS: u32;   // of a code of the first loop
const DIFFERENCE_BITS = 4u;

struct Streams {
  width: u32,         // channels
  values: u32,        // 1: a pair serves channels of a token; 0: tokens of a channel
  group_words: u32,   // of a group of tokens, all loops
  row_words: u32,     // of a row's groups
  pair_words: u32,    // of a group's pairs of a loop
  spare: u32,
  spare1: u32,
  spare2: u32,
}

fn bits_of(loop_of: u32) -> u32 { return select(DIFFERENCE_BITS, ANCHOR_BITS, loop_of == 0u); }

// First word of a loop in a group.
fn loop_at(s: Streams, loop_of: u32) -> u32 {
  let codes = GROUP * s.width / 32u;
  return select(codes * (ANCHOR_BITS + DIFFERENCE_BITS * (loop_of - 1u)) + loop_of * s.pair_words, 0u, loop_of == 0u);
}

// First word of a loop's pairs in a group.
fn pairs_at(s: Streams, loop_of: u32) -> u32 { return loop_at(s, loop_of) + GROUP * s.width * bits_of(loop_of) / 32u; }

// The pair of a token's channel.
fn pair_of(s: Streams, t: u32, channel: u32) -> u32 {
  return select(channel, t * (s.width / CHANNELS) + channel / CHANNELS, s.values == 1u);
}

// To f16, ties to even: pack2x16float may round either way.
fn half4(x: vec4f) -> vec4f {
  let b = bitcast<vec4u>(x);
  let size = b & vec4u(0x7fffffffu);
  let normal = bitcast<vec4f>((b + 0xfffu + ((b >> vec4u(13u)) & vec4u(1u))) & vec4u(0xffffe000u));
  let least = round(x * 16777216.0) / 16777216.0;
  return select(select(normal, least, size < vec4u(0x38800000u)), x, size > vec4u(0x7f800000u));
}
fn half(x: f32) -> f32 { return half4(vec4f(x)).x; }
