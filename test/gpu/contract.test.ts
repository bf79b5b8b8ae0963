/** Every kernel against its float64 reference, over random shapes and the edges. Outputs are NaN before a run. */
import type { Placement } from '../../kernels/placement.js';
import './narrow.js';
import { test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import type { OperationOptions } from '../../src/gpu/index.js';
import type { KernelName } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { expectContract } from './contract-run.js';
import { describeGpu } from './device.js';
import { randomOf, SEED, type Random } from './random.js';

const RANDOM_SHAPES = 6;
/** Of a kernel that compiles anew for most shapes. */
const FEW_SHAPES = 1;

interface Contract {
  kernel: KernelName;
  variants: readonly string[];
  options?: (random: Random, shape: Shape) => OperationOptions;
  /** Shapes where mistakes are likeliest: one row of one, where none are given. */
  edges?: readonly Shape[];
  shape: (random: Random) => Shape;
  tolerance?: number;
  randomShapes?: number;
}

/** Rows side by side, or further apart in a longer buffer. */
const placed = (random: Random, width: number): Placement => {
  return { offset: random.pick([0, 0, 3]), stride: width + random.pick([0, 0, 1, 70]) };
};

/** Rows of a kernel whose inputs are so many times as wide as its outputs. */
const placedRows = (random: Random, s: Shape, times = 1) => ({
  placement: { input: placed(random, times * s.width!), output: placed(random, s.width!) },
});
const apart = (random: Random, s: Shape): OperationOptions => placedRows(random, s);
const rowsOf =
  (rows: number, width: number) =>
  (r: Random): Shape => ({ rows: r.whole(1, rows), width: r.whole(1, width) });
const ONE = { rows: 1, width: 1 };
const ONE_PAIR = { rows: 1, heads: 1, headDim: 2 };

const CONTRACTS: readonly Contract[] = [
  {
    kernel: 'matmul',
    variants: ['f16', 'f32'],
    edges: [
      { groups: 1, m: 1, k: 1, n: 1 },
      { groups: 3, m: 20, k: 7, n: 27 },
      { groups: 1, m: 1, k: 2048, n: 2048 },
      { groups: 16, m: 1, k: 128, n: 18 },
      { groups: 16, m: 8, k: 18, n: 128 },
      { groups: 1, m: 9, k: 17, n: 66 },
      { groups: 2, m: 64, k: 64, n: 64 },
      { groups: 1, m: 130, k: 100, n: 70 },
    ],
    shape: (r) => ({ groups: r.whole(1, 4), m: r.whole(1, 80), k: r.whole(1, 300), n: r.whole(1, 300) }),
    randomShapes: FEW_SHAPES,
  },
  {
    kernel: 'rmsnorm',
    variants: ['norm', 'norm-add', 'add'],
    options: apart,
    // More rows than one dimension of a grid may have workgroups.
    edges: [ONE, { rows: 2, width: 2048 }, { rows: 66_000, width: 3 }],
    shape: rowsOf(20, 3000),
  },
  {
    kernel: 'rope',
    variants: ['half-split', 'adjacent'],
    options: (random, s) => ({
      positions: 2 ** 20,
      ropeBase: random.pick([1e4, 5e4, 1e6, 7e7]),
      rope: ropeOptions(random, s),
    }),
    edges: [{ rows: 64, heads: 16, headDim: 128 }, ONE_PAIR],
    shape: (r) => ({ rows: r.whole(1, 30), heads: r.whole(1, 20), headDim: r.even(2, 128) }),
    // An angle of 1e6 rounded anywhere to f32 would be off by 0.03.
    tolerance: 4e-7,
  },
  {
    kernel: 'rope_kept',
    variants: ['half-split', 'adjacent'],
    options: (random, s) => ({
      positions: 2 ** 20,
      ropeBase: random.pick([1e4, 1e6, 7e7]),
      ropeKept: ropeKeptOptions(random, s),
    }),
    edges: [ONE_PAIR],
    shape: (r) => ({ rows: r.whole(1, 30), heads: r.whole(1, 12), headDim: r.even(2, 128) }),
    tolerance: 4e-7,
  },
  { kernel: 'swiglu', variants: ['f32'], options: (random, s) => placedRows(random, s, 2), shape: rowsOf(10, 3000) },
  {
    kernel: 'head_norm',
    variants: ['f32'],
    options: (random, s) => ({
      eps: random.pick([1e-5, 1e-6]),
      placement: { output: placed(random, s.heads! * s.headDim!) },
    }),
    edges: [{ rows: 1, heads: 1, headDim: 1 }],
    shape: (r) => ({ rows: r.whole(1, 20), heads: r.whole(1, 9), headDim: r.whole(1, 300) }),
  },
  { kernel: 'gate', variants: ['f32'], options: apart, shape: rowsOf(10, 3000) },
  {
    kernel: 'gate',
    variants: ['mix'],
    options: (random, s) => ({ current: { heads: random.pick([1, s.rows!]), group: 1 } }),
    shape: rowsOf(30, 300),
  },
  {
    kernel: 'gate',
    variants: ['change'],
    options: (random, s) => ({ placement: { output: { offset: random.whole(0, 3) * s.width!, stride: s.width! } } }),
    shape: rowsOf(30, 300),
  },
  {
    kernel: 'shift',
    variants: ['f32'],
    options: (random) => ({ factor: random.pick([1, 0.053]) }),
    shape: rowsOf(30, 300),
  },
  {
    kernel: 'accumulate',
    variants: ['begin', 'add'],
    options: (random, s) => ({ ...placedRows(random, s), factor: 1 / random.whole(1, 32) }),
    edges: [ONE, { rows: 3, width: 4096 }],
    shape: rowsOf(20, 3000),
  },
  {
    kernel: 'embed',
    variants: ['f16'],
    options: (random, s) => ({
      placement: { output: placed(random, s.width!) },
      embeddingColumns: random.pick([true, false]),
      vocabulary: random.whole(1, 3000),
    }),
    edges: [{ rows: 1, width: 2 }],
    shape: (r) => ({ rows: r.whole(1, 50), width: r.even(2, 700) }),
    tolerance: 0,
  },
];

/** Heads inside packed rows, and tokens among those of longer rows of positions. */
function ropeKeptOptions(random: Random, s: Shape): NonNullable<OperationOptions['ropeKept']> {
  const [rows, heads, headDim] = [s.rows!, s.heads!, s.headDim!];
  const first = random.whole(0, 9);
  return {
    data: placed(random, heads * headDim),
    pooled: random.pick([1, heads]),
    firstRow: random.whole(0, 3),
    first,
    capacity: first + rows + random.whole(0, 20),
  };
}

/** Heads inside packed rows, some of which go elsewhere, with or without bias. */
function ropeOptions(random: Random, s: Shape): NonNullable<OperationOptions['rope']> {
  const [heads, headDim] = [s.heads!, s.headDim!];
  const targetHeads = random.whole(0, heads);
  const head = headDim + random.pick([0, 5]);
  const data = placed(random, heads * headDim);
  return {
    data,
    ...(random.pick([true, false]) ? { target: { ...placed(random, heads * head), head }, targetHeads } : {}),
    positionOffset: random.pick([0, 0, 1000]),
    bias: random.pick([true, false]),
  };
}

describeGpu('kernels against float64', (device) => {
  for (const contract of CONTRACTS) {
    for (const variant of contract.variants) {
      test(`${contract.kernel} ${variant}`, async () => {
        // Variants share their code but for the element type: the edges are divided among them.
        const { variants, edges: all = [ONE] } = contract;
        const edges = all.filter((_, i) => i % variants.length === variants.indexOf(variant) || all.length < 3);
        for (let i = 0; i < edges.length + (contract.randomShapes ?? RANDOM_SHAPES); i++) {
          const seed = mix(SEED + i);
          const random = randomOf(seed);
          const shape = edges[i] ?? contract.shape(random);
          const options = contract.options?.(random, shape) ?? {};
          const call = { kernel: contract.kernel, variant, shape };
          await expectContract(device, call, options, seed, contract.tolerance);
        }
      });
    }
  }
});
