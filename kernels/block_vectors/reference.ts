/** The float64 reference of block_vectors, and the comparison of its outputs with it. */
import { dim, dimsOf, type Checker } from '../reference.js';
import { evenRow } from '../spec.js';
import { blockComponents } from './terms.js';

/** Vectors of one pair of a query head, [component] (a, b), the mean and padding after the latents'. */
export const reference: Checker = {
  outputs: ['vectors'],
  rows: (shape) => (dim(shape, 'heads') * dim(shape, 'headDim')) / 2,
  row: (s, row) => {
    const { heads, kvHeads, rankK, headDim } = dimsOf<'block_vectors'>(s);
    const [head, pair] = [Math.floor(row / (headDim / 2)), row % (headDim / 2)];
    const [i, k] = s.options.pairing === 'adjacent' ? [2 * pair, 2 * pair + 1] : [pair, pair + headDim / 2];
    const kvHead = Math.floor(head / (s.options.blockVectors?.group ?? heads / kvHeads)) % kvHeads;
    const w = (row: number, x: number): number =>
      x < rankK
        ? s.input('weights')((kvHead * headDim + row) * evenRow(rankK) + x)
        : x === rankK
          ? s.input('means')(kvHead * headDim + row)
          : 0;
    const [first, second] = [s.input('queries')(head * headDim + i), s.input('queries')(head * headDim + k)];
    const expected = Array.from({ length: blockComponents(rankK) }, (_, x) => [
      first * w(i, x) + second * w(k, x),
      second * w(i, x) - first * w(k, x),
    ]).flat();
    return { expected, actual: (x) => s.output('vectors')(row * expected.length + x) };
  },
};
