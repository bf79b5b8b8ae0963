/** Random draws from a seeded stream of uniform numbers. */
import { randomFrom } from '../../numbers/random.js';

export type Uniform = () => number;

/** A stream for one purpose, so that what one draws does not shift another. */
export const streamOf = (seed: number, purpose: number): Uniform => {
  const random = randomFrom((Math.imul(seed, 0x9e3779b1) + Math.imul(purpose + 1, 0x85ebca6b)) >>> 0);
  // The first numbers of neighbouring seeds resemble each other.
  for (let i = 0; i < 8; i++) random();
  return random;
};

/** Exponential, with mean 1. */
export const exponential = (uniform: Uniform): number => -Math.log(1 - uniform());

/** Normal, with mean 0 and deviation 1 (polar method). */
export function normal(uniform: Uniform): number {
  for (;;) {
    const x = 2 * uniform() - 1;
    const y = 2 * uniform() - 1;
    const r = x * x + y * y;
    if (r > 0 && r < 1) return x * Math.sqrt((-2 * Math.log(r)) / r);
  }
}

/** Gamma, with this shape and mean 1 (Marsaglia and Tsang, ACM TOMS 26, 2000). */
export function gamma(uniform: Uniform, shape: number): number {
  if (shape < 1) return (gamma(uniform, shape + 1) * (shape + 1) * Math.exp(-exponential(uniform) / shape)) / shape;
  const d = shape - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const x = normal(uniform);
    const v = 1 + c * x;
    if (v <= 0) continue;
    const cube = v * v * v;
    if (Math.log(1 - uniform()) < 0.5 * x * x + d - d * cube + d * Math.log(cube)) return (d * cube) / shape;
  }
}

/** Lengths of prompts or answers. */
export type Lengths =
  | { readonly kind: 'fixed'; readonly tokens: number }
  | { readonly kind: 'uniform'; readonly least: number; readonly most: number }
  /** With this mean and standard deviation, before it is rounded and bounded. */
  | { readonly kind: 'lognormal'; readonly mean: number; readonly deviation: number };

/** Mean and deviation of the logarithm. */
function logNormal({ mean, deviation }: Extract<Lengths, { kind: 'lognormal' }>): [number, number] {
  const variance = Math.log(1 + (deviation / mean) ** 2);
  return [Math.log(mean) - variance / 2, Math.sqrt(variance)];
}

/** Longer than any context; keeps sums of lengths within 32 bits. */
const MOST_DRAWN = 2 ** 29;

export function drawLength(lengths: Lengths, uniform: Uniform): number {
  switch (lengths.kind) {
    case 'fixed':
      return lengths.tokens;
    case 'uniform':
      return lengths.least + Math.floor(uniform() * (lengths.most - lengths.least + 1));
    case 'lognormal': {
      const [mean, deviation] = logNormal(lengths);
      return Math.min(MOST_DRAWN, Math.max(1, Math.round(Math.exp(mean + deviation * normal(uniform)))));
    }
  }
}

export const meanLength = (lengths: Lengths): number =>
  lengths.kind === 'fixed'
    ? lengths.tokens
    : lengths.kind === 'uniform'
      ? (lengths.least + lengths.most) / 2
      : lengths.mean;

/** The shortest length that can be drawn. */
export const shortestLength = (lengths: Lengths): number =>
  lengths.kind === 'fixed' ? lengths.tokens : lengths.kind === 'uniform' ? lengths.least : 1;

/** Deviations of a lognormal's logarithm beyond which 3 of 100,000 draws lie. */
const TAIL_DEVIATIONS = 4;

/** The longest length that can be drawn; of a lognormal one that hardly a draw exceeds. */
export function longestLength(lengths: Lengths): number {
  if (lengths.kind !== 'lognormal') return lengths.kind === 'fixed' ? lengths.tokens : lengths.most;
  const [mean, deviation] = logNormal(lengths);
  return Math.min(MOST_DRAWN, Math.ceil(Math.exp(mean + TAIL_DEVIATIONS * deviation)));
}
