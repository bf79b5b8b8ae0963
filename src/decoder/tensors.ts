/**
 * The tensors of a model and of its codec: names and shapes. Model names are those of the published Ouro checkpoints
 * (Llama's, where the model has no loop); every matrix is [outputs, inputs], row-major, as Hugging Face stores it.
 */
import { pathSpec } from '../codecs/paths.js';
import { ranksOfLoops } from '../codecs/hla.js';
import { codecSpec, headsOfLatent, isHybrid } from '../codecs/registry.js';
import type { Branch, Codec, Path } from '../codecs/codec.js';
import { UserError, show } from '../errors.js';
import { layerExtras, projectsValues, storedLayers, tableWidth, type Geometry } from '../geometry/geometry.js';
import { refuseUndecodable } from './decodable.js';

/** Kind of a tensor; it decides how a fabricated one is scaled. */
type TensorRole = 'embedding' | 'matrix' | 'norm' | 'bias' | 'codec' | 'mean';

export interface TensorSpec {
  readonly name: string;
  readonly shape: readonly number[];
  readonly role: TensorRole;
}

export const elementsOf = (shape: readonly number[]): number => shape.reduce((product, n) => product * n, 1);

export const EMBEDDING = 'model.embed_tokens.weight';
export const HEAD = 'lm_head.weight';
/** Between the hidden width and tables of a lower rank (names of NandiForCausalLM). */
export const EMBEDDING_UP = 'model.embedding_proj.weight';
export const HEAD_DOWN = 'lm_head_proj.weight';
export const FINAL_NORM = 'model.norm.weight';
/** Between the last loop and the coda. */
export const CORE_NORM = 'model.core_norm.weight';
/** The low stack's first state (HRM-Text). */
export const LOW_STATE = 'model.z_L_init';
/** Of what a loop changed, to a rank and back, and the logarithms of the rates at which it fades (LoopUS). */
export const CHANGE_DOWN = 'model.change.down.weight';
export const CHANGE_UP = 'model.change.up.weight';
export const CHANGE_BIAS = 'model.change.up.bias';
export const CHANGE_RATES = 'model.change.log_rate';
export const ADAPTER = 'model.adapter.weight';

/** A tensor of layer `index`, counted over prelude, core and coda in the order in which they run. */
export const layerTensor = (index: number, part: string): string => `model.layers.${index}.${part}`;

/** Norms of each head of queries and keys (Qwen3), or of their rows (OLMo-2): parts of a layer. */
export const QUERY_NORM = 'self_attn.q_norm.weight';
export const KEY_NORM = 'self_attn.k_norm.weight';

/** The layer of a tensor and its part, or undefined for one that no layer has. */
export function layerPart(name: string): { readonly stored: number; readonly part: string } | undefined {
  const [, stored, part] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  return part === undefined ? undefined : { stored: Number(stored), part };
}

/**
 * Gates of a layer between the first loop's rows and a window: of each head its width, and a bias (IQuest-Coder-Loop),
 * or the hidden width, and a norm before them (LoopCoder-V2).
 */
export const LOOP_GATE_NORM = 'loop_gate_norm.weight';
export const loopGateTensor = (layer: number, part: 'weight' | 'bias'): string =>
  `model.gate_projections.${layer}.${part}`;

/**
 * Which of the query, key and value projections have a bias: query and key (Huginn), or all three (Qwen2).
 * @throws UserError for any other extra parameters (output or MLP biases), and as `refuseUndecodable`
 */
export function biasedProjections(g: Geometry): readonly ('q' | 'k' | 'v')[] {
  refuseUndecodable(g);
  const extras = layerExtras(g);
  const biased = (['q', 'k', 'v'] as const).filter((letter) => extras?.biases.includes(letter));
  if (extras && extras.biases.length === biased.length) return biased;
  throw new UserError(
    `${g.name} has ${g.extraParametersPerLayer} parameters a layer beside projections and norms, which the ` +
      'decoder cannot place',
    'choose a model whose only extras are biases of q and k, or of q, k and v',
  );
}

/**
 * Every tensor of a model, in the order in which it is used.
 * @throws UserError as `biasedProjections`
 */
export function modelTensors(g: Geometry): TensorSpec[] {
  const queries = g.heads * g.headDim;
  const keys = g.kvHeads * g.headDim;
  const biased = biasedProjections(g);
  const norms = layerExtras(g)?.norms;
  const rank = g.embeddingRank;
  const specs: TensorSpec[] = [{ name: EMBEDDING, shape: [g.vocab, tableWidth(g)], role: 'embedding' }];
  if (rank !== undefined) specs.push({ name: EMBEDDING_UP, shape: [g.hidden, rank], role: 'matrix' });
  if (g.adapter) specs.push({ name: ADAPTER, shape: [g.hidden, 2 * g.hidden], role: 'matrix' });
  if (g.stacks && g.extraParameters !== undefined) specs.push({ name: LOW_STATE, shape: [g.hidden], role: 'bias' });
  for (let layer = 0; layer < storedLayers(g); layer++) {
    const add = (part: string, shape: readonly number[], role: TensorRole): void => {
      if (role !== 'norm' || !g.plainNorms) specs.push({ name: layerTensor(layer, part), shape, role });
    };
    // Norms are before attention and MLP, after them too, or after them alone.
    const after = g.normsPerLayer === 4 || g.normsOfBranches;
    if (!g.normsOfBranches) add('input_layernorm.weight', [g.hidden], 'norm');
    if (g.attentionGate) add('self_attn.gate_proj.weight', [queries, g.hidden], 'matrix');
    for (const [letter, rows] of [
      ['q', queries],
      ['k', keys],
      ['v', keys],
    ] as const) {
      if (letter === 'v' && !projectsValues(g)) continue;
      add(`self_attn.${letter}_proj.weight`, [rows, g.hidden], 'matrix');
      if (biased.includes(letter)) add(`self_attn.${letter}_proj.bias`, [rows], 'bias');
    }
    if (norms) add(QUERY_NORM, [norms === 'rows' ? queries : g.headDim], 'norm');
    if (norms && norms !== 'query-heads') add(KEY_NORM, [norms === 'rows' ? keys : g.headDim], 'norm');
    add('self_attn.o_proj.weight', [g.hidden, queries], 'matrix');
    if (after) add('input_layernorm_2.weight', [g.hidden], 'norm');
    if (!g.normsOfBranches) add('post_attention_layernorm.weight', [g.hidden], 'norm');
    add('mlp.gate_proj.weight', [g.mlpHidden, g.hidden], 'matrix');
    add('mlp.up_proj.weight', [g.mlpHidden, g.hidden], 'matrix');
    add('mlp.down_proj.weight', [g.hidden, g.mlpHidden], 'matrix');
    if (after) add('post_attention_layernorm_2.weight', [g.hidden], 'norm');
  }
  if (g.laterLoopsWindow !== undefined)
    for (let layer = 0; layer < storedLayers(g); layer++) {
      const inputs = g.loopGateOfInput ? g.hidden : g.headDim;
      specs.push(
        { name: loopGateTensor(layer, 'weight'), shape: [g.heads, inputs], role: 'matrix' },
        { name: loopGateTensor(layer, 'bias'), shape: [g.heads], role: 'bias' },
      );
      if (g.loopGateOfInput) specs.push({ name: layerTensor(layer, LOOP_GATE_NORM), shape: [g.hidden], role: 'norm' });
    }
  if (g.changeRank !== undefined)
    specs.push(
      { name: CHANGE_DOWN, shape: [g.changeRank, g.hidden], role: 'matrix' },
      { name: CHANGE_UP, shape: [g.hidden, g.changeRank], role: 'matrix' },
      { name: CHANGE_BIAS, shape: [g.hidden], role: 'bias' },
      { name: CHANGE_RATES, shape: [g.hidden], role: 'bias' },
    );
  if (g.normAfterCore) specs.push({ name: CORE_NORM, shape: [g.hidden], role: 'norm' });
  if (!g.plainNorms) specs.push({ name: FINAL_NORM, shape: [g.hidden], role: 'norm' });
  if (g.exitGate)
    specs.push(
      { name: 'model.early_exit_gate.weight', shape: [1, g.hidden], role: 'matrix' },
      { name: 'model.early_exit_gate.bias', shape: [1], role: 'bias' },
    );
  if (rank !== undefined) specs.push({ name: HEAD_DOWN, shape: [rank, g.hidden], role: 'matrix' });
  if (!g.tiedEmbeddings) specs.push({ name: HEAD, shape: [g.vocab, tableWidth(g)], role: 'matrix' });
  return specs;
}

/**
 * Which (loop, KV head) vectors one latent stands for. The three learned codecs differ in this only: LLA stacks the
 * loops of a head, LLA-2D the loops and heads, mla-head the heads of a loop.
 */
export interface LatentGroups {
  /** Loops and KV heads stacked in one latent. */
  readonly loops: number;
  readonly heads: number;
  /** Latents of a token and layer. */
  readonly count: number;
  /** Width of the stacked vector: loops × heads × head width. */
  readonly width: number;
}

export function latentGroups(g: Geometry, codec: Codec): LatentGroups {
  const loops = codecSpec(codec).loopAxis ? g.loops : 1;
  const heads = headsOfLatent(codec, g.kvHeads);
  return { loops, heads, count: (g.loops / loops) * (g.kvHeads / heads), width: loops * heads * g.headDim };
}

export type CodecAxis = 'key' | 'value';

export const codecTensor = (layer: number, axis: CodecAxis, part: 'down' | 'up' | 'mean'): string =>
  `codec.layers.${layer}.${axis}.${part}`;
/** Latents of the first loop, and of those after it (codecs/hla.ts). */
export const HYBRID_PARTS = ['first', 'shared'] as const;
export type HybridPart = (typeof HYBRID_PARTS)[number];
/** A map of core layer `layer`: E, A or B of each loop that reads these latents. */
export const hybridTensor = (layer: number, part: HybridPart, map: 'encode' | 'key' | 'value'): string =>
  `codec.layers.${layer}.${part}.${map}`;

/**
 * The maps of rotated latents in a core layer: E is [loop, hidden, r_k + r_v], A [loop, KV heads × head width, r_k], B
 * [loop, KV heads × head width, r_v]. c = Σ_t E_tᵀ x_t; a query is brought to the keys' latents by A_tᵀ, their values
 * to a head by B_t. Key components p and p + d/2 of each d (or 2p and 2p + 1, as the model pairs) turn together.
 */
function hybridTensors(g: Geometry, codec: Codec, layer: number): TensorSpec[] {
  const width = g.kvHeads * g.headDim;
  const ranks = ranksOfLoops(codec);
  return HYBRID_PARTS.flatMap((part): TensorSpec[] => {
    const { rankK, rankV } = ranks[part];
    const loops = part === 'first' ? 1 : g.loops - 1;
    return [
      { name: hybridTensor(layer, part, 'encode'), shape: [loops, g.hidden, rankK + rankV], role: 'codec' },
      { name: hybridTensor(layer, part, 'key'), shape: [loops, width, rankK], role: 'codec' },
      { name: hybridTensor(layer, part, 'value'), shape: [loops, width, rankV], role: 'codec' },
    ];
  });
}

/** Projections of the absorbed path's rotary branch in core layer `layer`. */
export const branchTensor = (layer: number, part: 'query' | 'key'): string => `codec.layers.${layer}.branch.${part}`;

/**
 * Tensors of a learned codec (Eq. encode and decode), and of the rotary branch on the absorbed path. W_down, W_up and
 * mu are [group, stacked width, rank], [group, stacked width, rank] and [group, stacked width]; a stacked vector runs
 * over loops, then heads, then components. Branch projections are [heads × branch width, hidden].
 * @returns none for codecs without parameters
 */
export function codecTensors(g: Geometry, codec: Codec, path: Path, branch: Branch): TensorSpec[] {
  if (codec.rankK === undefined || codec.rankV === undefined) return [];
  if (isHybrid(codec)) return Array.from({ length: g.layers }, (_, layer) => hybridTensors(g, codec, layer)).flat();
  const { count, width } = latentGroups(g, codec);
  const specs: TensorSpec[] = [];
  for (let layer = 0; layer < g.layers; layer++) {
    for (const [axis, rank] of [
      ['key', codec.rankK],
      ['value', codec.rankV],
    ] as const) {
      specs.push(
        { name: codecTensor(layer, axis, 'down'), shape: [count, width, rank], role: 'codec' },
        { name: codecTensor(layer, axis, 'up'), shape: [count, width, rank], role: 'codec' },
        { name: codecTensor(layer, axis, 'mean'), shape: [count, width], role: 'mean' },
      );
    }
    if (pathSpec(path).branch) {
      specs.push(
        { name: branchTensor(layer, 'query'), shape: [g.heads * branch.width, g.hidden], role: 'matrix' },
        {
          name: branchTensor(layer, 'key'),
          shape: [(branch.perHead ? g.kvHeads : 1) * branch.width, g.hidden],
          role: 'matrix',
        },
      );
    }
  }
  return specs;
}

/** At most three names of a list, for one line. */
const few = (names: readonly string[]): string =>
  `${names.slice(0, 3).map(show).join(', ')}${names.length > 3 ? ` and ${names.length - 3} more` : ''}`;

/**
 * Checks that a source has the tensors that are needed.
 * @param where they come from, for the message
 * @throws UserError naming the tensors that are missing, or the first of another shape
 */
export function requireTensors(
  specs: readonly TensorSpec[],
  shapes: ReadonlyMap<string, readonly number[]>,
  where: string,
): void {
  const missing = specs.filter((spec) => !shapes.has(spec.name)).map((spec) => spec.name);
  if (missing.length > 0)
    throw new UserError(
      `${where}: ${few(missing)} ${missing.length === 1 ? 'is' : 'are'} missing`,
      'give the config.json of these weights, with the tensor names of their own class',
    );
  for (const { name, shape } of specs) {
    const found = shapes.get(name) as readonly number[];
    if (found.length !== shape.length || found.some((n, i) => n !== shape[i])) {
      throw new UserError(
        `${where}: ${name} has shape ${show(found)}, where ${show(shape)} is needed`,
        'give the config.json of these weights',
      );
    }
  }
}

/**
 * Checks that a source has no tensors beyond those known.
 * @throws UserError naming them
 */
export function refuseOthers(
  specs: readonly TensorSpec[],
  shapes: ReadonlyMap<string, readonly number[]>,
  where: string,
): void {
  const known = new Set(specs.map((spec) => spec.name));
  const extra = [...shapes.keys()].filter((name) => !known.has(name));
  if (extra.length > 0)
    throw new UserError(`${where} has ${few(extra)}, which the model has not`, 'give the config.json of these weights');
}
