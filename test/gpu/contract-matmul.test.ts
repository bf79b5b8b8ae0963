/** Products whose rows lie apart in wider buffers, share weights or add to what is there, against float64. */
import type { Tuning } from '../../kernels/options.js';
import './narrow.js';
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { describeGpu } from './device.js';
import { between, productErrors, type Product } from './products.js';
import { randomOf, SEED, type Random } from './random.js';

const TOLERANCE = 1e-5;

interface Case extends Product {
  /** Launched as on a software adapter. */
  software: boolean;
  tuning: Tuning;
}

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
      ...fixed.options,
    },
  };
}

async function check(device: Device, c: Case, seed: number): Promise<void> {
  const plan = planOperation(
    { kernel: 'matmul', variant: c.variant, shape: { groups: c.groups, m: c.m, k: c.k, n: c.n } },
    { matmul: c.options, software: c.software, tuning: c.tuning },
  );
  const where = `matmul ${JSON.stringify(c)}, LLA_SIM_SEED=${SEED}`;
  const { error } = await productErrors(device, plan, c, seed, where);
  expect(error, where).toBeLessThanOrEqual(TOLERANCE);
}

const EDGES: readonly Partial<Case>[] = [
  { groups: 1, m: 1, k: 1, n: 1 },
  { groups: 4, m: 1, k: 160, n: 128 },
  ...[true, false].map((accumulate) => ({ groups: 4, m: 100, k: 33, n: 27, options: { accumulate } })),
  { groups: 1, m: 1024, k: 64, n: 70 },
  { m: 8 },
  { m: 9 },
  ...[{}, {}, {}, {}],
  // Every vector kernel with and without shares of k, with rows past m, and steps of k past its end.
  ...[true, false].flatMap((software) =>
    [27, 96].flatMap((n) => [3, 7].map((m) => ({ variant: 'f16' as const, m, n, k: 261, software }))),
  ),
  { variant: 'f16', m: 5, n: 72, k: 333, software: true, tuning: { workgroup: 16, columns: 16, rows: 8, steps: 4 } },
  { variant: 'f16', m: 5, n: 72, k: 333, software: false, tuning: { workgroup: 64, columns: 8, rows: 2, steps: 1 } },
];

describeGpu('strided products against float64', (device) => {
  test('rows apart, shared weights, sums', async () => {
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
