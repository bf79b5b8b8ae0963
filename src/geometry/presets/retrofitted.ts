/** Pretrained models that were made to loop: Huginn's scheme around other bases, and LoopUS. */
import type { Geometry } from '../geometry.js';

/** Four layers before the core and four after it, an adapter, and head and embedding apart. */
const AROUND = {
  preludeLayers: 4,
  codaLayers: 4,
  loopsAreChosen: true,
  hidden: 2048,
  mlp: 'gated',
  tiedEmbeddings: false,
  adapter: true,
  normAfterEachLoop: false,
  exitGate: false,
  // smcleish/… holds float32, irafm-llm/… bfloat16.
  weightType: 'bf16',
} as const satisfies Partial<Geometry>;
const PAPER = '(arXiv:2511.07384)';

export const RETROFITTED: readonly Geometry[] = [
  {
    ...AROUND,
    name: 'recurrent-llama-3.2-1b',
    layers: 6,
    loops: 32,
    heads: 32,
    kvHeads: 8,
    headDim: 64,
    mlpHidden: 8192,
    vocab: 128_256,
    normsPerLayer: 2,
    extraParametersPerLayer: 0,
    rope: { theta: 500_000, pairing: 'half-split' },
    maxPositions: 131_072,
    source:
      `huggingface.co/smcleish/Recurrent-Llama-3.2-train-recurrence-32 ${PAPER}; 1,385,228,288 parameters in its ` +
      'safetensors',
  },
  {
    ...AROUND,
    name: 'recurrent-olmo-2-1b',
    layers: 6,
    loops: 32,
    heads: 16,
    kvHeads: 16,
    headDim: 128,
    mlpHidden: 8192,
    vocab: 100_352,
    normsPerLayer: 2,
    normsOfBranches: true,
    extraParametersPerLayer: 2 * 2048, // norms of query and key rows
    rope: { theta: 500_000, pairing: 'half-split' },
    maxPositions: 4096,
    source:
      `huggingface.co/smcleish/Recurrent-OLMo-2-0425-train-recurrence-32 ${PAPER}, convert_olmo.py; config.json of ` +
      'allenai/OLMo-2-0425-1B',
  },
  {
    ...AROUND,
    name: 'recurrent-tinyllama-1.1b',
    layers: 8,
    loops: 32,
    heads: 32,
    kvHeads: 4,
    headDim: 64,
    mlpHidden: 5632,
    vocab: 32_000,
    normsPerLayer: 2,
    extraParametersPerLayer: 0,
    rope: { theta: 10_000, pairing: 'half-split' },
    maxPositions: 2048,
    source: `huggingface.co/smcleish/Recurrent-TinyLlama-3T-train-recurrence-32 ${PAPER}, convert_llama.py (4 + 8 + 4)`,
  },
  {
    ...AROUND,
    name: 'recurrent-gemma-2-2b',
    layers: 6,
    loops: 16,
    heads: 8,
    kvHeads: 4,
    headDim: 256,
    hidden: 2304,
    mlpHidden: 9216,
    vocab: 256_000,
    normsPerLayer: 4,
    extraParametersPerLayer: 0,
    rope: { theta: 10_000, pairing: 'half-split' },
    maxPositions: 8192,
    source:
      'huggingface.co/irafm-llm/Recurrent-Gemma-2-2b model card (4 + 6 + 4, about 2.3 B parameters); config.json ' +
      'of google/gemma-2-2b; rows of all tokens in every layer',
  },
  {
    name: 'loopus-qwen3-1.7b',
    preludeLayers: 2,
    layers: 25,
    codaLayers: 1,
    loops: 20,
    loopsAreChosen: true,
    heads: 16,
    kvHeads: 8,
    headDim: 128,
    hidden: 2048,
    mlpHidden: 6144,
    mlp: 'gated',
    vocab: 151_936,
    tiedEmbeddings: false,
    normsPerLayer: 2,
    extraParametersPerLayer: 256, // norms of query and key heads
    changeRank: 128,
    extraParameters: 2 * 128 * 2048 + 5 * 2048 + 1, // gate after each loop, head that tells when to stop
    adapter: false,
    normAfterEachLoop: false,
    exitGate: false,
    rope: { theta: 1_000_000, pairing: 'half-split' },
    maxPositions: 40_960,
    weightType: 'bf16',
    source:
      'github.com/Thrillcrazyer/LoopUS at 349669d, README.md and models/modeling_lds.py ' +
      '(huggingface.co/Thrillcrazyer/Qwen3_1.7B_LoopUS); config.json of Qwen/Qwen3-1.7B',
  },
];
