/** Families whose loops are not one stack of layers: HRM-Text's two, and a base that LoopUS cut in three. */
import { show } from '../../errors.js';
import { LIMITS, received, type Config } from '../config.js';
import { refuseLoops, refuseUnsupported } from '../refusals.js';
import { BASES, llamaShaped } from './llama.js';
import { ropeTheta, weightsOf, type Family } from './fields.js';

/**
 * Layers of both stacks by the hidden width of the sizes that sapientinc/HRM-Text publishes (config/arch/size). A file
 * without `num_layers_per_stack` gives those of both, or of one.
 */
const HRM_LAYERS: Readonly<Record<number, number>> = { 1024: 12, 1280: 24, 1536: 32, 1792: 72, 2560: 32 };

/**
 * Layers of a stack, in the three spellings of published files: as such; those of both stacks (KoHRM); every run of a
 * layer, as transformers saves it, with `num_layers_per_stack` beside.
 * @returns `both`: the file counts both stacks
 */
function layersPerStack(c: Config, hidden: number): { readonly layers: number; readonly both: boolean } {
  if (c.get('num_layers_per_stack') !== undefined)
    return { layers: c.integer('num_layers_per_stack', LIMITS.layers), both: false };
  const said = c.integer('num_hidden_layers', LIMITS.layers);
  const known = HRM_LAYERS[hidden];
  if (known !== undefined && said === known / 2) return { layers: said, both: false };
  if (known !== undefined && said === known) return { layers: said / 2, both: true };
  return c.refuse(
    `num_hidden_layers (${said}) may count the layers of one stack, of both, or their runs: num_layers_per_stack ` +
      'is missing',
    'add num_layers_per_stack',
  );
}

/**
 * HRM-Text (transformers, modular_hrm_text.py): `H_cycles` times, `L_cycles` runs of the low stack and one of the high
 * one; every run has rows of its own. Attention has as many KV heads as heads, whatever the file says. Its mask lets
 * prompts be read in both directions, which rules out their prefill in chunks and shared prefixes.
 */
export const hrmText: Family = {
  architecture: /^hrmtext/i,
  loops: 'H_cycles',
  about: ['L_cycles', 'L_bp_cycles', 'num_layers_per_stack'],
  read: (c, modelType) => {
    const hidden = c.integer('hidden_size', LIMITS.hidden);
    const heads = c.integer('num_attention_heads', LIMITS.heads);
    const headDim = c.integer('head_dim', LIMITS.headDim, 128, 2);
    const { layers, both } = layersPerStack(c, hidden);
    const stacks = [
      { layers, runs: c.integer('L_cycles', LIMITS.loops, 3) },
      { layers, runs: 1 },
    ];
    const { fields, note } = weightsOf(c, hidden);
    for (const key of ['attention_bias', 'mlp_bias'])
      if (c.on(key))
        c.refuse(`${key} must be false as in HRM-Text-1B; other layouts are not modelled`, `correct ${key}`);
    return {
      name: c.name,
      preludeLayers: 0,
      layers: stacks.reduce((sum, stack) => sum + stack.layers * stack.runs, 0),
      codaLayers: 0,
      loops: c.integer('H_cycles', LIMITS.loops, 2),
      stacks,
      heads,
      kvHeads: heads,
      headDim,
      hidden,
      mlpHidden: c.integer('intermediate_size', LIMITS.mlp),
      mlp: 'gated',
      vocab: c.integer('vocab_size', LIMITS.vocab),
      tiedEmbeddings: c.boolean('tie_word_embeddings', false),
      normsPerLayer: 2,
      promptsBothWays: true,
      plainNorms: true,
      extraParametersPerLayer: 0,
      attentionGate: true,
      // The low stack's first state, which the converter of files that count both stacks leaves out.
      ...(both ? {} : { extraParameters: hidden }),
      adapter: false,
      normAfterEachLoop: true,
      exitGate: false,
      rope: { theta: ropeTheta(c, ['rope_theta']), pairing: 'half-split' },
      maxPositions: c.integer('max_position_embeddings', LIMITS.positions),
      ...fields,
      source:
        `config.json (${modelType}; prompts are read in both directions: no prefill in chunks, no shared ` +
        `prefixes)${note}`,
    };
  },
};

/** Layers that a list names. */
function indices(c: Config, key: string, all: number): readonly number[] {
  const list = c.get(key) ?? [];
  if (!Array.isArray(list)) return c.refuse(`${key} must be a list of layers, ${received(list)}`, `correct ${key}`);
  const numbers = list as unknown[];
  const wrong = numbers.find((i) => typeof i !== 'number' || !Number.isInteger(i) || i < 0 || i >= all);
  if (wrong !== undefined || new Set(numbers).size !== numbers.length)
    c.refuse(`${key} must name layers from 0 to ${all - 1}, each once, not ${show(numbers)}`, `correct ${key}`);
  return numbers as readonly number[];
}

/** Inputs of the projection in the middle of LoopUS's gate: a sixteenth of the width (SelectiveGate). */
const GATE_SHARE = 16;

/**
 * LoopUS (Thrillcrazyer/LoopUS at 349669d): a pretrained base cut in encoder, reasoning layers, which run `N` times,
 * and decoder. Beside its layers it has a gate after each loop and a head that tells when to stop.
 */
export const lds: Family = {
  architecture: /^lds/i,
  loops: 'N',
  about: ['reasoning_layer_indices'],
  read: (c, modelType) => {
    const base = c.object('base_config_dict');
    const baseType = base.get('model_type');
    const layer = typeof baseType === 'string' && Object.hasOwn(BASES, baseType) ? BASES[baseType] : undefined;
    if (!layer)
      return c.refuse(
        `base_config_dict must be of model_type ${Object.keys(BASES).join(', ')}, ${received(baseType)}`,
        'give the config.json of a published LoopUS model',
      );
    refuseUnsupported(base);
    refuseLoops(base);
    const g = llamaShaped(base, modelType, layer);
    const [before, looped, after] = ['encoder', 'reasoning', 'decoder'].map((part) =>
      indices(c, `${part}_layer_indices`, g.layers),
    ) as [readonly number[], readonly number[], readonly number[]];
    const named = [...before, ...looped, ...after];
    if (looped.length === 0 || named.length !== g.layers || new Set(named).size !== named.length)
      c.refuse(
        `encoder_, reasoning_ and decoder_layer_indices must name each of the ${g.layers} layers once`,
        'give the config.json of a published LoopUS model',
      );
    const rank = Math.ceil(g.hidden / GATE_SHARE);
    return {
      ...g,
      name: c.name,
      preludeLayers: before.length,
      layers: looped.length,
      codaLayers: after.length,
      loops: c.integer('N', LIMITS.loops),
      loopsAreChosen: true,
      tiedEmbeddings: false,
      changeRank: rank,
      extraParameters: 2 * rank * g.hidden + 2 * g.hidden + 3 * g.hidden + 1,
    };
  },
};
