/**
 * The bundled models, `lla-tiny` and `lla-small`: what their folders hold beside the weights, and the weights that
 * training begins with. Layers, tensor names and config.json are Ouro's, so that the code that opens an Ouro checkpoint
 * opens them.
 */
import { modelTensors, type TensorSpec } from '../decoder/tensors.js';
import { fabricate, type TensorSource } from '../decoder/weights.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { geometryFromConfig } from '../geometry/hf-config.js';
import { bundledFolder } from '../geometry/model-file.js';
import { BUNDLED_NAMES, isBundled, type BundledName } from '../geometry/presets.js';
import { WORDS } from './words.js';

/** @throws UserError for another name */
export function bundledName(name: string): BundledName {
  if (!isBundled(name)) throw new UserError(`no bundled model ${name}`, `name one of ${BUNDLED_NAMES.join(', ')}`);
  return name;
}

export const TINY_FOLDER = bundledFolder('lla-tiny');

export const TINY_CONFIG = {
  _name_or_path: 'lla-tiny',
  architectures: ['OuroForCausalLM'],
  model_type: 'ouro',
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  head_dim: 16,
  total_ut_steps: 4,
  early_exit_threshold: 1,
  vocab_size: WORDS.length,
  max_position_embeddings: 1024,
  rope_theta: 10_000,
  rms_norm_eps: 1e-6,
  hidden_act: 'silu',
  tie_word_embeddings: false,
  bos_token_id: 0,
  torch_dtype: 'float32',
};

const SMALL_CONFIG: typeof TINY_CONFIG = {
  ...TINY_CONFIG,
  _name_or_path: 'lla-small',
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 6,
  head_dim: 64,
  torch_dtype: 'float16',
};

export const BUNDLED_CONFIGS: Readonly<Record<BundledName, typeof TINY_CONFIG>> = {
  'lla-tiny': TINY_CONFIG,
  'lla-small': SMALL_CONFIG,
};

/** The shape of a model with the texts' vocabulary. @param changes to config.json, such as grouped heads */
export const tinyGeometry = (changes: Readonly<Record<string, unknown>> = {}): Geometry =>
  geometryFromConfig({ ...TINY_CONFIG, ...changes }, 'lla-tiny');

export const bundledGeometry = (name: BundledName): Geometry => geometryFromConfig(BUNDLED_CONFIGS[name], name);

/** tokenizer.json: a word is a token, `<bos>` begins every text. */
export function tinyTokenizer(): object {
  const special = (id: number): object => ({
    id,
    content: WORDS[id],
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  });
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [special(0), special(1)],
    normalizer: { type: 'Lowercase' },
    pre_tokenizer: { type: 'Whitespace' },
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: WORDS[0], type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [
        { SpecialToken: { id: WORDS[0], type_id: 0 } },
        { Sequence: { id: 'A', type_id: 0 } },
        { Sequence: { id: 'B', type_id: 0 } },
      ],
      special_tokens: { '<bos>': { id: '<bos>', ids: [0], tokens: ['<bos>'] } },
    },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
    // No word has pieces, so a word is found whole or is unknown.
    model: {
      type: 'WordPiece',
      unk_token: '<unk>',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 20,
      vocab: Object.fromEntries(WORDS.map((word, id) => [word, id])),
    },
  };
}

/** Norms after attention and MLP begin small: with 1, eight of them drown the embedding. Of two layers. */
const OUT_NORM = 0.3;

/** Added to every element of the embedding: a direction that all words share, so that heads can attend by position. */
const SHARED = 0.5;

/** What a loop adds has the same variance for any number of layers. */
const initialNorm = (name: string, layers: number): number =>
  name.endsWith('layernorm_2.weight') ? OUT_NORM * Math.sqrt(2 / layers) : 1;

/** Left out of training: the decoder never asks the exit gate. */
export const isTrained = ({ name }: TensorSpec): boolean => !name.startsWith('model.early_exit_gate.');

/**
 * The untrained twin: the same shape with the weights that training begins with. Matrices are fabricated (variance 1 /
 * inputs, embeddings 1 around 0.5), norms are constant, the exit gate is zero.
 */
export function untrainedTwin(g: Geometry = tinyGeometry(), seed = 1): TensorSource {
  const specs = modelTensors(g);
  const byName = new Map(specs.map((spec) => [spec.name, spec]));
  const random = fabricate(specs, { seed, tiedEmbeddings: g.tiedEmbeddings, codec: 'random' });
  return {
    shapes: random.shapes,
    read(name, from, count) {
      const values = random.read(name, from, count);
      const spec = byName.get(name) as TensorSpec;
      if (!isTrained(spec)) return values.fill(0);
      if (spec.role === 'embedding') return values.map((x) => x + SHARED);
      return spec.role === 'norm' ? values.fill(initialNorm(name, g.layers)) : values;
    },
  };
}
