/** Random draws from a seeded stream of uniform numbers. */
import { randomFrom } from '../random.js';

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

export function drawLength(lengths: Lengths, uniform: Uniform, most: number): number {
  switch (lengths.kind) {
    case 'fixed':
      return Math.min(most, lengths.tokens);
    case 'uniform':
      return Math.min(most, lengths.least + Math.floor(uniform() * (lengths.most - lengths.least + 1)));
    case 'lognormal': {
      const ratio = lengths.deviation / lengths.mean;
      const variance = Math.log(1 + ratio * ratio);
      const value = Math.exp(Math.log(lengths.mean) - variance / 2 + Math.sqrt(variance) * normal(uniform));
      return Math.min(most, Math.max(1, Math.round(value)));
    }
  }
}

export const meanLength = (lengths: Lengths): number =>
  lengths.kind === 'fixed'
    ? lengths.tokens
    : lengths.kind === 'uniform'
      ? (lengths.least + lengths.most) / 2
      : lengths.mean;
