/** Families built like Llama: attention and a gated MLP between norms, with or without loops over all layers. */
import { LIMITS, received, type Config } from '../config.js';
import { loopGateParameters, type Geometry } from '../geometry.js';
import { refuseSlidingWindow } from '../refusals.js';
import { attentionShape, refuseOptions, ropeTheta, weightsOf, type AttentionDefaults, type Family } from './fields.js';

/** What the Llama-shaped families differ in. */
interface Layer extends AttentionDefaults {
  readonly normsPerLayer?: 4;
  /** Biases that the class always has. */
  readonly qkvBias?: boolean;
  /** The class reads `attention_bias` (q, k, v and output projections). */
  readonly attentionBias?: boolean;
  readonly mlpBias?: boolean;
  readonly qkNorm?: boolean;
  readonly windowIsDefault?: boolean;
  readonly ropeTheta?: number;
  readonly tied?: boolean;
}

/** A model without loops. */
export function llamaShaped(c: Config, modelType: string, layer: Layer): Geometry {
  refuseSlidingWindow(c, layer.windowIsDefault ?? false);
  const hidden = c.integer('hidden_size', LIMITS.hidden);
  const mlpHidden = c.integer('intermediate_size', LIMITS.mlp);
  const shape = attentionShape(c, hidden, layer);
  const qkv = (shape.heads + 2 * shape.kvHeads) * shape.headDim;
  const attentionBias = layer.attentionBias === true && c.boolean('attention_bias', false);
  const mlpBias = layer.mlpBias === true && c.boolean('mlp_bias', false);
  if (!layer.attentionBias && c.on('attention_bias'))
    c.refuse(
      'attention_bias is set, but the class of this model_type has no such option',
      'correct attention_bias or model_type',
    );
  const { fields, note } = weightsOf(c, hidden);
  return {
    name: c.name,
    preludeLayers: 0,
    layers: c.integer('num_hidden_layers', LIMITS.layers),
    codaLayers: 0,
    loops: 1,
    ...shape,
    hidden,
    mlpHidden,
    mlp: 'gated',
    vocab: c.integer('vocab_size', LIMITS.vocab),
    tiedEmbeddings: c.boolean('tie_word_embeddings', layer.tied ?? false),
    normsPerLayer: layer.normsPerLayer ?? 2,
    extraParametersPerLayer:
      (layer.qkvBias ? qkv : 0) +
      (attentionBias ? qkv + hidden : 0) +
      (mlpBias ? 2 * mlpHidden + hidden : 0) +
      (layer.qkNorm ? 2 * shape.headDim : 0),
    adapter: false,
    normAfterEachLoop: false,
    exitGate: false,
    rope: { theta: ropeTheta(c, ['rope_theta'], layer.ropeTheta), pairing: 'half-split' },
    maxPositions: c.integer('max_position_embeddings', LIMITS.positions),
    ...fields,
    source: `config.json (${modelType})${note}`,
  };
}

const plain = (architecture: RegExp, layer: Layer): Family => ({
  architecture,
  loops: null,
  read: (c, modelType) => llamaShaped(c, modelType, layer),
});

const LLAMA: Layer = { attentionBias: true, mlpBias: true };
const QWEN3: Layer = { attentionBias: true, qkNorm: true, headDim: 128, kvHeadsRequired: true };

/** Classes of transformers without loops. */
export const PLAIN: Readonly<Record<string, Family>> = {
  llama: plain(/^llama/i, LLAMA),
  mistral: plain(/^mistral/i, { kvHeadsRequired: true, windowIsDefault: true }),
  qwen2: plain(/^qwen2/i, { qkvBias: true, kvHeadsRequired: true }),
  qwen3: plain(/^qwen3/i, QWEN3),
};

/** Ouro's class counts four loops where the file does not. Its publishers' cards lower the number in the file. */
export const ouro: Family = {
  architecture: /^ouro/i,
  loops: 'total_ut_steps',
  read: (c, modelType) => ({
    ...llamaShaped(c, modelType, { normsPerLayer: 4 }),
    loops: c.integer('total_ut_steps', LIMITS.loops, 4),
    loopsAreChosen: true,
    normAfterEachLoop: true,
    exitGate: true,
  }),
};

/** Options of the Nanbeige class that change its layers or its cache; the published model has none of them. */
const NANBEIGE_OFF = [
  'qk_layernorm',
  'emb_neighbor_num',
  'emb_split_num',
  'ngram_vocab_size_ratio',
  'insert_ngram_layer_idx',
  'ngram_insert_all_layers',
  'enable_double_loop_split',
  'loop_middle_layers',
  'enable_hyper_connection',
  'enable_mhc',
  'enable_depth_attention',
];

/** Loops of `num_loops`, or one more than there are weights of their losses. */
export const nanbeige: Family = {
  architecture: /^nanbeige/i,
  loops: 'num_loops',
  about: ['skip_loop_final_norm', 'loop_loss_weights', ...NANBEIGE_OFF],
  read: (c, modelType) => {
    refuseOptions(c, NANBEIGE_OFF, 'Nanbeige4.2-3B');
    const weights = c.get('loop_loss_weights') ?? [];
    if (!Array.isArray(weights))
      c.refuse(`loop_loss_weights must be a list, ${received(weights)}`, 'correct loop_loss_weights');
    const losses = (weights as unknown[]).length;
    return {
      ...llamaShaped(c, modelType, { ...LLAMA, headDimKeys: ['head_dim', 'kv_channels'] }),
      loops: losses > 0 ? losses + 1 : c.integer('num_loops', LIMITS.loops),
      normAfterEachLoop: !c.boolean('skip_loop_final_norm', false),
    };
  },
};

/**
 * Loops after the first attend to the rows of the first and to a window of their own; a gate of each head, of the query
 * or of the layer's input, mixes the two.
 */
function windowed(g: Geometry, loops: number, window: number, ofInput = false): Geometry {
  if (loops === 1) return g;
  const looped: Geometry = { ...g, loops, laterLoopsWindow: window, ...(ofInput ? { loopGateOfInput: true } : {}) };
  return { ...looped, extraParametersPerLayer: g.extraParametersPerLayer + loopGateParameters(looped) };
}

const CODER: Layer = { attentionBias: true, mlpBias: true, headDim: 128, ropeTheta: 500_000 };

/** IQuest-Coder-Loop (vLLM pull request 31575). */
export const iquestLoop: Family = {
  architecture: /^iquestloopcoder/i,
  loops: 'loop_num',
  about: ['loop_window_size'],
  read: (c, modelType) =>
    windowed(
      llamaShaped(c, modelType, CODER),
      c.integer('loop_num', LIMITS.loops, 2),
      c.integer('loop_window_size', LIMITS.positions, 64),
    ),
};

/** A factor of the loops' inputs; 1 where it is null. */
function factorOf(c: Config, key: string): number {
  const value = c.get(key) ?? 1;
  if (typeof value === 'number' && value > 0 && value <= 100) return value;
  return c.refuse(`${key} must be a number over 0, or null, ${received(value)}`, `correct ${key}`);
}

/**
 * LoopCoder (arXiv 2510.24824, arXiv 2606.18023): embedding and the state of the token before begin a later loop. Its
 * window is [left, right]; the right one is 0.
 */
export const iquestPlt: Family = {
  architecture: /^iquestpltcoder/i,
  loops: 'plt_num_loops',
  about: ['plt_window_size', 'plt_normalize_per_loop', 'plt_emb_scale', 'plt_hidden_scale'],
  read: (c, modelType) => {
    const window = c.get('plt_window_size') ?? [64, 0];
    const [left, right] = Array.isArray(window) ? (window as unknown[]) : [];
    if (typeof left !== 'number' || !Number.isInteger(left) || left < 1 || left > LIMITS.positions || right !== 0)
      c.refuse(`plt_window_size must be [tokens, 0], ${received(window)}`, 'correct plt_window_size');
    const g = llamaShaped(c, modelType, CODER);
    const ofInput = c.boolean('plt_gate_use_hidden_states', false);
    return {
      ...windowed(g, c.integer('plt_num_loops', LIMITS.loops, 2), left as number, ofInput),
      shiftsLoops: { embedding: factorOf(c, 'plt_emb_scale'), state: factorOf(c, 'plt_hidden_scale') },
      normAfterEachLoop: c.boolean('plt_normalize_per_loop', true),
    };
  },
};

/** Embedding and head of a lower rank, each with a projection. */
const factorised = (c: Config, rank: number): Pick<Geometry, 'embeddingRank'> =>
  c.boolean('factorized_embedding', true) ? { embeddingRank: c.integer('embedding_rank', LIMITS.hidden, rank) } : {};

/** Nandi (transformers pull request 45101): each layer runs its repeats in a row, with rows of its own each. */
export const nandi: Family = {
  architecture: /^nandi/i,
  loops: 'layer_sharing_repeats',
  about: ['layer_sharing'],
  read: (c, modelType) => {
    const repeats = c.boolean('layer_sharing', true) ? c.integer('layer_sharing_repeats', LIMITS.loops, 2) : 1;
    return {
      ...llamaShaped(c, modelType, { ...LLAMA, kvHeadsRequired: true, ropeTheta: 100_000, tied: true }),
      ...factorised(c, 196),
      loops: repeats,
      ...(repeats > 1 ? { loopsInRow: true } : {}),
    };
  },
};

/**
 * Lumma (transformers pull request 47929): values are keys before their rotation, which alone its cache keeps, unless
 * `kv_cache_mode` says otherwise. Here `num_hidden_layers` counts repeats of shared layers.
 */
export const lumma: Family = {
  architecture: /^lumma/i,
  loops: null,
  about: ['shared_kv', 'kv_cache_mode', 'layer_sharing', 'layer_sharing_repeats'],
  read: (c, modelType) => {
    refuseOptions(c, ['layer_sharing', 'qk_norm'], 'Lumma-0.6B');
    if (!c.boolean('shared_kv', true))
      c.refuse(
        'shared_kv must be true as in Lumma-0.6B, not false; other layouts are not modelled',
        'correct shared_kv',
      );
    const mode = c.get('kv_cache_mode') ?? 'shared';
    if (mode !== 'shared' && mode !== 'vanilla')
      c.refuse(`kv_cache_mode must be "shared" or "vanilla", ${received(mode)}`, 'correct kv_cache_mode');
    const g = llamaShaped(c, modelType, { ...LLAMA, kvHeadsRequired: true, ropeTheta: 1_000_000, tied: true });
    return {
      ...g,
      ...factorised(c, 512),
      ...(mode === 'shared' ? { valuesAreKeys: true } : { copiesKeys: true }),
      extraParametersPerLayer: g.extraParametersPerLayer + (c.boolean('q_norm', true) ? g.headDim : 0),
    };
  },
};

/** Bases that LoopUS loops: by the model_type of their own config. */
export const BASES: Readonly<Record<string, Layer>> = {
  llama: LLAMA,
  qwen3: QWEN3,
  qwen2: { qkvBias: true },
  // Its window is in force whenever set; Phi-4 has none.
  phi3: { windowIsDefault: true },
};
