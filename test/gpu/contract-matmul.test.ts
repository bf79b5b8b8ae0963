/**
 * Products whose rows lie apart in wider buffers, share weights or add to what is there: against float64, gaps
 * untouched.
 */
import type { MatmulOptions, Rows, Tuning } from '../../kernels/options.js';
import './narrow.js';
import { expect, test } from 'vitest';
import { mix } from '../../src/hash.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { pairsOf } from '../../kernels/matmul/launch.js';
import { describeGpu } from './device.js';
import { randomOf, SEED, type Random } from './random.js';
import { randomSingles, runPlan, wordsIn } from './run-plan.js';

const TOLERANCE = 1e-5;

interface Case {
  variant: 'f16' | 'f32';
  groups: number;
  m: number;
  k: number;
  n: number;
  /** Launched as on a software adapter. */
  software: boolean;
  tuning: Tuning;
  options: MatmulOptions;
}

/**
 * [sequence][group][width] with gaps, as activations of heads lie: rows are sequences. Or [group][sequence][width],
 * where a row past the last is another group's.
 */
const between = (r: Random, { groups, m }: Pick<Case, 'groups' | 'm'>, width: number): Required<Rows> => {
  const [offset, inner, gap] = [r.whole(0, 9), width + r.whole(0, 3), r.whole(0, 5)];
  return r.pick([true, false])
    ? { offset, group: inner, row: groups * inner + gap }
    : { offset, row: inner, group: m * inner + gap };
};

function caseOf(r: Random, fixed: Partial<Case>): Case {
  const weightGroup = r.pick([1, 2, 4]);
  const c = {
    variant: r.pick(['f16', 'f32'] as const),
    groups: weightGroup * r.whole(1, 3),
    m: r.pick([1, 3, 8, 9, 40, 70]),
    k: r.whole(1, 150),
    n: r.pick([r.whole(1, 150), 8 * r.whole(1, 20)]),
    software: r.pick([true, false]),
    tuning: {},
    ...fixed,
  };
  return {
    ...c,
    options: {
      x: between(r, c, c.k),
      y: between(r, c, c.n),
      weightGroup: c.groups % weightGroup === 0 ? weightGroup : 1,
      accumulate: r.pick([true, false]),
      transposed: fixed.software === undefined && r.pick([true, false]),
    },
  };
}

async function check(device: Device, c: Case, seed: number): Promise<void> {
  const plan = planOperation(
    { kernel: 'matmul', variant: c.variant, shape: { groups: c.groups, m: c.m, k: c.k, n: c.n } },
    { matmul: c.options, software: c.software, tuning: c.tuning },
  );
  const [x, before] = [randomSingles(mix(seed), wordsIn(plan, 'x')), randomSingles(mix(seed + 1), wordsIn(plan, 'y'))];
  const { weightGroup = 1, transposed = false } = c.options;
  const [rows, stride] = transposed ? [c.n, 2 * pairsOf(c.k)] : [c.k, 2 * pairsOf(c.n)];
  const count = (c.groups / weightGroup) * rows * stride;
  const halves = Uint16Array.from(randomSingles(mix(seed + 2), count), halfBits);
  const weights =
    c.variant === 'f16' ? Float64Array.from(halves, halfValue) : Float64Array.from(randomSingles(mix(seed + 2), count));
  const result = new Float32Array(
    (
      await runPlan(device, plan, {
        x,
        y: before,
        weights: c.variant === 'f16' ? new Uint32Array(halves.buffer) : Float32Array.from(weights),
      })
    )('y').buffer,
  );
  const expected = Float64Array.from(before);
  const at = (rows: Rows | undefined, width: number, g: number, row: number): number =>
    (rows?.offset ?? 0) + g * (rows?.group ?? c.m * width) + row * (rows?.row ?? width);
  const written = new Set<number>();
  let [difference, norm] = [0, 0];
  for (let g = 0; g < c.groups; g++) {
    for (let row = 0; row < c.m; row++) {
      for (let j = 0; j < c.n; j++) {
        const out = at(c.options.y, c.n, g, row) + j;
        let sum = c.options.accumulate ? (expected[out] as number) : 0;
        for (let i = 0; i < c.k; i++)
          sum +=
            (x[at(c.options.x, c.k, g, row) + i] as number) *
            (weights[
              (Math.floor(g / weightGroup) * rows + (transposed ? j : i)) * stride + (transposed ? i : j)
            ] as number);
        written.add(out);
        difference += ((result[out] as number) - sum) ** 2;
        norm += sum ** 2;
      }
    }
  }
  const where = `matmul ${JSON.stringify(c)}, LLA_SIM_SEED=${SEED}`;
  expect(written.size, where).toBe(c.groups * c.m * c.n);
  expect(Math.sqrt(difference / norm), where).toBeLessThanOrEqual(TOLERANCE);
  expect(
    before.findIndex((value, i) => !written.has(i) && value !== result[i]),
    `float changed beside the rows: ${where}`,
  ).toBe(-1);
}

const EDGES: readonly Partial<Case>[] = [
  { groups: 1, m: 1, k: 1, n: 1 },
  { groups: 4, m: 1, k: 160, n: 128 },
  { groups: 4, m: 100, k: 33, n: 27 },
  { groups: 1, m: 1024, k: 64, n: 70 },
  { m: 8 },
  { m: 9 },
  {},
  {},
  {},
  {},
  // Every vector kernel with and without shares of k, with rows past m, and steps of k past its end.
  ...[true, false].flatMap((software) =>
    [27, 96].flatMap((n) => [3, 7].map((m) => ({ variant: 'f16' as const, m, n, k: 261, software }))),
  ),
  { variant: 'f16', m: 5, n: 72, k: 333, software: true, tuning: { workgroup: 16, columns: 16, rows: 8, steps: 4 } },
  { variant: 'f16', m: 5, n: 72, k: 333, software: false, tuning: { workgroup: 64, columns: 8, rows: 2, steps: 1 } },
];

describeGpu('strided products against float64', (device) => {
  test('rows apart, shared weights, sums', { timeout: 60_000 }, async () => {
    for (const [i, edge] of EDGES.entries()) await check(device, caseOf(randomOf(mix(SEED + i)), edge), mix(SEED + i));
  });
});

test('rows of y that overlap are refused', () => {
  const call = { kernel: 'matmul', variant: 'f16', shape: { groups: 2, m: 3, k: 4, n: 8 } } as const;
  expect(() => planOperation(call, { matmul: { y: { row: 7 } } })).toThrow(/overlap/);
  expect(() => planOperation(call, { matmul: { weightGroup: 3 } })).toThrow(/share weights/);
  expect(() => planOperation(call, { tuning: { columns: 24 } })).toThrow(/128 threads are not whole rows of 24/);
  expect(() => planOperation(call, { tuning: { steps: 8 } })).toThrow(/at most 8 rows and 4 steps/);
});
