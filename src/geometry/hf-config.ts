/**
 * Reads the shape of a model from its Hugging Face `config.json`. Only families whose layout was checked against
 * their modelling code are read; everything else is refused, because a wrong number is worse than none.
 */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError, show } from '../errors.js';
import { readTextFile } from '../files.js';
import { parseJson } from '../json.js';
import { Config, CONVENTIONAL, displayName, LIMITS, received } from './config.js';
import { type Geometry, parameterCount } from './geometry.js';
import { refuseKnown, refuseLoops, refuseOwnCode, refuseSlidingWindow, refuseUnsupported } from './refusals.js';

/** A config.json is a few KiB; more is some other file. */
const MAX_CONFIG_BYTES = 2 ** 20;
const MAX_CONFIG_VALUES = 200_000;
const MAX_PARAMETERS = 1e13;

/** Lies beside the config.json of TaH models (arXiv 2609.35748), which itself is that of their base. */
const TAH_FILE = 'tah_config.json';

/** `owner/name` as Hugging Face has it. */
const HUB_ID = /^[a-z0-9][\w.-]{0,95}\/[a-z0-9](?!.*\.json$)[\w.-]{0,95}$/i;

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

/** How a family says its loops: the field that counts them, and others about them. */
interface LoopFields {
  readonly count: string;
  readonly about: readonly string[];
}

/** What the Llama-shaped families differ in. */
interface Family {
  readonly architecture: RegExp;
  readonly loops?: LoopFields;
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
  ouro: {
    architecture: /^ouro/i,
    normsPerLayer: 4,
    loops: { count: 'total_ut_steps', about: [] },
    exitGate: true,
  },
  nanbeige: {
    architecture: /^nanbeige/i,
    normsPerLayer: 2,
    loops: { count: 'num_loops', about: ['skip_loop_final_norm', ...NANBEIGE_OFF] },
    attentionBias: true,
    mlpBias: true,
  },
};
const HUGINN_LOOPS: LoopFields = { count: 'mean_recurrence', about: ['n_layers_in_recurrent_block'] };

/** Values of `model_type` that are read; the last is Huginn's. */
export const MODEL_TYPES: readonly string[] = [...Object.keys(FAMILIES), 'huginn_raven'];

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

function llamaShaped(c: Config, family: Family, modelType: string): Geometry {
  refuseSlidingWindow(c, family.windowIsDefault ?? false);
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
    loops: family.loops === undefined ? 1 : c.integer(family.loops.count, LIMITS.loops),
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
        'name a built-in model of the same base and the same mean_recurrence',
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
  refuseKnown(c);
  const modelType = c.get('model_type');
  const huginn = modelType === 'huginn_raven';
  const family = typeof modelType === 'string' && Object.hasOwn(FAMILIES, modelType) ? FAMILIES[modelType] : undefined;
  if (!huginn && !family) {
    refuseLoops(c);
    c.refuse(
      `model_type must be one of ${MODEL_TYPES.join(', ')}, ${received(modelType)}; the layout of others is not known here`,
      CONVENTIONAL,
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
  const loops = huginn ? HUGINN_LOOPS : family?.loops;
  refuseUnsupported(c);
  if (loops) refuseLoops(c, [loops.count, ...loops.about], c.get(loops.count));
  else {
    refuseLoops(c);
    refuseOwnCode(c);
  }
  const geometry = huginn ? huginnShaped(c) : llamaShaped(c, family as Family, modelType as string);
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
  const name = nameOf(json, file);
  if (existsSync(join(dirname(file), TAH_FILE)))
    throw new UserError(
      `${TAH_FILE} beside ${show(file)} says that ${name} runs some of its tokens again, each with rows of its own; how many is not in the file, and such a cache is not planned`,
      `plan the model without it: give a copy of config.json from a folder without ${TAH_FILE}`,
    );
  return geometryFromConfig(json, name);
}

/** The last part of `_name_or_path`, or else the name of the file's folder. */
function nameOf(json: unknown, file: string): string {
  const said: unknown =
    typeof json === 'object' && json !== null && Object.hasOwn(json, '_name_or_path')
      ? (json as Record<string, unknown>)['_name_or_path']
      : undefined;
  const last = typeof said === 'string' ? basename(said) : '';
  return displayName(last !== '' ? last : basename(dirname(resolve(file))));
}
