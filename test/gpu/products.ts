/** Products whose rows lie apart in wider buffers, share weights or add to what is there, against float64. */
import { expect } from 'vitest';
import { pairsOf } from '../../kernels/matmul/launch.js';
import type { MatmulOptions } from '../../kernels/options.js';
import type { Rows } from '../../kernels/placement.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import type { Device, OperationPlan } from '../../src/gpu/index.js';
import { mix } from '../../src/numbers/hash.js';
import type { Random } from './random.js';
import { randomSingles, runPlan, wordsIn } from './run-plan.js';

export interface Product {
  variant: 'f16' | 'f32';
  groups: number;
  m: number;
  k: number;
  n: number;
  options: MatmulOptions;
}

/**
 * [sequence][group][width] with gaps, as activations of heads lie: rows are sequences. Or [group][sequence][width],
 * where a row past the last is another group's, unless there are rows to spare.
 */
export function between(
  r: Random,
  { groups, m }: Pick<Product, 'groups' | 'm'>,
  width: number,
  spareRows = 0,
): Required<Rows> {
  const [offset, inner, gap] = [r.whole(0, 9), width + r.whole(0, 3), r.whole(0, 5)];
  return r.pick([true, false])
    ? { offset, group: inner, row: groups * inner + gap }
    : { offset, row: inner, group: (m + spareRows) * inner + gap };
}

/**
 * Runs a product on random operands and expects that it writes its rows alone.
 * @param scaleOf factor of activation `i`
 * @returns relative errors against float64: over the activations as they are, and over those rounded to f16
 */
export async function productErrors(
  device: Device,
  plan: OperationPlan,
  c: Product,
  seed: number,
  where: string,
  scaleOf: (i: number) => number = () => 1,
): Promise<{ readonly error: number; readonly rounded: number }> {
  const x = randomSingles(mix(seed), wordsIn(plan, 'x')).map((value, i) => value * scaleOf(i));
  const before = randomSingles(mix(seed + 1), wordsIn(plan, 'y'));
  const { weightGroup = 1, transposed = false, accumulate = false } = c.options;
  const [rows, stride] = transposed ? [c.n, 2 * pairsOf(c.k)] : [c.k, 2 * pairsOf(c.n)];
  const singles = randomSingles(mix(seed + 2), (c.groups / weightGroup) * rows * stride);
  const halves = Uint16Array.from(singles, halfBits);
  const weights = c.variant === 'f16' ? Float64Array.from(halves, halfValue) : Float64Array.from(singles);
  const stored = c.variant === 'f16' ? new Uint32Array(halves.buffer) : singles;
  const result = new Float32Array((await runPlan(device, plan, { x, y: before, weights: stored }))('y').buffer);
  const at = (rows: Rows | undefined, width: number, g: number, row: number): number =>
    (rows?.offset ?? 0) + g * (rows?.group ?? c.m * width) + row * (rows?.row ?? width);
  const written = new Set<number>();
  let [difference, roundedDifference, norm] = [0, 0, 0];
  for (let g = 0; g < c.groups; g++) {
    for (let row = 0; row < c.m; row++) {
      const from = at(c.options.x, c.k, g, row);
      const own = x.subarray(from, from + c.k);
      const halved = Float64Array.from(own, (value) => halfValue(halfBits(value)));
      for (let j = 0; j < c.n; j++) {
        const out = at(c.options.y, c.n, g, row) + j;
        const had = accumulate ? before[out]! : 0;
        let [sum, rounded] = [had, had];
        for (let i = 0; i < c.k; i++) {
          const place = (Math.floor(g / weightGroup) * rows + (transposed ? j : i)) * stride + (transposed ? i : j);
          sum += own[i]! * weights[place]!;
          rounded += halved[i]! * weights[place]!;
        }
        written.add(out);
        difference += (result[out]! - sum) ** 2;
        roundedDifference += (result[out]! - rounded) ** 2;
        norm += sum ** 2;
      }
    }
  }
  expect(written.size, where).toBe(c.groups * c.m * c.n);
  const changed = before.findIndex((value, i) => !written.has(i) && value !== result[i]);
  expect(changed, `float changed beside the rows: ${where}`).toBe(-1);
  return { error: Math.sqrt(difference / norm), rounded: Math.sqrt(roundedDifference / norm) };
}
