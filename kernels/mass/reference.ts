/** The float64 reference of mass, and the comparison of its outputs with it. */
import { capacityOf } from '../host/cache-layout.js';
import { dim, type Checker } from '../reference.js';

export const reference: Checker = {
  outputs: ['mass'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const group = dim(s.call.shape, 'group');
    const slots = capacityOf(s.options.mass?.capacity ?? dim(s.call.shape, 'context'));
    const heads = Array.from({ length: group }, (_, i) => row * group + i);
    const stats = heads.map((head) => ({ m: s.input('stats')(2 * head), l: s.input('stats')(2 * head + 1) }));
    return {
      expected: Array.from(
        { length: slots },
        (_, slot) =>
          s.input('mass')(row * slots + slot) +
          pooledWeight(
            heads.map((head) => s.input('scores')(head * slots + slot)),
            stats,
          ),
      ),
      actual: (slot) => s.output('mass')(row * slots + slot),
    };
  },
};

/**
 * Softmax weight that the query heads of a row give one slot.
 * @param scores to base 2
 * @param stats  maximum (to base 2) and sum of each head
 */
export const pooledWeight = (scores: readonly number[], stats: readonly { m: number; l: number }[]): number =>
  scores.reduce((sum, score, head) => {
    const { m, l } = stats[head] as { m: number; l: number };
    return sum + 2 ** (score - m) / l;
  }, 0);
