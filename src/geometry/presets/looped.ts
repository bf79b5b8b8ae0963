/**
 * Models that loop over all layers, or over a core between prelude and coda: Ouro, Huginn, Nanbeige, HRM-Text, Parcae.
 */
import type { Geometry } from '../geometry.js';

/** What the two Ouro sizes share; they differ in depth only. */
const OURO = {
  preludeLayers: 0,
  codaLayers: 0,
  loops: 4,
  loopsAreChosen: true,
  heads: 16,
  kvHeads: 16,
  headDim: 128,
  hidden: 2048,
  mlpHidden: 5632,
  mlp: 'gated',
  vocab: 49152,
  tiedEmbeddings: false,
  normsPerLayer: 4,
  extraParametersPerLayer: 0,
  adapter: false,
  normAfterEachLoop: true,
  exitGate: true,
  rope: { theta: 1_000_000, pairing: 'half-split' },
  maxPositions: 65_536,
  weightType: 'bf16',
} as const satisfies Partial<Geometry>;

/** Two stacks of HRM-Text-1B's size; published models differ in their vocabulary. */
const HRM_TEXT = {
  preludeLayers: 0,
  layers: 64,
  codaLayers: 0,
  loops: 2,
  stacks: [
    { layers: 16, runs: 3 },
    { layers: 16, runs: 1 },
  ],
  heads: 12,
  kvHeads: 12,
  headDim: 128,
  hidden: 1536,
  mlpHidden: 4096,
  mlp: 'gated',
  tiedEmbeddings: false,
  normsPerLayer: 2,
  promptsBothWays: true,
  plainNorms: true,
  extraParametersPerLayer: 0,
  attentionGate: true,
  adapter: false,
  normAfterEachLoop: true,
  exitGate: false,
  rope: { theta: 10_000, pairing: 'half-split' },
  maxPositions: 4096,
  weightType: 'bf16',
} as const satisfies Partial<Geometry>;
const PREFIX_LM = 'prompts are read in both directions: no prefill in chunks, no shared prefixes';

/**
 * Parcae: `depth` layers before, in and after the core. Beside the layers: a value embedding for every second layer
 * with its gate, the injection's decay, a projection after the core and a norm after the prelude.
 */
function parcae(name: string, depth: number, hidden: number, gates: number): Geometry {
  const [vocab, heads] = [32_768, hidden / 128];
  return {
    name,
    preludeLayers: depth,
    layers: depth,
    codaLayers: depth,
    loops: 8,
    loopsAreChosen: true,
    heads,
    kvHeads: heads,
    headDim: 128,
    hidden,
    mlpHidden: 4 * hidden,
    mlp: 'plain',
    vocab,
    tiedEmbeddings: true,
    normsPerLayer: 2,
    extraParametersPerLayer: 0,
    extraParameters: ((3 * depth) / 2) * vocab * hidden + gates * 32 * heads + hidden * hidden + 3 * hidden,
    adapter: 'input',
    normAfterEachLoop: false,
    exitGate: false,
    rope: { theta: 50_000, pairing: 'adjacent' },
    maxPositions: 2048,
    // Trained in bfloat16; what the shards hold is not known here.
    weightType: 'bf16',
    source:
      'github.com/sandyresearch/parcae at dee8363, parcae_lm/configs/parcae and models/parcae/parcae.py ' +
      '(huggingface.co/SandyResearch)',
  };
}

export const LOOPED: readonly Geometry[] = [
  {
    ...OURO,
    name: 'ouro-1.4b',
    layers: 24,
    source:
      'huggingface.co/ByteDance/Ouro-1.4B config.json and modeling_ouro.py; 1,434,652,673 parameters in its ' +
      'safetensors',
  },
  // Of the same shape, but another checkpoint: nothing is published about its compressed caches.
  {
    ...OURO,
    name: 'ouro-1.4b-thinking',
    layers: 24,
    source: 'huggingface.co/ByteDance/Ouro-1.4B-Thinking config.json; the shape of Ouro-1.4B',
  },
  {
    ...OURO,
    name: 'ouro-2.6b',
    layers: 48,
    source:
      'huggingface.co/ByteDance/Ouro-2.6B(-Thinking) config.json and modeling_ouro.py; 2,667,974,657 parameters ' +
      'in its safetensors',
  },
  {
    name: 'huginn-3.5b',
    preludeLayers: 2,
    layers: 4,
    codaLayers: 2,
    loops: 32,
    loopsAreChosen: true,
    heads: 55,
    kvHeads: 55,
    headDim: 96,
    hidden: 5280,
    mlpHidden: 17_920,
    mlp: 'gated',
    vocab: 65_536,
    tiedEmbeddings: true,
    normsPerLayer: 4,
    outputNorm: 'sum',
    extraParametersPerLayer: 2 * 55 * 96, // q and k biases
    adapter: true,
    normAfterEachLoop: false,
    normAfterCore: true,
    exitGate: false,
    rope: { theta: 50_000, pairing: 'adjacent' },
    maxPositions: 4096,
    // config.json declares bfloat16 and the model is served so; the published shards hold float32.
    weightType: 'bf16',
    source:
      'huggingface.co/tomg-group-umd/huginn-0125 config.json and raven_modeling_minimal.py; 3,564,976,800 ' +
      'parameters with the tied head counted once',
  },
  {
    name: 'nanbeige4.2-3b',
    preludeLayers: 0,
    layers: 22,
    codaLayers: 0,
    loops: 2,
    heads: 48,
    kvHeads: 8,
    headDim: 128,
    hidden: 3072,
    mlpHidden: 10_752,
    mlp: 'gated',
    vocab: 166_144,
    tiedEmbeddings: false,
    normsPerLayer: 2,
    extraParametersPerLayer: 0,
    adapter: false,
    normAfterEachLoop: true, // skip_loop_final_norm is false
    exitGate: false,
    rope: { theta: 70_000_000, pairing: 'half-split' },
    maxPositions: 262_144,
    weightType: 'bf16',
    source:
      'huggingface.co/Nanbeige/Nanbeige4.2-3B config.json (num_loops 2); 4,169,800,704 parameters in its safetensors',
  },
  {
    ...HRM_TEXT,
    name: 'hrm-text-1b',
    vocab: 65_536,
    extraParameters: 1536, // the low stack's first state
    source:
      'huggingface.co/sapientinc/HRM-Text-1B config.json, transformers modular_hrm_text.py; 1,182,795,264 ' +
      `parameters; ${PREFIX_LM}`,
  },
  {
    ...HRM_TEXT,
    name: 'kohrm-1.4b',
    vocab: 131_072,
    source: `huggingface.co/LLM-OS-Models/KoHRM-Text-1.4B model card; 1,384,120,320 parameters; ${PREFIX_LM}`,
  },
  {
    ...HRM_TEXT,
    name: 'mimir-1b',
    vocab: 262_144,
    extraParameters: 1536,
    source: `huggingface.co/danish-foundation-models/DFM-Mimir, llama.cpp pull request 27625; ${PREFIX_LM}`,
  },
  parcae('parcae-140m', 2, 768, 3),
  parcae('parcae-370m', 4, 1024, 6),
  parcae('parcae-770m', 6, 1280, 9),
  parcae('parcae-1.3b', 8, 1536, 12),
];
