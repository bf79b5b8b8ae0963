/**
 * Huginn's prelude, looped core and coda, models that were retrofitted with it, and Parcae. Their files say
 * `mean_recurrence`: whoever runs them chooses the number of loops.
 */
import { show } from '../../errors.js';
import { LIMITS, received, type Config } from '../config.js';
import type { Geometry } from '../geometry.js';
import { attentionShape, refuseOthers, ropeTheta, weightsOf, type Family } from './fields.js';

const LOOPS = 'mean_recurrence';
const ABOUT: readonly string[] = ['n_layers_in_recurrent_block'];

/** What the three have in common. */
function around(c: Config, modelType: string): { readonly g: Geometry; readonly intermediate: number } {
  const hidden = c.integer(['n_embd', 'hidden_size'], LIMITS.hidden);
  const shape = attentionShape(c, hidden);
  const preludeLayers = c.integer('n_layers_in_prelude', LIMITS.layers, undefined, 0);
  const layers = c.integer('n_layers_in_recurrent_block', LIMITS.layers);
  const codaLayers = c.integer('n_layers_in_coda', LIMITS.layers, undefined, 0);
  const total = c.get('n_layers');
  if (total !== undefined && total !== preludeLayers + layers + codaLayers) {
    c.refuse(
      `n_layers must be the sum of prelude, recurrent block and coda (${preludeLayers + layers + codaLayers}), ` +
        `${received(total)}`,
      'correct n_layers',
    );
  }
  const intermediate = c.integer('intermediate_size', LIMITS.mlp);
  const { fields, note } = weightsOf(c, hidden);
  return {
    intermediate,
    g: {
      name: c.name,
      preludeLayers,
      layers,
      codaLayers,
      loops: c.integer(LOOPS, LIMITS.loops),
      loopsAreChosen: true,
      ...shape,
      hidden,
      mlpHidden: intermediate,
      mlp: 'gated',
      vocab: c.integer(['padded_vocab_size', 'vocab_size'], LIMITS.vocab),
      tiedEmbeddings: c.boolean(c.get('tie_embeddings') === undefined ? 'tie_word_embeddings' : 'tie_embeddings', true),
      normsPerLayer: 2,
      extraParametersPerLayer: 0,
      adapter: true,
      normAfterEachLoop: false,
      exitGate: false,
      rope: { theta: ropeTheta(c, ['rope_base']), pairing: 'adjacent' },
      maxPositions: c.integer(['max_position_embeddings', 'block_size'], LIMITS.positions),
      ...fields,
      source: `config.json (${modelType})${note}`,
    },
  };
}

/** Vocabularies by which the bases of retrofitted models are known: their files do not say it. */
const OLMO_2 = 100_352;
const GEMMA_2 = 256_000;

/**
 * Models whose layers are those of their base (arXiv 2511.07384), though the file names Huginn's blocks. What the file
 * leaves out (norms of OLMo-2's queries and keys, Gemma-2's two more norms) is told by the vocabulary; it is under
 * 0.01 % of the weights.
 */
function retrofitted(c: Config, g: Geometry): Geometry {
  const base: Partial<Geometry> =
    g.vocab === OLMO_2
      ? { normsOfBranches: true, extraParametersPerLayer: (g.heads + g.kvHeads) * g.headDim }
      : g.vocab === GEMMA_2
        ? { normsPerLayer: 4 }
        : {};
  const theta = ropeTheta(c, ['rope_theta', 'rope_base']);
  return { ...g, ...base, rope: { theta, pairing: 'half-split' } };
}

export const huginn: Family = {
  architecture: /^raven/i,
  loops: LOOPS,
  about: ABOUT,
  read: (c, modelType) => {
    refuseOthers(
      c,
      [
        ['block_class_name', 'SandwichBlock'],
        ['mlp_class_name', 'GatedMLP'],
        ['norm_class_name', 'RMSNorm_llama'],
        ['injection_type', 'linear'],
        ['bias', false],
      ],
      'huginn-0125',
    );
    const { g } = around(c, modelType);
    if (!c.boolean('qk_bias', true)) return retrofitted(c, g);
    return {
      ...g,
      normsPerLayer: 4,
      outputNorm: 'sum',
      extraParametersPerLayer: (g.heads + g.kvHeads) * g.headDim, // qk_bias
      normAfterCore: true,
    };
  },
};

/** Inputs of the gate of value embeddings, of each KV head. */
const VALUE_GATE_INPUTS = 32;

/**
 * Parcae (sandyresearch/parcae at dee8363). Every second layer, the last one included, adds a token's value embedding
 * to its values; of the layers that do, mixer.py and parcae.py count those of the core once a trained loop and once.
 * Beside the injection there is a hidden → hidden projection after the core, and a norm after the prelude.
 */
function parcaeExtras(c: Config, g: Geometry): number {
  const { preludeLayers: prelude, layers, codaLayers: coda, hidden, kvHeads, headDim } = g;
  const all = prelude + layers + coda;
  const embeddings = Math.ceil(all / 2) * g.vocab * kvHeads * headDim;
  const counted = layers * c.integer('mean_backprop_depth', LIMITS.loops, 8);
  const ids = [
    ...Array.from({ length: prelude + layers }, (_, i) => i),
    ...Array.from({ length: coda }, (_, i) => i + prelude + layers * g.loops),
  ];
  const gates = ids.filter((id) => id % 2 === (counted - 1) % 2).length * VALUE_GATE_INPUTS * kvHeads;
  const decay = g.adapter === 'input' ? 2 * hidden : 0;
  return embeddings + gates + decay + hidden * hidden + (c.boolean('prelude_norm', false) ? hidden : 0);
}

export const PARCAE_CLASS = 'ParcaeConfig';

export const parcae: Family = {
  architecture: null,
  loops: LOOPS,
  about: [
    ...ABOUT,
    'recurrent_embedding_dimension',
    'recurrent_intermediation_embedding_dimension',
    'recurrent_num_attention_heads',
    'recurrent_iteration_method',
  ],
  read: (c) => {
    const { g, intermediate } = around(c, PARCAE_CLASS);
    refuseOthers(
      c,
      [
        ['block_class_name', 'TransformerPreNormBlock'],
        ['norm_class_name', 'RMSNorm'],
        ['bias', false],
        ['qk_bias', false],
        ['recurrent_embedding_dimension', g.hidden],
        ['recurrent_intermediation_embedding_dimension', intermediate],
        ['recurrent_num_attention_heads', g.heads],
        ['num_key_value_heads', g.heads],
      ],
      'parcae-140m',
    );
    const injections = { diagonal: 'input', linear: true } as const;
    const injection = c.get('injection_type') ?? 'diagonal';
    const adapter = Object.entries(injections).find(([name]) => name === injection)?.[1];
    const mlps = { BaseMLP: 'plain', GatedMLP: 'gated' } as const;
    const mlp = Object.entries(mlps).find(([name]) => name === (c.get('mlp_class_name') ?? 'BaseMLP'))?.[1];
    if (adapter === undefined || mlp === undefined)
      return c.refuse(
        `injection_type must be diagonal or linear and mlp_class_name BaseMLP or GatedMLP, not ${show(injection)} ` +
          `and ${show(c.get('mlp_class_name'))}`,
        'give the config.json of a published Parcae model',
      );
    const settings = c.get('rope_settings') === undefined ? c : c.object('rope_settings');
    const shaped: Geometry = {
      ...g,
      tiedEmbeddings: c.boolean('tie_embeddings', false),
      mlp,
      adapter,
      rope: { theta: ropeTheta(settings, ['rope_base'], 50_000), pairing: 'adjacent' },
    };
    return { ...shaped, extraParameters: parcaeExtras(c, shaped) };
  },
};
