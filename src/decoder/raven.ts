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
 *   freqs_cis                                 a table of angles, computed anew
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
import { storedLayers, type Geometry } from '../geometry/geometry.js';
import type { OpenTensors } from './checkpoint.js';
import {
  ADAPTER,
  CORE_NORM,
  elementsOf,
  EMBEDDING,
  FINAL_NORM,
  HEAD,
  layerTensor,
  modelTensors,
  type TensorRole,
  type TensorSpec,
} from './tensors.js';
import { checkedLength } from './weights.js';

/** Where a tensor of the decoder lies: elements of a published one, times a factor. */
interface Piece {
  readonly tensor: string;
  readonly from: number;
  readonly factor: number;
}

interface Layout {
  readonly published: readonly TensorSpec[];
  readonly pieces: ReadonlyMap<string, Piece>;
}

/** Tables that a checkpoint carries along; and the head, where it is the embedding. */
export const isCarriedAlong = (g: Geometry, name: string): boolean =>
  name === 'freqs_cis' || (g.tiedEmbeddings && name === HEAD);

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
  const said =
    typeof values === 'object' && values !== null ? (values as Record<string, unknown>)['embed_scale'] : null;
  const scale = said ?? Math.sqrt(g.hidden); // the default of Huginn's class
  const needed = embeddingScale(g);
  if (typeof scale !== 'number' || Math.abs(scale / needed - 1) > 1e-6)
    throw new UserError(
      `${where}: init_values.embed_scale must be ${show(needed)} for these layers, not ${show(scale)}`,
      'choose a model as its publishers converted it',
    );
}

/** The published name of a stored layer. */
function blockName(g: Geometry, stored: number): string {
  if (stored < g.preludeLayers) return `prelude.${stored}`;
  if (stored < g.preludeLayers + g.layers) return `core_block.${stored - g.preludeLayers}`;
  return `coda.${stored - g.preludeLayers - g.layers}`;
}

/**
 * @throws UserError for keys with fewer heads than queries, which Huginn's own class has no bias for, and for other
 * layers than its own and Llama's
 */
export function ravenLayout(g: Geometry): Layout {
  refuseUndecodable(g);
  const retrofitted = isRetrofitted(g);
  if (!retrofitted && g.outputNorm !== 'sum')
    throw new UserError(
      `${g.name} has layers of another base than Llama, whose tensors the decoder does not know`,
      'choose a model that was retrofitted from Llama',
    );
  if (!retrofitted && g.kvHeads !== g.heads)
    throw new UserError(
      `${g.name} has ${g.kvHeads} KV heads for ${g.heads} query heads; Huginn's class has as many of both`,
      'correct num_key_value_heads',
    );
  const published: TensorSpec[] = [];
  const pieces = new Map<string, Piece>();
  const add = (name: string, shape: readonly number[], role: TensorRole): string => {
    published.push({ name: `transformer.${name}`, shape, role });
    return `transformer.${name}`;
  };
  const put = (name: string, tensor: string, from = 0, factor = 1): void =>
    void pieces.set(name, { tensor, from, factor });
  const { hidden, mlpHidden } = g;
  const [queries, keys] = [g.heads * g.headDim, g.kvHeads * g.headDim];
  const scale = embeddingScale(g);
  const norms = [
    'input_layernorm',
    ...(retrofitted ? ['post_attention_layernorm'] : ['input_layernorm_2', 'post_attention_layernorm']),
    ...(retrofitted ? [] : ['post_attention_layernorm_2']),
  ];
  put(EMBEDDING, add('wte.weight', [g.vocab, hidden], 'embedding'), 0, scale);
  put(ADAPTER, add('adapter.weight', [hidden, 2 * hidden], 'matrix'));
  for (let stored = 0; stored < storedLayers(g); stored++) {
    const part = (name: string, shape: readonly number[], role: TensorRole): string =>
      add(`${blockName(g, stored)}.${name}`, shape, role);
    const to = (name: string): string => layerTensor(stored, name);
    norms.forEach((name, i) => put(to(`${name}.weight`), part(`norm_${i + 1}.weight`, [hidden], 'norm')));
    const packed = part('attn.Wqkv.weight', [queries + 2 * keys, hidden], 'matrix');
    const rows = { q: 0, k: queries, v: queries + keys };
    for (const [letter, from] of Object.entries(rows))
      put(to(`self_attn.${letter}_proj.weight`), packed, from * hidden);
    if (!retrofitted) {
      const bias = part('attn.qk_bias', [2, 1, g.heads, g.headDim], 'bias');
      ['q', 'k'].forEach((letter, i) => put(to(`self_attn.${letter}_proj.bias`), bias, i * queries));
    }
    put(to('self_attn.o_proj.weight'), part('attn.proj.weight', [hidden, queries], 'matrix'));
    const gated = part('mlp.fc.weight', [2 * mlpHidden, hidden], 'matrix');
    ['gate', 'up'].forEach((name, i) => put(to(`mlp.${name}_proj.weight`), gated, i * mlpHidden * hidden));
    put(to('mlp.down_proj.weight'), part('mlp.proj.weight', [hidden, mlpHidden], 'matrix'));
  }
  const norm = add('ln_f.weight', [hidden], 'norm');
  if (g.normAfterCore) put(CORE_NORM, norm);
  put(FINAL_NORM, norm, 0, g.tiedEmbeddings ? 1 / scale : 1);
  if (!g.tiedEmbeddings) {
    published.push({ name: HEAD, shape: [g.vocab, hidden], role: 'matrix' });
    put(HEAD, HEAD);
  }
  return { published, pieces };
}

/** Published tensors under the decoder's names. @param source has those of `ravenLayout` */
export function ravenTensors(g: Geometry, source: OpenTensors): OpenTensors {
  const { pieces } = ravenLayout(g);
  const shapes = new Map(modelTensors(g).map(({ name, shape }) => [name, shape]));
  return {
    shapes,
    read(name, from = 0, count) {
      const piece = pieces.get(name);
      if (!piece) throw new RangeError(`no tensor ${name}`);
      const length = checkedLength(name, elementsOf(shapes.get(name) ?? []), from, count);
      const values = source.read(piece.tensor, piece.from + from, length);
      if (piece.factor !== 1) values.forEach((value, i) => (values[i] = value * piece.factor));
      return values;
    },
    close: () => source.close(),
  };
}
