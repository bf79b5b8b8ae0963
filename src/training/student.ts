/**
 * The model with a codec in place of its cache, as jax-js differentiates it by the codec's tensors (paper, Eq. loss).
 *
 * The student's forward pass is a decode step at every token at once: a token attends to the tokens before it through
 * latents that were encoded from the exact keys and values, and to its own exact key and value. That is what the decoder
 * does for the first token after a prompt (decoder/reference/decoder.ts), since a prompt's latents come from its exact
 * pass. Full RoPE is one computation for the paths that rebuild keys and for block-absorbed, which is the same sum.
 *
 * On the absorbed path content is scored without rotation, beside a rotary branch, in a prompt's first pass too, so that
 * what is cached depends on the branch. A linear query adapter needs no tensor
 * of its own there: (A q)ᵀ W_up c = qᵀ (Aᵀ W_up) c, so W_up of K, which no key is rebuilt from, learns it.
 */
import { nn, numpy as np, tree } from '@jax-js/jax';
import type { Branch, Codec, Path } from '../codecs/codec.js';
import { pathSpec } from '../codecs/paths.js';
import { branchTensor, codecTensor, latentGroups, type CodecAxis } from '../decoder/tensors.js';
import type { Geometry } from '../geometry/geometry.js';
import {
  exactAttention,
  forward,
  positionsOf,
  rotate,
  rotations,
  sharedHeads,
  type Attend,
  type AttentionInputs,
  type Parameters,
  type Positions,
} from './looped.js';

/** What stands in for the cache. */
export interface Swap {
  readonly codec: Codec;
  readonly path: Path;
  /** Of paths that have one. */
  readonly branch: Branch;
}

/** A model, and the length of its texts. */
export interface Setting {
  readonly geometry: Geometry;
  readonly normEpsilon: number;
  /** Tokens of a text. */
  readonly length: number;
}

/** What depends on the length of the texts alone, for a student. */
export function studentPositions({ geometry: g, length }: Setting, { branch }: Swap): Positions {
  const own = np.eye(length);
  const turns = rotations(g, length, branch.width);
  return {
    ...positionsOf(g, length),
    own: own.ref,
    others: np.array(1).sub(own),
    branchCos: turns.cos,
    branchSin: turns.sin,
  };
}

/** What a pass leaves for a student: arrays by name. */
export type Exact = Record<string, np.Array>;

const siteName = (part: 'input' | 'output', loop: number, layer: number): string => `${part}.${loop}.${layer}`;
const stackName = (axis: CodecAxis, layer: number): string => `${axis}.${layer}`;

/** Records what a pass caches. */
class Recorder {
  readonly arrays: Exact = {};
  private readonly rows: readonly Record<CodecAxis, np.Array[]>[];

  constructor(
    private readonly setting: Setting,
    private readonly swap: Swap,
  ) {
    this.rows = Array.from({ length: setting.geometry.layers }, () => ({ key: [], value: [] }));
  }

  /** Keys and values, and what keys of the rotary branch are made from. The arrays stay usable. */
  record({ loop, layer, input, keys, values }: AttentionInputs): void {
    const { codec, path } = this.swap;
    this.rows[layer]?.key.push(keys.ref);
    this.rows[layer]?.value.push(values.ref);
    if (pathSpec(path).branch && loop % latentGroups(this.setting.geometry, codec).loops === 0)
      this.arrays[siteName('input', loop, layer)] = input.ref;
  }

  /** Stacks keys and values of every layer by latents: [group, texts · tokens, width]. */
  stack(texts: number): void {
    const { geometry: g, length } = this.setting;
    const { loops, heads, count, width } = latentGroups(g, this.swap.codec);
    this.rows.forEach((own, layer) => {
      for (const axis of ['key', 'value'] as const)
        this.arrays[stackName(axis, layer)] = np
          .stack(own[axis])
          .reshape([g.loops / loops, loops, texts, g.kvHeads / heads, heads, length, g.headDim])
          .transpose([0, 3, 2, 5, 1, 4, 6])
          .reshape([count, texts * length, width]);
    });
  }
}

/**
 * The exact pass: log-probabilities, attention's outputs, and what is cached of it. A path with a rotary branch caches
 * nothing of it (`branchPass`). The arguments are used up.
 * @param oneHot [texts · tokens, vocabulary]
 */
export function exactPass(setting: Setting, swap: Swap, base: Parameters, oneHot: np.Array): Exact {
  const { geometry: g, length, normEpsilon } = setting;
  const at = positionsOf(g, length);
  const texts = (oneHot.shape[0] as number) / length;
  const recorder = pathSpec(swap.path).branch ? null : new Recorder(setting, swap);
  const out = recorder?.arrays ?? {};
  const exact = exactAttention(g, at);
  const attend: Attend = (inputs) => {
    recorder?.record(inputs);
    const output = exact(inputs);
    out[siteName('output', inputs.loop, inputs.layer)] = output.ref;
    return output;
  };
  out['logProbabilities'] = nn.logSoftmax(forward(g, normEpsilon, base, at, oneHot, length, { attend }), -1);
  recorder?.stack(texts);
  return out;
}

/** Rows that a codec gives back, of every loop: [texts, KV heads, tokens, headDim]. The parameters stay usable. */
function restored(
  setting: Setting,
  codec: Codec,
  p: Parameters,
  axis: CodecAxis,
  layer: number,
  stack: np.Array,
): np.Array[] {
  const { geometry: g, length } = setting;
  const { count, width, loops, heads } = latentGroups(g, codec);
  const texts = (stack.shape[1] as number) / length;
  const use = (part: 'down' | 'up' | 'mean'): np.Array => (p[codecTensor(layer, axis, part)] as np.Array).ref;
  const mean = use('mean').reshape([count, 1, width]);
  const latents = np.matmul(stack.sub(mean.ref), use('down'));
  const rows = np
    .matmul(latents, use('up').transpose([0, 2, 1]))
    .add(mean)
    .reshape([g.loops / loops, g.kvHeads / heads, texts, length, loops, heads, g.headDim])
    .transpose([0, 4, 2, 1, 5, 3, 6])
    .reshape([g.loops, texts, g.kvHeads, length, g.headDim]);
  return np.split(rows, g.loops, 0).map((x) => x.reshape([texts, g.kvHeads, length, g.headDim]));
}

/** The rotary branch of one layer: what queries and keys add to the scores. */
class BranchOf {
  private readonly turns: { readonly cos: np.Array; readonly sin: np.Array };
  /** Keys of the tokens' own first loop that shares them. */
  private own: np.Array | null = null;
  private cached: np.Array | null = null;

  constructor(
    private readonly setting: Setting,
    private readonly swap: Swap,
    private readonly p: Parameters,
    private readonly layer: number,
    at: Positions,
  ) {
    this.turns = { cos: at['branchCos'] as np.Array, sin: at['branchSin'] as np.Array };
  }

  private project(input: np.Array, part: 'query' | 'key'): np.Array {
    const { geometry: g, length } = this.setting;
    const { width } = this.swap.branch;
    const matrix = (this.p[branchTensor(this.layer, part)] as np.Array).ref;
    const slots = (matrix.shape[0] as number) / width;
    const texts = (input.shape[0] as number) / length;
    const rows = np.matmul(input, matrix.transpose()).reshape([texts, length, slots, width]).transpose([0, 2, 1, 3]);
    if (slots === g.heads) return rows;
    return slots === 1 ? np.broadcastTo(rows, [texts, g.heads, length, width]) : sharedHeads(rows, g.heads);
  }

  /**
   * Of cached tokens [texts, heads, tokens, tokens] and of the own one [texts, heads, tokens]. `input` is used up.
   * @param cached what the cached keys are made from; the pass's own inputs where null
   */
  scores(loop: number, input: np.Array, cached: Exact | null): { cached: np.Array; own: np.Array } {
    const { loops } = latentGroups(this.setting.geometry, this.swap.codec);
    if (loop % loops === 0) {
      this.dispose();
      this.own = this.project(input.ref, 'key');
      const before = cached
        ? this.project((cached[siteName('input', loop, this.layer)] as np.Array).ref, 'key')
        : this.own.ref;
      this.cached = rotate(before, this.turns);
    }
    const query = this.project(input, 'query');
    const own = query.ref.mul((this.own as np.Array).ref).sum(-1);
    const keys = (this.cached as np.Array).ref.transpose([0, 1, 3, 2]);
    return { cached: np.matmul(rotate(query, this.turns), keys), own };
  }

  dispose(): void {
    this.own?.dispose();
    this.cached?.dispose();
    this.own = this.cached = null;
  }
}

const branchScale = ({ geometry: g }: Setting, { branch }: Swap): number => (g.headDim + branch.width) ** -0.5;

/**
 * The first of the two passes of a prompt on a path with a rotary branch: exact keys and values, scored as that path
 * scores. What it caches depends on the branch. The arguments stay usable.
 */
function branchPass(
  setting: Setting,
  swap: Swap,
  p: Parameters,
  base: Parameters,
  at: Positions,
  oneHot: np.Array,
): Exact {
  const { geometry: g, length, normEpsilon } = setting;
  const recorder = new Recorder(setting, swap);
  const branches = Array.from({ length: g.layers }, (_, layer) => new BranchOf(setting, swap, p, layer, at));
  const attend: Attend = (inputs) => {
    const { loop, layer, input, queries, keys, values } = inputs;
    recorder.record(inputs);
    const added = (branches[layer] as BranchOf).scores(loop, input, null);
    added.own.dispose();
    const scores = np.matmul(queries, sharedHeads(keys, g.heads).transpose([0, 1, 3, 2])).add(added.cached);
    const weights = nn.softmax(scores.mul(branchScale(setting, swap)).add((at['mask'] as np.Array).ref), -1);
    return np.matmul(weights, sharedHeads(values, g.heads));
  };
  forward(g, normEpsilon, tree.ref(base), tree.ref(at), oneHot.ref, length, { attend }).dispose();
  for (const branch of branches) branch.dispose();
  recorder.stack((oneHot.shape[0] as number) / length);
  return recorder.arrays;
}

/**
 * Log-probabilities of the student, and the attention-output match: mean over loops, layers and tokens of
 * ‖a − â‖², a the heads' outputs end to end. The arguments are used up; `exact` stays usable.
 */
export function studentPass(
  setting: Setting,
  swap: Swap,
  p: Parameters,
  base: Parameters,
  at: Positions,
  exact: Exact,
  oneHot: np.Array,
): { logProbabilities: np.Array; mismatch: np.Array } {
  const { geometry: g, length, normEpsilon } = setting;
  const tokens = oneHot.shape[0] as number;
  const { codec, path } = swap;
  const hasBranch = pathSpec(path).branch === true;
  const scale = hasBranch ? branchScale(setting, swap) : g.headDim ** -0.5;
  const cache = hasBranch ? branchPass(setting, swap, p, base, at, oneHot) : exact;
  const layers = Array.from({ length: g.layers }, (_, layer) => ({
    keys: restored(setting, codec, p, 'key', layer, (cache[stackName('key', layer)] as np.Array).ref),
    values: restored(setting, codec, p, 'value', layer, (cache[stackName('value', layer)] as np.Array).ref),
    branch: hasBranch ? new BranchOf(setting, swap, p, layer, at) : null,
  }));
  const mismatches: np.Array[] = [];
  const use = (name: 'own' | 'others'): np.Array => (at[name] as np.Array).ref;
  const attend: Attend = (inputs) => {
    const { loop, layer, input, queries, keys, values } = inputs;
    const texts = queries.shape[0] as number;
    const of = layers[layer] as (typeof layers)[number];
    const cachedKeys = of.keys[loop] as np.Array;
    const added = of.branch ? of.branch.scores(loop, input, cache) : null;
    if (!added) input.dispose();
    // A token's own key turns as its query does, so that their product is that of vectors that are not rotated.
    const ownKeys = queries.ref.mul(sharedHeads(keys, g.heads)).sum(-1);
    const content = added
      ? np.matmul(queries, sharedHeads(cachedKeys, g.heads).transpose([0, 1, 3, 2]))
      : np.matmul(rotate(queries, at), sharedHeads(rotate(cachedKeys, at), g.heads).transpose([0, 1, 3, 2]));
    const cached = added ? content.add(added.cached) : content;
    const own = (added ? ownKeys.add(added.own) : ownKeys).reshape([texts, g.heads, length, 1]);
    const weights = nn.softmax(
      cached
        .mul(use('others'))
        .add(own.mul(use('own')))
        .mul(scale)
        .add(at.mask.ref),
      -1,
    );
    const onOwn = weights.ref.mul(use('own')).sum(-1, { keepdims: true });
    const output = np
      .matmul(weights.mul(use('others')), sharedHeads(of.values[loop] as np.Array, g.heads))
      .add(onOwn.mul(sharedHeads(values, g.heads)));
    const difference = output.ref.sub((exact[siteName('output', loop, layer)] as np.Array).ref);
    mismatches.push(np.square(difference).sum());
    return output;
  };
  const logits = forward(g, normEpsilon, base, { ...at }, oneHot, length, { attend });
  for (const layer of layers) layer.branch?.dispose();
  for (const array of [...Object.values(p), ...(hasBranch ? Object.values(cache) : [])]) array.dispose();
  const mismatch = mismatches.reduce((sum, x) => sum.add(x)).div(tokens * g.loops * g.layers);
  return { logProbabilities: nn.logSoftmax(logits, -1), mismatch };
}

/** Mean over tokens of KL(teacher ‖ student), nats. Both [tokens, vocabulary], log-probabilities; used up. */
export function divergence(teacher: np.Array, student: np.Array): np.Array {
  const tokens = teacher.shape[0] as number;
  return np.exp(teacher.ref).mul(teacher.sub(student)).sum().div(tokens);
}

/** What a loss is computed from beside the codec's tensors. */
export interface Frozen {
  readonly base: Parameters;
  readonly at: Positions;
  readonly exact: Exact;
  readonly oneHot: np.Array;
}

/** KL(teacher ‖ student) + λ · attention-output match, as a function to differentiate. Its arguments are used up. */
export const distillationLoss =
  (setting: Setting, swap: Swap, attentionWeight: number) =>
  (p: Parameters, { base, at, exact, oneHot }: Frozen): np.Array => {
    const student = studentPass(setting, swap, p, base, at, exact, oneHot);
    const loss = divergence((exact['logProbabilities'] as np.Array).ref, student.logProbabilities).add(
      student.mismatch.mul(attentionWeight),
    );
    for (const array of Object.values(exact)) array.dispose();
    return loss;
  };
