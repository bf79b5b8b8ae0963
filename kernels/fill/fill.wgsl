// Fills a buffer with reproducible pseudo-random operands, or with one word. The value at a word depends on the seed
// and the word's index alone, so the host computes any of them without reading back: src/bench/inputs.ts has the twin.
//   MODE 0: the word `seed` everywhere (NaN poisons outputs)
//   MODE 1: two halves, magnitudes in [0.25, 1), either sign, exact
//   MODE 2: f32 in [-1, 1), exact multiples of 2^-23
//   MODE 3: u32 below `modulus`
//   MODE 4: the word's index, modulo `modulus`
//   MODE 5: f32 in [2^-24, 1]
// Bindings: 0 params, 1 target. Run: part of every benchmark and contract test.
override MODE: u32;
const WG = 256u;

struct Params { words: u32, seed: u32, modulus: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> target_words: array<u32>;

#include "hash.wgsl"

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.words; i += groups.x * WG) {
    let r = mix_bits(i ^ mix_bits(params.seed));
    var word = params.seed;
    if (MODE == 1u) { word = (r & 0x87ff87ffu) + 0x34003400u; }
    if (MODE == 2u) { word = bitcast<u32>(f32(r >> 8u) * 0x1p-23 - 1.0); }
    if (MODE == 3u) { word = r % params.modulus; }
    if (MODE == 5u) { word = bitcast<u32>(f32((r >> 8u) + 1u) * 0x1p-24); }
    if (MODE == 4u) { word = i % params.modulus; }
    target_words[i] = word;
  }
}
