/**
 * Reads the shape of a model from its Hugging Face `config.json`. Only families whose layout was checked against
 * their modelling code are read; everything else is refused, because a wrong number is worse than none.
 */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError, show } from '../errors.js';
import { readTextFile } from '../files.js';
import { parseJson } from '../json.js';
import { type Geometry, parameterCount } from './geometry.js';

/** A config.json is a few KiB; more is some other file. */
const MAX_CONFIG_BYTES = 2 ** 20;
const MAX_CONFIG_VALUES = 200_000;
/** Sanity limits: beyond them a typing error is likelier than a model. */
export const LIMITS = {
  layers: 1000,
  loops: 1024,
  heads: 1024,
  headDim: 1024,
  hidden: 2 ** 17,
  mlp: 2 ** 20,
  vocab: 2 ** 24,
  positions: 2 ** 30,
} as const;
const MAX_PARAMETERS = 1e13;

/** `owner/name` as Hugging Face has it. */
const HUB_ID = /^[a-z0-9][\w.-]{0,95}\/[a-z0-9](?!.*\.json$)[\w.-]{0,95}$/i;

/** Text of arbitrary origin as a display name of at most 64 plain characters. */
export function displayName(text: string): string {
  const clean = text
    .slice(0, 512)
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^[-.]+/, '')
    .slice(0, 64)
    .replace(/[-.]+$/, '');
  return clean === '' ? 'model' : clean;
}

/** A received value for an error message. Never calls a method of the value. */
function received(value: unknown): string {
  if (value === undefined) return 'missing';
  if (value === null || typeof value !== 'object') return `not ${show(value)}`;
  return Array.isArray(value) ? 'not a list' : 'not an object';
}

/** One config with the checks that every family needs; each failure names the file, the key, the rule and the value. */
class Config {
  constructor(
    private readonly fields: object,
    readonly name: string,
  ) {}

  /** The value of an own key; `null` counts as absent, as Hugging Face writes it. */
  get(key: string): unknown {
    const value: unknown = Object.hasOwn(this.fields, key) ? (this.fields as Record<string, unknown>)[key] : undefined;
    return value === null ? undefined : value;
  }

  refuse(what: string, hint: string): never {
    throw new UserError(`config.json of ${this.name}: ${what}`, hint);
  }

  /** A whole number from `min` to `max` under the first key that is present; `fallback` when none is. */
  integer(keys: string | readonly string[], max: number, fallback?: number, min = 1): number {
    const all = typeof keys === 'string' ? [keys] : keys;
    const key = all.find((k) => this.get(k) !== undefined) ?? (all[0] as string);
    const value = this.get(key) ?? fallback;
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
    return this.refuse(
      `${key} must be a whole number from ${min} to ${max}, ${received(value)}`,
      `correct ${key}, or name one of the built-in models`,
    );
  }

  boolean(key: string, fallback: boolean): boolean {
    const value = this.get(key) ?? fallback;
    if (typeof value === 'boolean') return value;
    return this.refuse(`${key} must be true or false, ${received(value)}`, `correct ${key}`);
  }

  /** True where a feature that we do not model is switched on: anything but absent, false, 0, "", [] or {}. */
  on(key: string): boolean {
    const value = this.get(key);
    if (value === undefined || value === false || value === 0 || value === '') return false;
    return typeof value !== 'object' || Object.keys(value as object).length > 0;
  }
}

/** Features whose cache or weights a Geometry cannot express, in any family. */
const UNSUPPORTED: readonly (readonly [what: string, keys: readonly string[]])[] = [
  ['multi-head latent attention', ['kv_lora_rank', 'q_lora_rank']],
  [
    'a hybrid or state-space model',
    [
      'ssm_cfg',
      'mamba_d_state',
      'mamba_d_ssm',
      'state_size',
      'layers_block_type',
      'hybrid_override_pattern',
      'attn_layer_period',
      'linear_num_value_heads',
      'block_types',
    ],
  ],
  [
    'layers that share their cache',
    ['num_kv_shared_layers', 'cla_share_factor', 'cross_attention_layers', 'loop_share_kv'],
  ],
  ['a multimodal model', ['vision_config', 'audio_config', 'text_config', 'thinker_config']],
  [
    'a quantised checkpoint, whose weights are not of its dtype',
    ['quantization_config', 'quantization', 'compression_config'],
  ],
  ['a loop that keeps a sliding window', ['loop_window_size']],
];
const EXPERTS = [
  'num_experts',
  'num_local_experts',
  'n_routed_experts',
  'moe_num_experts',
  'num_experts_per_tok',
  'n_shared_experts',
];
/**
 * Keys by which models say that they loop. One that the family does not read means that the family is not what it says.
 */
const LOOP_KEYS = [
  'total_ut_steps',
  'num_loops',
  'loop_num',
  'n_loops',
  'mean_recurrence',
  'num_recurrent_steps',
  'num_recurrences',
];
const CONVENTIONAL =
  'give the config.json of a model with conventional dense attention, or name one of the built-in models';

function refuseUnsupported(c: Config, loopKey: string | undefined): void {
  for (const [what, keys] of UNSUPPORTED) {
    const key = keys.find((k) => c.on(k));
    if (key !== undefined) c.refuse(`${key} is set, which means ${what}; that is not modelled`, CONVENTIONAL);
  }
  for (const key of EXPERTS) {
    if (c.on(key) && c.get(key) !== 1)
      c.refuse(`${key} is set, which means a mixture of experts; that is not modelled`, CONVENTIONAL);
  }
  for (const key of LOOP_KEYS) {
    if (key !== loopKey && c.on(key) && c.get(key) !== 1 && c.get(key) !== (loopKey && c.get(loopKey))) {
      c.refuse(
        `${key} says that the model loops, but its model_type is not known to`,
        'set model_type to "ouro", "huginn_raven" or "nanbeige" if it has that layout',
      );
    }
  }
  const types = c.get('layer_types');
  if (types !== undefined && !(Array.isArray(types) && types.every((t) => t === 'full_attention'))) {
    c.refuse(
      'layer_types must be "full_attention" throughout; sliding-window, linear and other layers keep another cache, which is not modelled',
      CONVENTIONAL,
    );
  }
  if (c.get('partial_rotary_factor') !== undefined && c.get('partial_rotary_factor') !== 1) {
    c.refuse(
      `partial_rotary_factor must be 1, ${received(c.get('partial_rotary_factor'))}; partly rotated heads are not modelled`,
      CONVENTIONAL,
    );
  }
}

/**
 * Mistral's window is in force whenever set (and its class sets one when the key is absent); elsewhere a switch
 * decides.
 */
function refuseSlidingWindow(c: Config, windowIsDefault: boolean, keyPresent: boolean): void {
  const hint = CONVENTIONAL;
  if (windowIsDefault) {
    if (!keyPresent)
      c.refuse(
        'sliding_window must be stated (null for full attention), missing; the class default is 4096',
        'add "sliding_window": null if the model attends to everything',
      );
    if (c.get('sliding_window') !== undefined)
      c.refuse(
        `sliding_window must be null, ${received(c.get('sliding_window'))}; sliding-window layers keep another cache, which is not modelled`,
        hint,
      );
  } else if (c.boolean('use_sliding_window', false)) {
    c.refuse(
      'use_sliding_window must be false, not true; sliding-window layers keep another cache, which is not modelled',
      hint,
    );
  }
}

function weightType(c: Config): { type: Geometry['weightType']; note: string } {
  const value = c.get('dtype') ?? c.get('torch_dtype');
  if (value === undefined) return { type: 'bf16', note: '; no dtype stated, bf16 assumed' };
  const types: Readonly<Record<string, Geometry['weightType']>> = { bfloat16: 'bf16', float16: 'f16', float32: 'f32' };
  const plain = typeof value === 'string' ? value.replace(/^torch\./, '') : '';
  const type = Object.hasOwn(types, plain) ? types[plain] : undefined;
  return type
    ? { type, note: '' }
    : c.refuse(
        `torch_dtype must be bfloat16, float16 or float32, ${received(value)}`,
        'give the config.json of the unquantised model',
      );
}

function ropeTheta(c: Config, keys: readonly string[]): number {
  const parameters = c.get('rope_parameters');
  const nested =
    typeof parameters === 'object' && parameters !== null
      ? new Config(parameters, c.name).get('rope_theta')
      : undefined;
  const value = keys.map((k) => c.get(k)).find((v) => v !== undefined) ?? nested ?? 10_000;
  if (typeof value === 'number' && value >= 1 && value <= 1e12) return value;
  return c.refuse(`${keys[0]} must be a number from 1 to 1e12, ${received(value)}`, `correct ${keys[0]}`);
}

/** What the Llama-shaped families differ in. */
interface Family {
  readonly architecture: RegExp;
  readonly loops?: string;
  readonly normsPerLayer: 2 | 4;
  readonly exitGate?: boolean;
  /** Biases that the class always has. */
  readonly qkvBias?: boolean;
  /** The class reads `attention_bias` (q, k, v and output projections). */
  readonly attentionBias?: boolean;
  readonly mlpBias?: boolean;
  readonly qkNorm?: boolean;
  /** Class default where it is not hidden / heads. */
  readonly headDim?: number;
  /** The class default of num_key_value_heads is a number, not the query heads: so it must be stated. */
  readonly kvHeadsRequired?: boolean;
  readonly windowIsDefault?: boolean;
}

const FAMILIES: Readonly<Record<string, Family>> = {
  llama: { architecture: /^llama/i, normsPerLayer: 2, attentionBias: true, mlpBias: true },
  mistral: { architecture: /^mistral/i, normsPerLayer: 2, kvHeadsRequired: true, windowIsDefault: true },
  qwen2: { architecture: /^qwen2/i, normsPerLayer: 2, qkvBias: true, kvHeadsRequired: true },
  qwen3: {
    architecture: /^qwen3/i,
    normsPerLayer: 2,
    attentionBias: true,
    qkNorm: true,
    headDim: 128,
    kvHeadsRequired: true,
  },
  ouro: { architecture: /^ouro/i, normsPerLayer: 4, loops: 'total_ut_steps', exitGate: true },
  nanbeige: { architecture: /^nanbeige/i, normsPerLayer: 2, loops: 'num_loops', attentionBias: true, mlpBias: true },
};

/** Values of `model_type` that are read; the last is Huginn's. */
export const MODEL_TYPES: readonly string[] = [...Object.keys(FAMILIES), 'huginn_raven'];

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
  'loop_loss_weights',
];

/** Heads, KV heads and head width, with the divisions that attention needs. */
function attentionShape(
  c: Config,
  hidden: number,
  kvHeadsRequired = false,
  headDimDefault?: number,
  headDimKeys: readonly string[] = ['head_dim'],
): Pick<Geometry, 'heads' | 'kvHeads' | 'headDim'> {
  const heads = c.integer(['num_attention_heads', 'n_heads'], LIMITS.heads);
  const kvHeads = c.integer('num_key_value_heads', LIMITS.heads, kvHeadsRequired ? undefined : heads);
  if (heads % kvHeads !== 0)
    c.refuse(
      `num_attention_heads (${heads}) must be a multiple of num_key_value_heads (${kvHeads})`,
      'correct one of the two',
    );
  if (headDimDefault === undefined && headDimKeys.every((k) => c.get(k) === undefined) && hidden % heads !== 0) {
    c.refuse(
      `the hidden width (${hidden}) must be a multiple of the heads (${heads}) when head_dim is absent`,
      'add head_dim',
    );
  }
  const headDim = c.integer(headDimKeys, LIMITS.headDim, headDimDefault ?? hidden / heads, 2);
  if (headDim % 2 !== 0)
    c.refuse(
      `head_dim must be even, because rotary position embedding turns pairs, not ${headDim}`,
      'correct head_dim',
    );
  return { heads, kvHeads, headDim };
}

function llamaShaped(c: Config, family: Family, modelType: string, hasWindowKey: boolean): Geometry {
  refuseSlidingWindow(c, family.windowIsDefault ?? false, hasWindowKey);
  if (modelType === 'nanbeige') {
    const key = NANBEIGE_OFF.find((k) => c.on(k));
    if (key !== undefined)
      c.refuse(
        `${key} is set, which changes the layers or the loops; only the layout of Nanbeige4.2-3B is modelled`,
        CONVENTIONAL,
      );
  }
  const hidden = c.integer('hidden_size', LIMITS.hidden);
  const mlpHidden = c.integer('intermediate_size', LIMITS.mlp);
  const shape = attentionShape(
    c,
    hidden,
    family.kvHeadsRequired,
    family.headDim,
    modelType === 'nanbeige' ? ['head_dim', 'kv_channels'] : undefined,
  );
  const qkv = (shape.heads + 2 * shape.kvHeads) * shape.headDim;
  const attentionBias = family.attentionBias === true && c.boolean('attention_bias', false);
  const mlpBias = family.mlpBias === true && c.boolean('mlp_bias', false);
  if (!family.attentionBias && c.on('attention_bias'))
    c.refuse(
      'attention_bias is set, but the class of this model_type has no such option',
      'correct attention_bias or model_type',
    );
  const extra =
    (family.qkvBias ? qkv : 0) +
    (attentionBias ? qkv + hidden : 0) +
    (mlpBias ? 2 * mlpHidden + hidden : 0) +
    (family.qkNorm ? 2 * shape.headDim : 0);
  const { type, note } = weightType(c);
  return {
    name: c.name,
    preludeLayers: 0,
    layers: c.integer('num_hidden_layers', LIMITS.layers),
    codaLayers: 0,
    loops: family.loops === undefined ? 1 : c.integer(family.loops, LIMITS.loops),
    ...shape,
    hidden,
    mlpHidden,
    mlp: 'gated',
    vocab: c.integer('vocab_size', LIMITS.vocab),
    tiedEmbeddings: c.boolean('tie_word_embeddings', false), // false is the default of each of these classes
    normsPerLayer: family.normsPerLayer,
    extraParametersPerLayer: extra,
    adapter: false,
    normAfterEachLoop: modelType === 'ouro' || (modelType === 'nanbeige' && !c.boolean('skip_loop_final_norm', false)),
    exitGate: family.exitGate ?? false,
    rope: { theta: ropeTheta(c, ['rope_theta']), pairing: 'half-split' },
    maxPositions: c.integer('max_position_embeddings', LIMITS.positions),
    weightType: type,
    source: `config.json (${modelType})${note}`,
  };
}

/**
 * Huginn's prelude, looped core and coda. Retrofitted models share its model_type with other blocks, so those are
 * refused.
 */
function huginnShaped(c: Config): Geometry {
  const fixed: readonly (readonly [string, unknown])[] = [
    ['block_class_name', 'SandwichBlock'],
    ['mlp_class_name', 'GatedMLP'],
    ['norm_class_name', 'RMSNorm_llama'],
    ['injection_type', 'linear'],
    ['qk_bias', true],
    ['bias', false],
  ];
  for (const [key, expected] of fixed) {
    const value = c.get(key) ?? expected;
    if (value !== expected) {
      const why = 'retrofitted Raven models have other blocks, which their config does not describe';
      c.refuse(
        `${key} must be ${show(expected)} as in huginn-0125, ${received(value)}; ${why}`,
        'name the preset recurrent-llama-3.2-1b if it is that model',
      );
    }
  }
  const hidden = c.integer(['n_embd', 'hidden_size'], LIMITS.hidden);
  const shape = attentionShape(c, hidden);
  const preludeLayers = c.integer('n_layers_in_prelude', LIMITS.layers, undefined, 0);
  const layers = c.integer('n_layers_in_recurrent_block', LIMITS.layers);
  const codaLayers = c.integer('n_layers_in_coda', LIMITS.layers, undefined, 0);
  const total = c.get('n_layers');
  if (total !== undefined && total !== preludeLayers + layers + codaLayers) {
    c.refuse(
      `n_layers must be the sum of prelude, recurrent block and coda (${preludeLayers + layers + codaLayers}), ${received(total)}`,
      'correct n_layers',
    );
  }
  const { type, note } = weightType(c);
  return {
    name: c.name,
    preludeLayers,
    layers,
    codaLayers,
    loops: c.integer('mean_recurrence', LIMITS.loops),
    ...shape,
    hidden,
    mlpHidden: c.integer('intermediate_size', LIMITS.mlp),
    mlp: 'gated',
    vocab: c.integer(['padded_vocab_size', 'vocab_size'], LIMITS.vocab),
    tiedEmbeddings: c.boolean(c.get('tie_embeddings') === undefined ? 'tie_word_embeddings' : 'tie_embeddings', true),
    normsPerLayer: 4,
    outputNorm: 'sum',
    extraParametersPerLayer: (shape.heads + shape.kvHeads) * shape.headDim, // qk_bias
    adapter: true,
    normAfterEachLoop: false,
    normAfterCore: true,
    exitGate: false,
    rope: { theta: ropeTheta(c, ['rope_base']), pairing: 'adjacent' },
    maxPositions: c.integer(['max_position_embeddings', 'block_size'], LIMITS.positions),
    weightType: type,
    source: `config.json (huginn_raven)${note}`,
  };
}

/**
 * The shape that a parsed `config.json` describes.
 * @param json what `JSON.parse` gave
 * @param name of the model, for messages and reports; sanitised here
 * @throws UserError (exit code 2) for every field that is missing, ill-typed or absurd, and for every architecture not
 * modelled
 */
export function geometryFromConfig(json: unknown, name: string): Geometry {
  const shown = displayName(name);
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new UserError(
      `config.json of ${shown} must be a JSON object, ${received(json)}`,
      'give the config.json of a Hugging Face model',
    );
  }
  const c = new Config(json, shown);
  const modelType = c.get('model_type');
  const huginn = modelType === 'huginn_raven';
  const family = typeof modelType === 'string' && Object.hasOwn(FAMILIES, modelType) ? FAMILIES[modelType] : undefined;
  if (!huginn && !family) {
    const hint = 'if the model is built exactly like one of these, copy its config.json and set model_type to that';
    c.refuse(
      `model_type must be one of ${MODEL_TYPES.join(', ')}, ${received(modelType)}; the layout of others is not known here`,
      hint,
    );
  }
  const architectures = c.get('architectures');
  const expected = huginn ? /^raven/i : (family as Family).architecture;
  const list: unknown[] = Array.isArray(architectures) ? architectures : [architectures];
  const stranger = list.find((a) => typeof a !== 'string' || !expected.test(a) || !a.endsWith('ForCausalLM'));
  if (architectures !== undefined && stranger !== undefined) {
    c.refuse(
      `architectures must name the causal language model of model_type ${show(modelType)}, ${received(stranger)}`,
      CONVENTIONAL,
    );
  }
  refuseUnsupported(c, huginn ? 'mean_recurrence' : family?.loops);
  const geometry = huginn
    ? huginnShaped(c)
    : llamaShaped(c, family as Family, modelType as string, Object.hasOwn(json, 'sliding_window'));
  if (parameterCount(geometry) > MAX_PARAMETERS)
    c.refuse('its fields together make more than 10^13 parameters', 'check the sizes for a typing error');
  return geometry;
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/**
 * Reads a model from a `config.json`, or from the folder that holds one. Its name is the last part of
 * `_name_or_path`, or else the folder's.
 * @throws UserError when the path is no such file, is larger than 1 MiB or is not JSON, and as `geometryFromConfig`
 */
export function readModelFile(path: string): Geometry {
  if (path === '-' || path === '')
    throw new UserError(`the model must be a file, not ${show(path)}`, 'write the config to a file and give its path');
  const file = isFolder(path) ? join(path, 'config.json') : path;
  if (HUB_ID.test(path) && !existsSync(path))
    throw new UserError(
      `${show(path)} is no preset and no file here`,
      `if it is a Hugging Face model, download huggingface.co/${path}/resolve/main/config.json and give its path`,
    );
  const json = parseJson(readTextFile(file, 'model file', MAX_CONFIG_BYTES), `model file ${show(file)}`, {
    maxValues: MAX_CONFIG_VALUES,
    hint: 'give the config.json of a Hugging Face model',
    byteOrderMark: 'allowed',
  });
  const said: unknown =
    typeof json === 'object' && json !== null && Object.hasOwn(json, '_name_or_path')
      ? (json as Record<string, unknown>)['_name_or_path']
      : undefined;
  const last = typeof said === 'string' ? basename(said) : '';
  return geometryFromConfig(json, last !== '' ? last : basename(dirname(resolve(file))));
}
