/** Looped models whose shape is known in full. Data only; `parameterCount` of each equals its published count. */
import { nearestName } from '../nearest.js';
import { UserError, show } from '../errors.js';
import type { Geometry } from './geometry.js';

/** What the two Ouro sizes share; they differ in depth only. */
const OURO = {
  preludeLayers: 0,
  codaLayers: 0,
  loops: 4,
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

/** Every model that can be named instead of given as a `config.json`. */
export const PRESETS: readonly Geometry[] = [
  {
    ...OURO,
    name: 'ouro-1.4b',
    layers: 24,
    source:
      'huggingface.co/ByteDance/Ouro-1.4B config.json and modeling_ouro.py; 1,434,652,673 parameters in its safetensors',
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
      'huggingface.co/ByteDance/Ouro-2.6B(-Thinking) config.json and modeling_ouro.py; 2,667,974,657 parameters in its safetensors',
  },
  {
    name: 'huginn-3.5b',
    preludeLayers: 2,
    layers: 4,
    codaLayers: 2,
    loops: 32,
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
      'huggingface.co/tomg-group-umd/huginn-0125 config.json and raven_modeling_minimal.py; 3,564,976,800 parameters with the tied head counted once',
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
    name: 'recurrent-llama-3.2-1b',
    preludeLayers: 4,
    layers: 6,
    codaLayers: 4,
    loops: 32,
    heads: 32,
    kvHeads: 8,
    headDim: 64,
    hidden: 2048,
    mlpHidden: 8192,
    mlp: 'gated',
    vocab: 128_256,
    tiedEmbeddings: false,
    normsPerLayer: 2,
    extraParametersPerLayer: 0,
    adapter: true,
    normAfterEachLoop: false,
    exitGate: false,
    rope: { theta: 500_000, pairing: 'half-split' },
    maxPositions: 131_072,
    // Trained at a mean of 32 steps; smcleish/… holds float32, irafm-llm/Recurrent-Llama-3.2-1B bfloat16.
    weightType: 'bf16',
    source:
      'huggingface.co/smcleish/Recurrent-Llama-3.2-train-recurrence-32 (arXiv:2511.07384); 1,385,228,288 parameters in its safetensors',
  },
];

export const PRESET_NAMES: readonly string[] = PRESETS.map((p) => p.name);

/** Other names that people write, lower case, each to the preset it means. */
const ALIASES: Readonly<Record<string, string>> = {
  'ouro-2.6b-thinking': 'ouro-2.6b',
  huginn: 'huginn-3.5b',
  'huginn-0125': 'huginn-3.5b',
  'nanbeige4.2': 'nanbeige4.2-3b',
  'recurrent-llama-3.2': 'recurrent-llama-3.2-1b',
  'recurrent-llama-3.2-train-recurrence-32': 'recurrent-llama-3.2-1b',
};

/**
 * Hugging Face owners that publish these models; `owner/name` means `name`, while any other `folder/name` is a path.
 */
const OWNER = /^(bytedance|tomg-group-umd|nanbeige|smcleish|irafm-llm)\//;

const targetOf = (name: string): string => {
  const wanted = name.trim().toLowerCase().replace(OWNER, '');
  return (Object.hasOwn(ALIASES, wanted) ? ALIASES[wanted] : undefined) ?? wanted;
};

/** True for the name, alias or Hugging Face id of a preset. Anything else with a slash is a path. */
export const isPreset = (name: string): boolean => PRESET_NAMES.includes(targetOf(name));

/**
 * The preset of this name or alias, case-insensitive, with or without its Hugging Face owner (`ByteDance/Ouro-1.4B`).
 * @throws UserError naming the known presets, and the likeliest one where there is one
 */
export function findPreset(name: string): Geometry {
  const found = PRESETS.find((p) => p.name === targetOf(name));
  if (found) return found;
  const guess = nearestName(name.trim().toLowerCase().replace(OWNER, ''), [...PRESET_NAMES, ...Object.keys(ALIASES)]);
  const did = guess === undefined ? '' : `did you mean ${guess}? `;
  throw new UserError(
    `unknown model ${show(name)}; known models: ${PRESET_NAMES.join(', ')}`,
    `${did}name one of them or give the path of a config.json`,
  );
}
