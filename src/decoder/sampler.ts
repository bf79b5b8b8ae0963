/** Choosing the next token from logits, in float64. */
import { UserError } from '../errors.js';
import { mix } from '../numbers/hash.js';
import type { Choice } from '../schedule/schedule.js';

export interface Sampling {
  /** 0: greedy. */
  readonly temperature: number;
  /** Nucleus (Holtzman et al., sec. 3.1): draw from the fewest tokens whose probabilities sum to at least this. */
  readonly topP: number;
  readonly seed: number;
}

export const GREEDY: Sampling = { temperature: 0, topP: 1, seed: 0 };

export const choiceOf = ({ temperature }: Sampling): Choice => (temperature === 0 ? 'greedy' : 'top-p');

/** The number in [0, 1) of a draw: 23 bits, so that f32 holds it, the same on every machine. */
export const uniform = (seed: number, stream: number, draw: number): number =>
  (mix(draw ^ mix(stream ^ mix(seed))) >>> 9) * 2 ** -23;

/** @throws UserError for settings outside their range */
export function checkSampling({ temperature, topP }: Sampling): void {
  if (!(temperature >= 0 && temperature <= 100))
    throw new UserError(
      `the temperature must be from 0 (greedy) to 100, not ${temperature}`,
      'give a temperature, for example 0.7',
    );
  if (!(topP > 0 && topP <= 1))
    throw new UserError(`top-p must be above 0 and at most 1, not ${topP}`, 'give a top-p, for example 0.9');
}

/** The token with the largest logit, the lowest of equals. */
export function greedy(logits: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if ((logits[i] as number) > (logits[best] as number)) best = i;
  return best;
}

/**
 * The next token: greedy, or drawn from the nucleus, in the order of token numbers. Tokens as likely as the least
 * likely one of the nucleus belong to it.
 * @param logits one a token of the vocabulary; −Infinity rules a token out
 * @param draw   number of tokens sampled before from this stream
 * @param stream tells sequences of a batch apart
 * @throws UserError for settings outside their range, and for logits that hold NaN or +Infinity, or rule out every
 * token
 */
export function sample(logits: ArrayLike<number>, sampling: Sampling, draw: number, stream = 0): number {
  checkSampling(sampling);
  let possible = 0;
  for (let i = 0; i < logits.length; i++) {
    const x = logits[i] as number;
    if (Number.isNaN(x) || x === Infinity)
      throw new UserError(`the logit of token ${i} is ${x}`, 'check the weights for NaN and overflow');
    if (x !== -Infinity) possible++;
  }
  if (possible === 0) throw new UserError('no token can be sampled: there is no finite logit', 'check the weights');
  const best = greedy(logits);
  if (sampling.temperature === 0) return best;
  const top = logits[best] as number;
  const weights = Float64Array.from(logits, (x) => Math.exp((x - top) / sampling.temperature));
  const least = leastOfNucleus(weights, sampling.topP);
  const inside = weights.map((w) => (w >= least ? w : 0));
  const goal = uniform(sampling.seed, stream, draw) * inside.reduce((a, b) => a + b, 0);
  let sum = 0;
  let last = best;
  for (let token = 0; token < inside.length; token++) {
    const weight = inside[token] as number;
    if (weight === 0) continue;
    sum += weight;
    last = token;
    if (sum > goal) break;
  }
  return last;
}

function leastOfNucleus(weights: Float64Array, topP: number): number {
  if (topP === 1) return 0;
  const total = weights.reduce((a, b) => a + b, 0);
  // All tokens lighter than this sum to less than what the nucleus leaves out, so none is in it: few are left to sort.
  const lightest = ((1 - topP) * total) / weights.length;
  const candidates = weights
    .filter((w) => w >= lightest)
    .sort()
    .reverse();
  let sum = 0;
  for (const weight of candidates) {
    sum += weight;
    if (sum >= topP * total) return weight;
  }
  return lightest;
}
