/** Products whose rows lie apart in wider buffers, share weights or add to what is there: against float64, gaps untouched. */
import { expect, test } from 'vitest';
import { mix } from '../../src/hash.js';
import { halfBits, halfValue } from '../../src/gpu/half.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { pairsOf, type MatmulOptions, type Rows } from '../../src/gpu/operations/matmul.js';
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
  options: MatmulOptions;
}

/** [sequence][group][width] with gaps, as activations of heads lie: rows are sequences. */
const between = (r: Random, groups: number, width: number): Required<Rows> => {
  const group = width + r.whole(0, 3);
  return { offset: r.whole(0, 9), group, row: groups * group + r.whole(0, 5) };
};

function caseOf(r: Random, fixed: Partial<Case>): Case {
  const weightGroup = r.pick([1, 2, 4]);
  const c = { variant: r.pick(['f16', 'f32'] as const), groups: weightGroup * r.whole(1, 3), m: r.pick([1, 3, 8, 9, 40, 70]), k: r.whole(1, 150), n: r.whole(1, 150), ...fixed };
  return { ...c, options: { x: between(r, c.groups, c.k), y: between(r, c.groups, c.n), weightGroup: c.groups % weightGroup === 0 ? weightGroup : 1, accumulate: r.pick([true, false]), transposed: r.pick([true, false]) } };
}

async function check(device: Device, c: Case, seed: number): Promise<void> {
  const plan = planOperation({ kernel: 'matmul', variant: c.variant, shape: { groups: c.groups, m: c.m, k: c.k, n: c.n } }, { matmul: c.options });
  const [x, before] = [randomSingles(mix(seed), wordsIn(plan, 'x')), randomSingles(mix(seed + 1), wordsIn(plan, 'y'))];
  const { weightGroup = 1, transposed = false } = c.options;
  const [rows, stride] = transposed ? [c.n, 2 * pairsOf(c.k)] : [c.k, 2 * pairsOf(c.n)];
  const count = (c.groups / weightGroup) * rows * stride;
  const halves = Uint16Array.from(randomSingles(mix(seed + 2), count), halfBits);
  const weights = c.variant === 'f16' ? Float64Array.from(halves, halfValue) : Float64Array.from(randomSingles(mix(seed + 2), count));
  const result = new Float32Array((await runPlan(device, plan, { x, y: before, weights: c.variant === 'f16' ? new Uint32Array(halves.buffer) : Float32Array.from(weights) }))('y').buffer);
  const expected = Float64Array.from(before);
  const at = (rows: Rows | undefined, width: number, g: number, row: number): number => (rows?.offset ?? 0) + g * (rows?.group ?? c.m * width) + row * (rows?.row ?? width);
  const written = new Set<number>();
  let [difference, norm] = [0, 0];
  for (let g = 0; g < c.groups; g++) {
    for (let row = 0; row < c.m; row++) {
      for (let j = 0; j < c.n; j++) {
        const out = at(c.options.y, c.n, g, row) + j;
        let sum = c.options.accumulate ? (expected[out] as number) : 0;
        for (let i = 0; i < c.k; i++) sum += (x[at(c.options.x, c.k, g, row) + i] as number) * (weights[(Math.floor(g / weightGroup) * rows + (transposed ? j : i)) * stride + (transposed ? i : j)] as number);
        written.add(out);
        difference += ((result[out] as number) - sum) ** 2;
        norm += sum ** 2;
      }
    }
  }
  const where = `matmul ${JSON.stringify(c)}, LLA_SIM_SEED=${SEED}`;
  expect(written.size, where).toBe(c.groups * c.m * c.n);
  expect(Math.sqrt(difference / norm), where).toBeLessThanOrEqual(TOLERANCE);
  expect(before.findIndex((value, i) => !written.has(i) && value !== result[i]), `float changed beside the rows: ${where}`).toBe(-1);
}

const EDGES: readonly Partial<Case>[] = [{ groups: 1, m: 1, k: 1, n: 1 }, { groups: 4, m: 1, k: 160, n: 128 }, { groups: 4, m: 100, k: 33, n: 27 }, { groups: 1, m: 1024, k: 64, n: 70 }, { m: 8 }, { m: 9 }, {}, {}, {}, {}];

describeGpu('strided products against float64', (device) => {
  test('rows apart, shared weights, sums', { timeout: 60_000 }, async () => {
    for (const [i, edge] of EDGES.entries()) await check(device, caseOf(randomOf(mix(SEED + i)), edge), mix(SEED + i));
  });
});

test('rows of y that overlap are refused', () => {
  const call = { kernel: 'matmul', variant: 'f16', shape: { groups: 2, m: 3, k: 4, n: 8 } } as const;
  expect(() => planOperation(call, { matmul: { y: { row: 7 } } })).toThrow(/overlap/);
  expect(() => planOperation(call, { matmul: { weightGroup: 3 } })).toThrow(/share weights/);
});
