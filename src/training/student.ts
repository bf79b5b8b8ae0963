/**
 * The model with a codec in place of its cache, as jax-js differentiates it by the codec's tensors (paper, Eq. loss).
 *
 * The student is a decode step at every token at once: a token attends to the tokens before it through latents, and to
 * its own exact key and value. Latents of a prompt are encoded from the prompt's first pass, those of later tokens from
 * what the student itself computed at them (rollout.ts), as decoder/reference/decoder.ts has it. The gradient takes the
 * encoded rows as they are: it goes through the codec, not through the steps that made them. Full RoPE is one
 * computation for the paths that rebuild keys and for block-absorbed, which is the same sum. Rotated latents are read
 * as decoder/reference/hybrid.ts has it, and the last tokens' own rows where there is a window.
 *
 * On the absorbed path content is scored without rotation, beside a rotary branch, in a prompt's first pass too. A
 * linear query adapter needs no tensor of its own there: (A q)ᵀ W_up c = qᵀ (Aᵀ W_up) c, so W_up of K, which no key is
 * rebuilt from, learns it.
 */
import { lax, nn, numpy as np } from '@jax-js/jax';
import { pathSpec } from '../codecs/paths.js';
import {
  branchTurns,
  branchVectors,
  capture,
  firstLoop,
  readBack,
  readsOf,
  rowName,
  type Setting,
  type Swap,
} from './cached.js';
import { free, type Arrays } from './jax.js';
import {
  exactAttention,
  forward,
  rotate,
  sharedHeads,
  type Attend,
  type AttentionInputs,
  type Parameters,
  type Positions,
} from './looped.js';

/**
 * The teacher: `logProbabilities` [texts · tokens, vocabulary], and attention's outputs by `rowName`. The arguments are
 * used up.
 * @param oneHot [texts · tokens, vocabulary]
 */
export function exactPass(setting: Setting, base: Parameters, at: Positions, oneHot: np.Array): Arrays {
  const { geometry: g, length, normEpsilon } = setting;
  const out: Arrays = {};
  const exact = exactAttention(g, at);
  const attend: Attend = (inputs) => {
    const output = exact(inputs);
    out[rowName('output', inputs.loop, inputs.layer)] = output.ref;
    return output;
  };
  out['logProbabilities'] = nn.logSoftmax(forward(g, normEpsilon, base, at, oneHot, length, { attend }), -1);
  return out;
}

const scaleOf = ({ geometry: g }: Setting, { path, branch }: Swap): number =>
  (g.headDim + (pathSpec(path).branch ? branch.width : 0)) ** -0.5;

/** Keys of the rotary branch of a pass's own tokens: made in the first loop that shares them. */
class OwnBranchKeys {
  private readonly keys = new Map<number, np.Array>();

  constructor(
    private readonly setting: Setting,
    private readonly swap: Swap,
    private readonly p: Parameters,
  ) {}

  /** Not rotated; stays usable, as `input` does. */
  of({ loop, layer, input }: AttentionInputs): np.Array {
    const { setting, swap, p } = this;
    if (loop === firstLoop(setting.geometry, swap.codec, loop)) {
      this.keys.get(layer)?.dispose();
      this.keys.set(layer, branchVectors(setting, swap, p, layer, 'key', input.ref));
    }
    return this.keys.get(layer) as np.Array;
  }

  dispose(): void {
    for (const key of this.keys.values()) key.dispose();
  }
}

/**
 * What the first pass of a prompt captures (`capture`): exact keys and values, scored as the path scores. The arguments
 * are used up.
 */
export function promptPass(
  setting: Setting,
  swap: Swap,
  p: Parameters,
  base: Parameters,
  at: Positions,
  oneHot: np.Array,
): Arrays {
  const { geometry: g, length, normEpsilon } = setting;
  const rows: Arrays = {};
  const exact = exactAttention(g, at);
  const branch = new OwnBranchKeys(setting, swap, p);
  const attend: Attend = (inputs) => {
    capture(setting, swap, rows, inputs);
    if (!pathSpec(swap.path).branch) return exact(inputs);
    const { layer, input, queries, keys, values } = inputs;
    const branchKeys = rotate(branch.of(inputs).ref, branchTurns(at));
    const branchQueries = rotate(branchVectors(setting, swap, p, layer, 'query', input), branchTurns(at));
    const scores = np
      .matmul(queries, sharedHeads(keys, g.heads).transpose([0, 1, 3, 2]))
      .add(np.matmul(branchQueries, sharedHeads(branchKeys, g.heads).transpose([0, 1, 3, 2])));
    const weights = nn.softmax(scores.mul(scaleOf(setting, swap)).add(at.mask.ref), -1);
    return np.matmul(weights, sharedHeads(values, g.heads));
  };
  const logits = forward(g, normEpsilon, base, { ...at }, oneHot, length, { attend });
  branch.dispose();
  free({ logits }, p);
  return rows;
}

/** Who looks on while a student computes. Arrays given to `inputs` stay the student's. */
export interface Watch {
  readonly inputs?: (inputs: AttentionInputs) => void;
  /** Attention's output of a (loop, layer), to be used up. */
  readonly output?: (loop: number, layer: number, output: np.Array) => void;
}

/**
 * Log-probabilities of the student [texts · tokens, vocabulary]. The arguments are used up.
 * @param at of the tokens of the pass; `before` says which cached tokens each of them sees
 * @param cached of `readBack`
 */
export function studentPass(
  setting: Setting,
  swap: Swap,
  p: Parameters,
  base: Parameters,
  at: Positions,
  cached: Arrays,
  oneHot: np.Array,
  watch: Watch = {},
): np.Array {
  const { geometry: g, normEpsilon } = setting;
  const hasBranch = pathSpec(swap.path).branch === true;
  const branch = new OwnBranchKeys(setting, swap, p);
  const scale = scaleOf(setting, swap);
  const attend: Attend = (inputs) => {
    watch.inputs?.(inputs);
    const { loop, layer, input, queries, keys, values } = inputs;
    // A token's own key is rotated as its query is, so that their product is that of vectors that are not rotated.
    let own = queries.ref.mul(sharedHeads(keys, g.heads)).sum(-1, { keepdims: true });
    const { scores, outputs } = readsOf(setting, swap, p, at, cached, loop, layer);
    let content = scores(queries);
    if (hasBranch) {
      const branchQueries = branchVectors(setting, swap, p, layer, 'query', input.ref);
      const branchKeys = sharedHeads(branch.of(inputs).ref, g.heads);
      own = own.add(branchQueries.ref.mul(branchKeys).sum(-1, { keepdims: true }));
      const before = cached[rowName('branch', firstLoop(g, swap.codec, loop), layer)] as np.Array;
      const turned = rotate(branchQueries, branchTurns(at));
      content = content.add(np.matmul(turned, sharedHeads(before.ref, g.heads).transpose([0, 1, 3, 2])));
    }
    input.dispose();
    content = content.mul(scale).add((at['before'] as np.Array).ref);
    own = own.mul(scale);
    const top = lax.stopGradient(np.maximum(content.ref.max(-1, { keepdims: true }), own.ref));
    const weights = np.exp(content.sub(top.ref));
    const ownWeight = np.exp(own.sub(top));
    const total = weights.ref.sum(-1, { keepdims: true }).add(ownWeight.ref);
    const output = outputs(weights)
      .add(ownWeight.mul(sharedHeads(values, g.heads)))
      .div(total);
    watch.output?.(loop, layer, output.ref);
    return output;
  };
  const logits = forward(g, normEpsilon, base, { ...at }, oneHot, setting.length, { attend });
  branch.dispose();
  free(p, cached);
  return nn.logSoftmax(logits, -1);
}

/** KL(teacher ‖ student) of every token, nats. Both [tokens, vocabulary], log-probabilities; used up. */
const divergences = (teacher: np.Array, student: np.Array): np.Array =>
  np.exp(teacher.ref).mul(teacher.sub(student)).sum(-1);

/** What a loss is computed from beside the codec's tensors. */
export interface Frozen {
  readonly base: Parameters;
  readonly at: Positions;
  readonly exact: Arrays;
  /** What the student captured at every token: of `capture`. */
  readonly rows: Arrays;
  readonly oneHot: np.Array;
  /** Weight of every token [texts · tokens], summing to 1. */
  readonly weights: np.Array;
}

/**
 * KL(teacher ‖ student) + λ · attention-output match, as a function to differentiate. The match is the mean over loops
 * and layers of ‖a − â‖², a the heads' outputs end to end. The arguments are used up.
 */
export const distillationLoss =
  (setting: Setting, swap: Swap, lambdaAttn: number) =>
  (p: Parameters, { base, at, exact, rows, oneHot, weights }: Frozen): np.Array => {
    const { geometry: g } = setting;
    const cached = readBack(setting, swap, p, at, rows);
    const mismatches: np.Array[] = [];
    const student = studentPass(setting, swap, p, base, at, cached, oneHot, {
      output: (loop, layer, output) => {
        const difference = output.sub(exact[rowName('output', loop, layer)] as np.Array);
        mismatches.push(np.square(difference).sum([1, 3]).reshape([-1]));
      },
    });
    const mismatch = mismatches.reduce((sum, x) => sum.add(x)).mul(lambdaAttn / (g.loops * g.layers));
    return divergences(exact['logProbabilities'] as np.Array, student)
      .add(mismatch)
      .mul(weights)
      .sum();
  };

/** KL(teacher ‖ student) of every token [texts · tokens], nats. The arguments are used up. */
export function studentDivergences(
  setting: Setting,
  swap: Swap,
  p: Parameters,
  { base, at, exact, rows, oneHot }: Omit<Frozen, 'weights'>,
): np.Array {
  const student = studentPass(setting, swap, p, base, at, readBack(setting, swap, p, at, rows), oneHot);
  const { logProbabilities, ...outputs } = exact;
  free(outputs);
  return divergences(logProbabilities as np.Array, student);
}
