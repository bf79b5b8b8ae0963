/** The float64 reference of block_vectors, and the comparison of its outputs with it. */
import { dim, type Checker, type Scalars } from '../reference.js';
import type { Dims } from '../shared/block/block.reference.js';
import { evenRow, type Shape } from '../spec.js';
import { blockComponents } from './terms.js';

export const reference: Checker = {
  outputs: ['vectors'],
  rows: (shape) => (dim(shape, 'heads') * dim(shape, 'headDim')) / 2,
  row: (s, row) => {
    const { shape } = s.call;
    const pairs = dim(shape, 'headDim') / 2;
    const expected = blockVectorsRow(
      shape,
      s.options.pairing === 'adjacent',
      s.options.blockVectors?.group ?? dim(shape, 'heads') / dim(shape, 'kvHeads'),
      s.input,
      Math.floor(row / pairs),
      row % pairs,
    );
    return { expected, actual: (i) => s.output('vectors')(row * expected.length + i) };
  },
};

/** Vectors of one pair of a query head, [component] (a, b), the mean and padding after the latents'. */
function blockVectorsRow(
  shape: Shape,
  adjacent: boolean,
  group: number,
  input: (name: string) => Scalars,
  head: number,
  pair: number,
): number[] {
  const { kvHeads, rankK, headDim } = shape as Dims as Record<'kvHeads' | 'rankK' | 'headDim', number>;
  const [i, k] = adjacent ? [2 * pair, 2 * pair + 1] : [pair, pair + headDim / 2];
  const kvHead = Math.floor(head / group) % kvHeads;
  const w = (row: number, x: number): number =>
    x < rankK
      ? input('weights')((kvHead * headDim + row) * evenRow(rankK) + x)
      : x === rankK
        ? input('means')(kvHead * headDim + row)
        : 0;
  const [first, second] = [input('queries')(head * headDim + i), input('queries')(head * headDim + k)];
  return Array.from({ length: blockComponents(rankK) }, (_, x) => [
    first * w(i, x) + second * w(k, x),
    second * w(i, x) - first * w(k, x),
  ]).flat();
}
