/** Models whose loops or caches are not those of one stack: windows in later loops, loops in a row, keys alone. */
import type { Geometry } from '../geometry.js';

const CODER = {
  preludeLayers: 0,
  codaLayers: 0,
  loops: 2,
  laterLoopsWindow: 64,
  heads: 40,
  kvHeads: 8,
  headDim: 128,
  hidden: 5120,
  mlpHidden: 27_648,
  mlp: 'gated',
  vocab: 76_800,
  tiedEmbeddings: false,
  normsPerLayer: 2,
  extraParametersPerLayer: 40 * 129, // a gate of each head: width and bias
  adapter: false,
  exitGate: false,
  rope: { theta: 500_000, pairing: 'half-split' },
  maxPositions: 131_072,
  weightType: 'bf16',
} as const satisfies Partial<Geometry>;

/** Of FrontiersMind: Llama with an embedding of a lower rank. */
const FRONTIERS = {
  preludeLayers: 0,
  codaLayers: 0,
  heads: 16,
  mlp: 'gated',
  vocab: 131_072,
  tiedEmbeddings: true,
  normsPerLayer: 2,
  adapter: false,
  normAfterEachLoop: false,
  exitGate: false,
  weightType: 'bf16',
} as const satisfies Partial<Geometry>;

export const UNLIKE: readonly Geometry[] = [
  {
    ...CODER,
    name: 'iquest-coder-v1-40b-loop',
    layers: 80,
    normAfterEachLoop: false,
    source:
      'huggingface.co/IQuestLab/IQuest-Coder-V1-40B-Loop-Instruct config.json and modeling_iquestloopcoder.py; ' +
      'vLLM pull request 31575',
  },
  {
    ...CODER,
    name: 'loopcoder-v2-7b',
    layers: 14,
    normAfterEachLoop: true, // plt_normalize_per_loop
    loopGateOfInput: true, // plt_gate_use_hidden_states
    extraParametersPerLayer: 40 * 5121 + 5120,
    shiftsLoops: { embedding: 0.707, state: 0.053 },
    source:
      'huggingface.co/Multilingual-Multimodal-NLP/LoopCoder-V2 model card and configuration_iquestpltcoder.py ' +
      '(arXiv:2606.18023); gate and factors of its loops as in alex-place/lantern-os, models/keystone-sigma0-plt, ' +
      'which loads its weights',
  },
  {
    ...FRONTIERS,
    name: 'nandi-mini-150m',
    layers: 16,
    loops: 2,
    loopsInRow: true,
    kvHeads: 4,
    headDim: 52,
    hidden: 832,
    mlpHidden: 2496,
    embeddingRank: 196,
    extraParametersPerLayer: 0,
    rope: { theta: 100_000, pairing: 'half-split' },
    maxPositions: 2048,
    source: 'huggingface.co/FrontiersMind/Nandi-Mini-150M config.json; transformers pull request 45101',
  },
  {
    ...FRONTIERS,
    name: 'lumma-0.6b',
    layers: 30,
    loops: 1,
    valuesAreKeys: true,
    kvHeads: 8,
    headDim: 90,
    hidden: 1440,
    mlpHidden: 3280,
    embeddingRank: 512,
    extraParametersPerLayer: 90, // a norm of query heads
    rope: { theta: 1_000_000, pairing: 'half-split' },
    maxPositions: 12_288,
    source:
      'huggingface.co/FrontiersMind/Lumma-0.6B-Base, transformers pull request 47929: keys alone are cached ' +
      '(kv_cache_mode "shared"); vLLM keeps a copy as values, twice the bytes',
  },
];
