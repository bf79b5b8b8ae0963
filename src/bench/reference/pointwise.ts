/**
 * Everything between attention calls in float64: the specification of the products, norms, rotary embedding and so on.
 */
import { pairsOf } from '../../kernels/matmul/launch.js';
import { rotaryFrequencies } from '../../gpu/rotary.js';
import type { Shape } from '../../kernels/spec.js';
import type { Scalars } from '../inputs.js';

type Input = (name: string) => Scalars;
const dim = (shape: Shape, name: string): number => shape[name] as number;

/** Row `row` (of group × m) of y = x W, columns [from, to). */
export function matmulRow(shape: Shape, input: Input, row: number, from: number, to: number): number[] {
  const [m, k] = [dim(shape, 'm'), dim(shape, 'k')];
  const stride = 2 * pairsOf(dim(shape, 'n'));
  const group = Math.floor(row / m);
  const x = input('x');
  const w = input('weights');
  return Array.from({ length: to - from }, (_, c) => {
    let sum = 0;
    for (let i = 0; i < k; i++) sum += x(row * k + i) * w((group * k + i) * stride + from + c);
    return sum;
  });
}

/** `norm`, `norm-add` or `add`; the target's own contents come in as `before`. */
export function rmsnormRow(shape: Shape, variant: string, eps: number, input: Input, row: number): number[] {
  const width = dim(shape, 'width');
  const x = (i: number): number => input('input')(row * width + i);
  let squares = 0;
  for (let i = 0; i < width; i++) squares += x(i) ** 2;
  const factor = 1 / Math.sqrt(squares / width + eps);
  return Array.from({ length: width }, (_, i) => {
    const normed = variant === 'add' ? x(i) : x(i) * factor * input('weight')(i);
    return variant === 'norm' ? normed : input('target')(row * width + i) + normed;
  });
}

/** One row of vectors, all heads, rotated by the row's position. */
export function ropeRow(shape: Shape, variant: string, ropeBase: number, input: Input, row: number): number[] {
  const [heads, headDim] = [dim(shape, 'heads'), dim(shape, 'headDim')];
  const half = headDim / 2;
  const theta = rotaryFrequencies(ropeBase, headDim);
  const position = input('positions')(row);
  const data = input('data');
  const out = new Array<number>(heads * headDim);
  for (let head = 0; head < heads; head++) {
    for (let m = 0; m < half; m++) {
      const [a, b] = variant === 'adjacent' ? [2 * m, 2 * m + 1] : [m, m + half];
      const at = head * headDim;
      const angle = position * (theta[m] as number);
      const [x, y] = [data((row * heads + head) * headDim + a), data((row * heads + head) * headDim + b)];
      out[at + a] = x * Math.cos(angle) - y * Math.sin(angle);
      out[at + b] = x * Math.sin(angle) + y * Math.cos(angle);
    }
  }
  return out;
}

export function swigluRow(shape: Shape, input: Input, row: number): number[] {
  const width = dim(shape, 'width');
  const data = input('input');
  return Array.from({ length: width }, (_, i) => {
    const gate = data(row * 2 * width + i);
    return (gate / (1 + Math.exp(-gate))) * data(row * 2 * width + width + i);
  });
}

export function embedRow(shape: Shape, input: Input, row: number): number[] {
  const width = dim(shape, 'width');
  const token = input('tokens')(row);
  return Array.from({ length: width }, (_, i) => input('embedding')(token * width + i));
}

/** The token with the largest logit, the lowest of equals. */
export function sampleRow(shape: Shape, input: Input, row: number): number[] {
  const vocab = dim(shape, 'vocab');
  const logits = input('logits');
  let best = 0;
  for (let i = 1; i < vocab; i++) if (logits(row * vocab + i) > logits(row * vocab + best)) best = i;
  return [best];
}
