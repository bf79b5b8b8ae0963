/** Keys and values rebuilt from latents in float64. */
import type { Pairing } from '../../attention-options.js';
import { DEFAULTS } from '../../launch.js';
import { dim, type Subject, type Scalars } from '../../reference.js';
import { evenRow } from '../../spec.js';
import type { Run } from './attention.reference.js';

/** One a check, as the reference keeps what it has read of it. */
const rebuildings = new WeakMap<Subject, Rebuilding>();

export function rebuilding(s: Subject): Rebuilding {
  const known = rebuildings.get(s) ?? {
    ropeBase: s.options.ropeBase ?? DEFAULTS.ropeBase,
    pairing: s.options.pairing ?? 'half-split',
    weights: s.input('weights'),
    means: s.input('means'),
  };
  rebuildings.set(s, known);
  return known;
}

/** Positions of pinned slots, as the call's buffer has them. */
export const pinnedPosition =
  (s: Subject, run: Run) =>
  (kvRow: number, slot: number): number => {
    const row = s.options.positionsByHead ? kvRow : Math.floor(kvRow / dim(s.call.shape, 'kvHeads'));
    return s.input('positions')(row * run.capacity + slot);
  };

/**
 * How keys are rebuilt and rotated: base of the frequencies, which components form a pair, and the up-projection with
 * its mean.
 */
export interface Rebuilding {
  readonly ropeBase: number;
  readonly pairing: Pairing;
  /** [KV head][head width][rank, padded to even] */
  readonly weights: Scalars;
  /** [KV head][head width] */
  readonly means: Scalars;
}

interface Head {
  readonly w: Float64Array;
  readonly mu: Float64Array;
}

/** Heads read so far: a check rebuilds thousands of rows of the same few. */
const knownHeads = new WeakMap<Rebuilding, Map<number, Head>>();

/** W and mu of one KV head. */
export function headOf(rebuilding: Rebuilding, kvHead: number, headDim: number, rank: number): Head {
  const heads = knownHeads.get(rebuilding) ?? new Map<number, Head>();
  knownHeads.set(rebuilding, heads);
  const { weights, means } = rebuilding;
  const stride = evenRow(rank);
  const head = heads.get(kvHead) ?? {
    w: Float64Array.from({ length: headDim * rank }, (_, i) =>
      weights((kvHead * headDim + Math.floor(i / rank)) * stride + (i % rank)),
    ),
    mu: Float64Array.from({ length: headDim }, (_, i) => means(kvHead * headDim + i)),
  };
  heads.set(kvHead, head);
  return head;
}

/** k = W c + mu into `k`. */
export function rebuildInto(k: Float64Array, w: Float64Array, mu: Float64Array, c: Float64Array): void {
  const rank = c.length;
  for (let i = 0; i < k.length; i++) {
    let sum = mu[i] as number;
    for (let r = 0; r < rank; r++) sum += (w[i * rank + r] as number) * (c[r] as number);
    k[i] = sum;
  }
}

/** Rotates a head's components in place by theta_m * position. */
export function rotate(x: Float64Array, theta: Float64Array, pairing: Pairing, position: number): void {
  for (let m = 0; m < theta.length; m++) {
    const [a, b] = pairing === 'adjacent' ? [2 * m, 2 * m + 1] : [m, m + theta.length];
    const [cos, sin] = [Math.cos(position * (theta[m] as number)), Math.sin(position * (theta[m] as number))];
    const [u, v] = [x[a] as number, x[b] as number];
    x[a] = u * cos - v * sin;
    x[b] = u * sin + v * cos;
  }
}
