/**
 * Attention of one new token in float64, as the definition has it: scores over all cached tokens, softmax, weighted sum. It
 * reads the stored (rounded) values. The specification of the attend kernels.
 */
import { capacityOf } from '../../gpu/cache-layout.js';
import { rotaryFrequencies } from '../../gpu/rotary.js';
import type { Shape } from '../../schedule/kernels.js';
import { keyRow, valueRow, type Scalars } from '../inputs.js';

type Dims = Readonly<Record<string, number>>;

/** softmax(scores) · rows. */
function weightedSum(scores: Float64Array, width: number, row: (token: number, i: number) => number): number[] {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = scores.map((s) => Math.exp(s - top));
  const total = weights.reduce((a, b) => a + b, 0);
  const out = new Array<number>(width).fill(0);
  weights.forEach((p, token) => {
    for (let i = 0; i < width; i++) out[i] = (out[i] as number) + (p / total) * row(token, i);
  });
  return out;
}

/** Output of one query head (counted over all sequences) of `attend`. */
export function attendRow(shape: Shape, scale: number, input: (name: string) => Scalars, head: number): number[] {
  const { kvHeads, group, context, keyWidth, valueWidth, branchWidth, branchHeads } = shape as Dims as Record<'kvHeads' | 'group' | 'context' | 'keyWidth' | 'valueWidth' | 'branchWidth' | 'branchHeads', number>;
  const capacity = capacityOf(context);
  const row = Math.floor(head / group);
  const branchRow = branchHeads === 1 ? Math.floor(row / kvHeads) : row;
  const query = input('queries');
  const key = keyRow(input('keys'), capacity, keyWidth);
  const branch = branchWidth > 0 ? keyRow(input('branch'), capacity, branchWidth) : () => 0;
  const value = valueRow(input('values'), capacity, valueWidth);
  const q = Float64Array.from({ length: keyWidth + branchWidth }, (_, i) => query(head * (keyWidth + branchWidth) + i));
  const scores = new Float64Array(context);
  for (let t = 0; t < context; t++) {
    let dot = 0;
    for (let i = 0; i < keyWidth; i++) dot += (q[i] as number) * key(row, t, i);
    for (let i = 0; i < branchWidth; i++) dot += (q[keyWidth + i] as number) * branch(branchRow, t, i);
    scores[t] = scale * dot;
  }
  return weightedSum(scores, valueWidth, (t, i) => value(row, t, i));
}

/**
 * Output of one query head of attention over latents: k_t = W c_t + mu, rotated half-split by the token's position, against a
 * query that comes rotated; the value latents are summed as they are.
 */
export function attendLatentRow(shape: Shape, scale: number, ropeBase: number, input: (name: string) => Scalars, head: number, positionOf: (kvRow: number, token: number) => number): number[] {
  const { kvHeads, latentHeads, group, context, rankK, rankV, headDim } = shape as Dims as Record<'kvHeads' | 'latentHeads' | 'group' | 'context' | 'rankK' | 'rankV' | 'headDim', number>;
  const capacity = capacityOf(context);
  const kvRow = Math.floor(head / group);
  const kvHead = kvRow % kvHeads;
  const row = latentHeads === 1 ? Math.floor(kvRow / kvHeads) : kvRow;
  const half = headDim / 2;
  const theta = rotaryFrequencies(ropeBase, headDim);
  const query = input('queries');
  const weight = input('weights');
  const mean = input('means');
  const key = keyRow(input('keys'), capacity, rankK);
  const value = valueRow(input('values'), capacity, rankV);
  const q = Float64Array.from({ length: headDim }, (_, i) => query(head * headDim + i));
  const w = Float64Array.from({ length: headDim * rankK }, (_, i) => weight(kvHead * headDim * rankK + i));
  const mu = Float64Array.from({ length: headDim }, (_, i) => mean(kvHead * headDim + i));
  const c = new Float64Array(rankK);
  const component = (i: number): number => {
    let k = mu[i] as number;
    for (let r = 0; r < rankK; r++) k += (w[i * rankK + r] as number) * (c[r] as number);
    return k;
  };
  const scores = new Float64Array(context);
  for (let t = 0; t < context; t++) {
    for (let r = 0; r < rankK; r++) c[r] = key(row, t, r);
    const position = positionOf(kvRow, t);
    let dot = 0;
    for (let m = 0; m < half; m++) {
      const angle = position * (theta[m] as number);
      const [x, y] = [component(m), component(m + half)];
      dot += (q[m] as number) * (x * Math.cos(angle) - y * Math.sin(angle)) + (q[m + half] as number) * (x * Math.sin(angle) + y * Math.cos(angle));
    }
    scores[t] = scale * dot;
  }
  return weightedSum(scores, rankV, (t, i) => value(row, t, i));
}

/**
 * The rebuilt row of one token: W c + mu, rotated half-split by `position`, or as it is where that is null.
 * @param row KV head, counted over all sequences
 */
export function rebuiltRow(shape: Shape, ropeBase: number, input: (name: string) => Scalars, row: number, token: number, position: number | null): number[] {
  const { kvHeads, latentHeads, context, rank, headDim } = shape as Dims as Record<'kvHeads' | 'latentHeads' | 'context' | 'rank' | 'headDim', number>;
  const latentRow = latentHeads === 1 ? Math.floor(row / kvHeads) : row;
  const key = keyRow(input('keys'), capacityOf(context), rank);
  const head = (row % kvHeads) * headDim;
  const x = Array.from({ length: headDim }, (_, i) => {
    let sum = input('means')(head + i);
    for (let r = 0; r < rank; r++) sum += input('weights')((head + i) * rank + r) * key(latentRow, token, r);
    return sum;
  });
  if (position === null) return x;
  const half = headDim / 2;
  const theta = rotaryFrequencies(ropeBase, headDim);
  return x.map((value, i) => {
    const angle = position * (theta[i % half] as number);
    return i < half ? value * Math.cos(angle) - (x[i + half] as number) * Math.sin(angle) : value * Math.cos(angle) + (x[i - half] as number) * Math.sin(angle);
  });
}

/** Folds split partials [o, m, l] (m to base 2) of one row into its output. */
export function mergedRow(partial: Scalars, row: number, splits: number, width: number): number[] {
  const at = (split: number, i: number): number => partial((row * splits + split) * (width + 2) + i);
  let top = -Infinity;
  for (let s = 0; s < splits; s++) top = Math.max(top, at(s, width));
  let total = 0;
  const out = new Array<number>(width).fill(0);
  for (let s = 0; s < splits; s++) {
    const fade = 2 ** (at(s, width) - top);
    total += fade * at(s, width + 1);
    for (let i = 0; i < width; i++) out[i] = (out[i] as number) + fade * at(s, i);
  }
  return out.map((x) => x / total);
}
