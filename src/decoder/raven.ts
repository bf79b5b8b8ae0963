/**
 * Huginn's published tensors as those of the decoder, and those of Llamas that were retrofitted with its loops. Names,
 * layout and arithmetic are read from github.com/seal-rg/recurrent-pretraining, recpre/raven_modeling_minimal.py at
 * 59e0b69 (Apache-2.0):
 *
 *   transformer.wte.weight                    [vocabulary, hidden]; the embedding is √hidden times a row
 *   transformer.{prelude|core_block|coda}.{i}.
 *     norm_1, norm_2, norm_3, norm_4 .weight  before attention, of x + attention, before the MLP, of x + MLP
 *     attn.Wqkv.weight                        query rows, key rows, value rows
 *     attn.qk_bias                            [2, 1, heads, head width]: of queries, of keys
 *     attn.proj.weight, mlp.proj.weight       back into the stream
 *     mlp.fc.weight                           gate rows, up rows
 *   transformer.adapter.weight                [hidden, state and prelude's output]
 *   transformer.ln_f.weight                   after the last loop, and again before the head
 *   lm_head.weight                            only where it is not the embedding
 *   freqs_cis                                 a table of angles, not read: it is computed
 *
 * Retrofitted Llamas (github.com/mcleish7/retrofitting-recurrence, convert_llama.py and
 * raven_modeling_minimal_llama.py) have norm_1 and norm_2 before attention and MLP, no qk_bias, an embedding as it is,
 * fewer KV heads, and ln_f once.
 *
 * Where head and embedding are one matrix, that matrix is kept times √hidden, and the last norm's weights are divided
 * by it: logits stay what they are.
 */
import { UserError, show } from '../errors.js';
import { refuseUndecodable } from './decodable.js';
import type { Geometry } from '../geometry/geometry.js';
import { isObject } from '../io/json.js';
import { blockOf, layoutOf, type Layout, type Piece } from './published.js';
import { ADAPTER, CORE_NORM, EMBEDDING, FINAL_NORM, layerPart, modelTensors } from './tensors.js';

/** Layers of a retrofitted Llama have two norms, Huginn's own four. */
const isRetrofitted = (g: Geometry): boolean => g.normsPerLayer === 2;
const embeddingScale = (g: Geometry): number => (isRetrofitted(g) ? 1 : Math.sqrt(g.hidden));

/**
 * @param config a config.json of Huginn's class
 * @throws UserError for a state or an embedding that is made otherwise than the decoder makes it
 */
export function refuseRavenOptions(g: Geometry, config: Readonly<Record<string, unknown>>, where: string): void {
  if ((config['test_time_noise'] ?? 0) !== 0)
    throw new UserError(
      `${where}: test_time_noise adds noise to the state in every loop, which is not decoded`,
      'set test_time_noise to 0',
    );
  const start = config['initial_state_mode'] ?? 'random';
  if (start !== 'random')
    throw new UserError(
      `${where}: a state that begins with initial_state_mode ${show(start)} is not decoded`,
      'choose a model whose initial_state_mode is random',
    );
  const values = config['init_values'];
  const said = isObject(values) ? values['embed_scale'] : null;
  const scale = said ?? Math.sqrt(g.hidden); // the default of Huginn's class
  const needed = embeddingScale(g);
  if (typeof scale !== 'number' || Math.abs(scale / needed - 1) > 1e-6)
    throw new UserError(
      `${where}: init_values.embed_scale must be ${show(needed)} for these layers, not ${show(scale)}`,
      'choose a model as its publishers converted it',
    );
}

/** Parts of a layer: the norms of Huginn's four and of Llama's two, and what both have. */
const SANDWICH: Readonly<Record<string, string>> = {
  'input_layernorm.weight': 'norm_1.weight',
  'input_layernorm_2.weight': 'norm_2.weight',
  'post_attention_layernorm.weight': 'norm_3.weight',
  'post_attention_layernorm_2.weight': 'norm_4.weight',
};
const LLAMA: Readonly<Record<string, string>> = {
  'input_layernorm.weight': 'norm_1.weight',
  'post_attention_layernorm.weight': 'norm_2.weight',
};
const PARTS: readonly (readonly [RegExp, string])[] = [
  [/^self_attn\.[qkv]_proj\.weight$/, 'attn.Wqkv.weight'],
  [/^self_attn\.[qk]_proj\.bias$/, 'attn.qk_bias'],
  [/^self_attn\.o_proj/, 'attn.proj'],
  [/^mlp\.(gate|up)_proj/, 'mlp.fc'],
  [/^mlp\.down_proj/, 'mlp.proj'],
];
const ONCE: Readonly<Record<string, string>> = {
  [EMBEDDING]: 'transformer.wte.weight',
  [ADAPTER]: 'transformer.adapter.weight',
  [FINAL_NORM]: 'transformer.ln_f.weight',
};

/** The published name of a tensor. */
function nameOf(g: Geometry, name: string): string {
  const at = layerPart(name);
  if (!at) return ONCE[name] ?? name;
  const part = (isRetrofitted(g) ? LLAMA : SANDWICH)[at.part];
  const found = PARTS.find(([of]) => of.test(at.part));
  const { block, layer } = blockOf(g, at.stored);
  const own = part ?? (found ? at.part.replace(...found) : at.part);
  return `transformer.${block === 'core' ? 'core_block' : block}.${layer}.${own}`;
}

/**
 * @throws UserError for keys with fewer heads than queries, which Huginn's own class has no bias for, and for other
 * layers than its own and Llama's
 */
export function ravenLayout(g: Geometry): Layout {
  refuseUndecodable(g);
  const retrofitted = isRetrofitted(g);
  if (g.normsOfBranches || (!retrofitted && g.outputNorm !== 'sum'))
    throw new UserError(
      `${g.name} has layers of another base than Llama, whose tensors the decoder does not know`,
      'choose a model that was retrofitted from Llama',
    );
  if (!retrofitted && g.kvHeads !== g.heads)
    throw new UserError(
      `${g.name} has ${g.kvHeads} KV heads for ${g.heads} query heads; Huginn's class has as many of both`,
      'correct num_key_value_heads',
    );
  const scale = embeddingScale(g);
  // The norm after the core is the last one, too.
  const specs = modelTensors(g).filter(({ name }) => name !== CORE_NORM);
  const { published, pieces } = layoutOf(specs, (name) => nameOf(g, name), {
    [EMBEDDING]: scale,
    [FINAL_NORM]: g.tiedEmbeddings ? 1 / scale : 1,
  });
  const norm: Piece = { tensor: nameOf(g, FINAL_NORM), from: 0, factor: 1 };
  return {
    published: published.map((spec) => (spec.role === 'bias' ? { ...spec, shape: [2, 1, g.heads, g.headDim] } : spec)),
    pieces: g.normAfterCore ? new Map([...pieces, [CORE_NORM, norm]]) : pieces,
  };
}
