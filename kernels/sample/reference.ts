/** The float64 reference of sample, and the comparison of its outputs with it. */
import { mix } from '../../src/numbers/hash.js';
import { dim, type Checker } from '../reference.js';

/** The token with the largest logit, the lowest of equals. */
export const reference: Checker = {
  outputs: ['tokens'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const vocab = dim(s.call.shape, 'vocab');
    const logits = s.input('logits');
    let best = 0;
    for (let i = 1; i < vocab; i++) if (logits(row * vocab + i) > logits(row * vocab + best)) best = i;
    return { expected: [best], actual: () => s.output('tokens')(row) };
  },
};

export interface Sampling {
  readonly temperature: number;
  readonly topP: number;
  readonly seed: number;
}

/** The number in [0, 1) that a row draws: 23 bits of a mix of seed, stream and counter. */
export const drawn = (seed: number, stream: number, counter: number): number =>
  (mix((counter ^ mix((stream ^ mix(seed)) >>> 0)) >>> 0) >>> 9) * 2 ** -23;

/** Probabilities of the nucleus, not yet divided by their sum; 0 outside of it. */
export function nucleus(
  logits: ArrayLike<number>,
  { temperature, topP }: Pick<Sampling, 'temperature' | 'topP'>,
): Float64Array {
  const x = Float64Array.from(logits);
  const top = x.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = x.map((value) => Math.exp((value - top) / temperature));
  if (topP >= 1) return weights;
  const total = weights.reduce((a, b) => a + b, 0);
  let sum = 0;
  let least = Infinity;
  for (const value of x.slice().sort().reverse()) {
    if (value < least && sum >= topP * total) break;
    least = value;
    sum += Math.exp((value - top) / temperature);
  }
  return weights.map((w, i) => ((x[i] as number) >= least ? w : 0));
}

/**
 * The token that a row draws, in order of tokens.
 * @param shift added to u: how the choice changes next to a boundary
 */
export function drawToken(
  logits: ArrayLike<number>,
  sampling: Sampling,
  stream: number,
  counter: number,
  shift = 0,
): number {
  const weights = nucleus(logits, sampling);
  const total = weights.reduce((a, b) => a + b, 0);
  const goal = Math.min(1, Math.max(0, drawn(sampling.seed, stream, counter) + shift)) * total;
  let sum = 0;
  let last = -1;
  for (const [i, w] of weights.entries()) {
    if (w === 0) continue;
    sum += w;
    last = i;
    if (sum > goal) return i;
  }
  return last;
}
