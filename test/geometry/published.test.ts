/** Bytes of published models as others count them: authors of servers, their pull requests, model cards. */
import { describe, expect, it } from 'vitest';
import { bytesPerToken, windowBytes } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { weightBytes } from '../../src/cost/memory.js';
import { parameterCount, type Geometry, windowScalars } from '../../src/geometry/geometry.js';
import { geometryFromConfig } from '../../src/geometry/hf-config.js';
import { findPreset, withLoops } from '../../src/geometry/presets.js';
import {
  HRM_TEXT,
  IQUEST_LOOP,
  KOHRM,
  LOOPCODER_V2,
  LOOPUS,
  LUMMA,
  MIMIR,
  NANBEIGE,
  NANDI,
  OURO,
  PARCAE_140M,
  PARCAE_1_3B,
  PARCAE_370M,
  PARCAE_770M,
  RECURRENT_GEMMA,
  RECURRENT_LLAMA,
  RECURRENT_OLMO,
  RECURRENT_TINYLLAMA,
} from './configs.js';

const KIB = 1024;
const MIB = 1024 * KIB;

const layout = (g: Geometry) =>
  layoutOf(g, { kind: 'full' }, 'full', { storage: 'f16', groupSize: 64 }, { width: 0, perHead: false });
const read = (config: object): Geometry => geometryFromConfig(config, 'm');
/** Bytes of a token in a 16-bit cache, windows left out. */
const cached = (g: Geometry): number => bytesPerToken(layout(g));

describe('bytes of a token, as others count them', () => {
  it.each([
    // llama.cpp pull request 27625: 128 cache slots, about 3072 MiB at a context of 4096 in F16.
    ['Mimir-1B', MIMIR, (3072 * MIB) / 4096],
    // The same in AutoTuner's audit of llama.cpp b11030: 128 × 12 × (128 + 128) × 2 = 786,432 bytes a token.
    ['HRM-Text-1B', HRM_TEXT, 786_432],
    ['KoHRM-1.4B', KOHRM, 786_432],
    // ThinkFlowLab/vllm-rlt, docs/kv_layout_computation.md: 196,608 bytes a token and depth, four depths.
    ['Ouro-1.4B', OURO, 4 * 196_608],
    // A server's test of mlx-community/Ouro-2.6B-4bit: 4 × 48 = 192 cache layers of 16 heads × 128.
    ['Ouro-2.6B', { ...OURO, num_hidden_layers: 48, layer_types: undefined }, 192 * 2 * 16 * 128 * 2],
    // osaurus-ai/vmlx-swift pull request 192, llama.cpp 25994, SGLang 32151: 44 independent slots of 8 heads × 128.
    ['Nanbeige4.2-3B', NANBEIGE, 44 * 2 * 8 * 128 * 2],
    // vLLM pull request 31575 and mlx-lm's iquestloopcoder.py: 80 full caches (and 80 rotating ones) of 8 heads × 128.
    ['IQuest-Coder-V1-40B-Loop', IQUEST_LOOP, 320 * KIB],
    ['LoopCoder-V2', LOOPCODER_V2, 56 * KIB],
    // transformers pull request 45101: num_hidden_layers × repeats virtual slots of 4 heads × 52.
    ['Nandi-Mini-150M', NANDI, 32 * 2 * 4 * 52 * 2],
    // transformers pull request 47929, kv_cache_mode "shared": raw K of 8 heads × 90 in 30 layers, an empty V.
    ['Lumma-0.6B', LUMMA, 30 * 8 * 90 * 2],
    // The same in vLLM's lumma.py: K, and V as a copy.
    ['Lumma-0.6B with copies', { ...LUMMA, kv_cache_mode: 'vanilla' }, 30 * 8 * 90 * 4],
    // Thrillcrazyer/LoopUS: 2 + 25 × 20 + 1 of Qwen3-1.7B's layers, 8 heads × 128.
    ['LoopUS Qwen3-1.7B', LOOPUS, 503 * 2 * 8 * 128 * 2],
    // arXiv 2511.07384 and its checkpoints at 32 steps: prelude 4, core 6 (TinyLlama 8), coda 4.
    ['Recurrent-Llama-3.2', RECURRENT_LLAMA, 400 * KIB],
    ['Recurrent-OLMo-2', RECURRENT_OLMO, 1600 * KIB],
    ['Recurrent-TinyLlama', RECURRENT_TINYLLAMA, 264 * KIB],
    ['Recurrent-Gemma-2 at 16 steps', RECURRENT_GEMMA, 416 * KIB],
    // sandyresearch/parcae: n + 8·n + n layers of heads × 128.
    ['Parcae-140M', PARCAE_140M, 60 * KIB],
    ['Parcae-370M', PARCAE_370M, 160 * KIB],
    ['Parcae-770M', PARCAE_770M, 300 * KIB],
    ['Parcae-1.3B', PARCAE_1_3B, 480 * KIB],
  ] as const)('%s', (_name, config, bytes) => {
    expect(cached(read(config))).toBe(bytes);
  });

  it.each([
    [4, 64],
    [8, 112],
    [16, 208],
    [32, 400],
  ])('Recurrent-Llama-3.2 that was trained at %i steps keeps %i KiB a token', (loops, kib) => {
    expect(cached(read({ ...RECURRENT_LLAMA, mean_recurrence: loops }))).toBe(kib * KIB);
    expect(cached(findPreset(`smcleish/Recurrent-Llama-3.2-train-recurrence-${loops}`))).toBe(kib * KIB);
    expect(cached(withLoops(findPreset('recurrent-llama-3.2-1b'), loops))).toBe(kib * KIB);
  });
});

describe('bytes of a sequence in windows of later loops', () => {
  it.each([
    // mlx-lm: 80 rotating caches of 64 tokens. LoopCoder-V2: 14.
    ['IQuest-Coder-V1-40B-Loop', IQUEST_LOOP, 20 * MIB],
    ['LoopCoder-V2', LOOPCODER_V2, 3.5 * MIB],
    ['IQuest-Coder-V1-40B-Loop-Thinking', { ...IQUEST_LOOP, loop_window_size: 8192 }, 2560 * MIB],
    ['Ouro-1.4B', OURO, 0],
  ] as const)('%s', (_name, config, bytes) => {
    expect(windowBytes(layout(read(config)), 131_072)).toBe(bytes);
    expect(2 * windowScalars(read(config))).toBe(bytes);
  });

  it('are no more than a short sequence has', () => {
    expect(windowBytes(layout(read(IQUEST_LOOP)), 32)).toBe(10 * MIB);
  });
});

// Exact counts: presets.test.ts.
describe('parameters and bytes of weights, as published', () => {
  it.each([
    // [low, high] of the rounded figure in the name or on the card.
    ['mimir-1b', 2 * 3.55e9, 2 * 3.65e9, 4], // BF16 GGUF of 3.6 GB
    ['lumma-0.6b', 648.5e6, 649.5e6, 1], // 649M
    ['nandi-mini-150m', 152.5e6, 153.5e6, 1], // 153M
    ['parcae-140m', 135e6, 145e6, 1],
    ['parcae-370m', 365e6, 395e6, 1],
    ['parcae-770m', 765e6, 785e6, 1],
    ['parcae-1.3b', 1.25e9, 1.35e9, 1],
    ['recurrent-gemma-2-2b', 2.25e9, 2.35e9, 1], // ~2.3B
    ['iquest-coder-v1-40b-loop', 39.5e9, 40.5e9, 1],
    ['iquest-coder-v1-40b-loop', 74 * 2 ** 30, 75 * 2 ** 30, 2], // F16 GGUF of 75 GB, as ls rounds GiB up
    ['loopcoder-v2-7b', 6.5e9, 7.7e9, 1], // approximately 7B
  ])('%s lies at its rounded count', (name, low, high, factor) => {
    const count = factor * parameterCount(findPreset(name));
    expect(count).toBeGreaterThan(low);
    expect(count).toBeLessThan(high);
  });

  it.each([
    // mlx-community/Ouro-1.4B-4bit: model.safetensors of 807 MB; Ouro-2.6B-4bit: 1.5 GB. The exit gate is in 8 bits.
    ['Ouro-1.4B', OURO, 806.5e6, 807.5e6],
    ['Ouro-2.6B', { ...OURO, num_hidden_layers: 48, layer_types: undefined }, 1.45e9, 1.55e9],
    // mlx-community/IQuest-Coder-V1-40B-Loop-Instruct-4bit: 22.4 GB.
    ['IQuest-Coder-V1-40B-Loop', IQUEST_LOOP, 22.35e9, 22.45e9],
  ] as const)('%s in 4 bits (mlx) takes its published bytes, and caches as before', (_name, config, low, high) => {
    const quantization = { group_size: 64, bits: 4, mode: 'affine' };
    const g = read({ ...config, quantization, quantization_config: quantization });
    expect(weightBytes(g, 1)).toBeGreaterThan(low);
    expect(weightBytes(g, 1)).toBeLessThan(high);
    expect(cached(g)).toBe(cached(read(config)));
  });
});

describe('formats of quantised weights', () => {
  const layers = 24 * 2048 * (4 * 2048 + 3 * 5632);
  /** Bits of a projection's scalar, out of the bytes. */
  const bits = (quantization_config: object): number => {
    const whole = weightBytes(read(OURO), 1);
    const quantised = weightBytes(read({ ...OURO, quantization_config }), 1);
    return 16 - ((whole - quantised) * 8) / layers;
  };
  it.each([
    [{ quant_method: 'awq', bits: 4, group_size: 128, zero_point: true, version: 'gemm' }, 4 + 20 / 128],
    [{ quant_method: 'gptq', bits: 4, group_size: 128, sym: true, desc_act: false }, 4 + 20 / 128],
    [{ quant_method: 'gptq', bits: 8, group_size: -1 }, 8 + 24 / 2048],
    [{ quant_method: 'auto-round', bits: 4, group_size: 64, sym: true }, 4 + 20 / 64],
    [{ quant_method: 'bitsandbytes', load_in_4bit: true, bnb_4bit_quant_type: 'nf4' }, 4.5],
    [{ quant_method: 'bitsandbytes', load_in_4bit: true, bnb_4bit_use_double_quant: true }, 4 + 8 / 64 + 32 / 16_384],
    [{ quant_method: 'bitsandbytes', load_in_8bit: true }, 8 + 32 / 2048],
    [{ quant_method: 'fp8', activation_scheme: 'dynamic' }, 8],
    [
      {
        quant_method: 'compressed-tensors',
        config_groups: { group_0: { weights: { num_bits: 4, group_size: 32, symmetric: true } } },
        ignore: ['lm_head'],
      },
      4.5,
    ],
  ])('%j', (config, expected) => {
    expect(bits(config)).toBeCloseTo(expected, 3);
  });

  it.each([
    [{ quant_method: 'exl3', bits: 3.5 }, /quant_method "exl3", whose bytes are not known/],
    [{ bits: 4, group_size: 64, mode: 'mxfp4' }, /mode must be "affine"/],
    [{ quant_method: 'awq', bits: 4.5, group_size: 128 }, /bits must be a whole number/],
    [{ quant_method: 'awq', bits: 4, group_size: 0 }, /group_size must be/],
    [{ quant_method: 'compressed-tensors', config_groups: { a: {}, b: {} } }, /one group, not 2/],
  ])('refuses %j', (config, message) => {
    expect(() => read({ ...OURO, quantization_config: config })).toThrow(message);
  });
});
