/** Every kernel against its float64 reference, over random shapes and the edges. Outputs are NaN before a run. */
import { expect, test } from 'vitest';
import { makeOperands, mix } from '../../src/bench/inputs.js';
import { relativeError } from '../../src/bench/verify.js';
import { planOperation, type Device, type OperationOptions } from '../../src/gpu/index.js';
import type { KernelCall, KernelName, Shape } from '../../src/schedule/kernels.js';
import { describeGpu } from './device.js';
import { randomOf, SEED, type Random } from './random.js';

/** Random shapes of a kernel and variant, unless it is slow to compile in software. */
const RANDOM_SHAPES = 6;
const FEW_SHAPES = 2;
const TOLERANCE = 1e-5;

interface Contract {
  kernel: KernelName;
  variants: readonly string[];
  options?: (random: Random, shape: Shape) => OperationOptions;
  /** Shapes where mistakes are likeliest. */
  edges: readonly Shape[];
  shape: (random: Random) => Shape;
  tolerance?: number;
  randomShapes?: number;
}

const CONTEXTS = [1, 31, 32, 33, 255, 256, 300, 1000, 4095] as const;
/** Scores with a spread of a few units, so that softmax is neither flat nor one token. */
const sharp = (width: number): number => 4 * width ** -0.5;

const attendShape = (random: Random): Shape => ({
  sequences: random.whole(1, 3),
  kvHeads: random.whole(1, 3),
  group: random.pick([1, 1, 2, 3, 4, 6, 8]),
  context: random.pick(CONTEXTS),
  keyWidth: random.even(2, 160),
  valueWidth: random.even(2, 200),
  branchWidth: random.pick([0, 0, 16, 64]),
  branchHeads: 1,
  splits: random.whole(1, 9),
});
const latentShape = (random: Random): Shape => latent(random.whole(1, 3), random.pick([false, false, true]), {
  sequences: random.whole(1, 2),
  group: random.pick([1, 1, 2, 4, 6]),
  context: random.pick(CONTEXTS),
  rankK: random.even(2, 120),
  rankV: random.even(2, 200),
  headDim: random.pick([16, 36, 64, 96, 128]),
  splits: random.whole(1, 5),
});
// A shared latent serves all KV heads (LLA-2D, mla-head).
const latent = (kvHeads: number, shared: boolean, shape: Shape): Shape => ({ ...shape, kvHeads, latentHeads: shared ? 1 : kvHeads, macsPerRank: 26 });
const LATENT_EDGES: Shape[] = [
  { sequences: 1, kvHeads: 2, latentHeads: 2, group: 1, context: 1, rankK: 18, rankV: 30, headDim: 128, macsPerRank: 26, splits: 4 },
  { sequences: 1, kvHeads: 2, latentHeads: 2, group: 1, context: 4095, rankK: 96, rankV: 160, headDim: 128, macsPerRank: 26, splits: 3 },
  { sequences: 2, kvHeads: 1, latentHeads: 1, group: 4, context: 700, rankK: 36, rankV: 60, headDim: 64, macsPerRank: 26, splits: 2 },
  { sequences: 1, kvHeads: 1, latentHeads: 1, group: 1, context: 70, rankK: 600, rankV: 600, headDim: 20, macsPerRank: 26, splits: 1 },
];

/** Rotary bases by head width: each base has its own functions, and compiles anew. */
const BASES = new Map([[16, 7e7], [36, 5e4], [64, 1e4], [96, 5e4]]);

const CONTRACTS: readonly Contract[] = [
  {
    kernel: 'attend',
    variants: ['f16', 'f32'],
    options: (_, s) => ({ scale: sharp((s.keyWidth as number) + (s.branchWidth as number)) }),
    edges: [
      { sequences: 1, kvHeads: 1, group: 1, context: 1, keyWidth: 2, valueWidth: 2, branchWidth: 0, branchHeads: 1, splits: 1 },
      { sequences: 1, kvHeads: 2, group: 1, context: 5, keyWidth: 128, valueWidth: 128, branchWidth: 0, branchHeads: 1, splits: 7 },
      { sequences: 2, kvHeads: 3, group: 1, context: 999, keyWidth: 96, valueWidth: 160, branchWidth: 64, branchHeads: 3, splits: 3 },
      { sequences: 2, kvHeads: 3, group: 4, context: 999, keyWidth: 96, valueWidth: 160, branchWidth: 64, branchHeads: 1, splits: 3 },
      { sequences: 1, kvHeads: 1, group: 16, context: 200, keyWidth: 1536, valueWidth: 2560, branchWidth: 0, branchHeads: 1, splits: 2 },
      { sequences: 1, kvHeads: 1, group: 55, context: 130, keyWidth: 96, valueWidth: 96, branchWidth: 0, branchHeads: 1, splits: 1 },
    ],
    shape: attendShape,
    randomShapes: 4,
  },
  { kernel: 'attend_rebuild', variants: ['f16', 'f32'], options: (random, s) => ({ scale: sharp((s.rankK as number) * (s.headDim as number)), positions: 2 ** 20, ropeBase: random.pick([1e4, 1e6, 7e7]), positionsOf: random.pick(['all', 'sequence', 'head'] as const) }), edges: LATENT_EDGES, shape: latentShape, randomShapes: FEW_SHAPES },
  {
    kernel: 'rebuild',
    variants: ['rope', 'plain'],
    options: (random) => ({ positions: 2 ** 20, ropeBase: random.pick([1e4, 1e6, 7e7]) }),
    edges: [{ sequences: 1, kvHeads: 1, latentHeads: 1, context: 1, rank: 2, headDim: 4 }, { sequences: 2, kvHeads: 3, latentHeads: 1, context: 300, rank: 96, headDim: 128 }],
    shape: (r) => ({ ...latent(r.whole(1, 3), r.pick([true, false]), {}), sequences: r.whole(1, 2), context: r.pick(CONTEXTS.slice(0, 8)), rank: r.even(2, 120), headDim: r.pick([12, 64, 96]) }),
    randomShapes: FEW_SHAPES,
    // Results are stored as halves: one result alone may be off by half a unit of its last place, 2^-11.
    tolerance: 5e-4,
  },
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
  },
  {
    kernel: 'rmsnorm',
    variants: ['norm', 'norm-add', 'add'],
    edges: [{ rows: 1, width: 1 }, { rows: 2, width: 2048 }],
    shape: (r) => ({ rows: r.whole(1, 20), width: r.whole(1, 3000) }),
  },
  {
    kernel: 'rope',
    variants: ['half-split', 'adjacent'],
    options: (random) => ({ positions: 2 ** 20, ropeBase: random.pick([1e4, 5e4, 1e6, 7e7]) }),
    edges: [{ rows: 64, heads: 16, headDim: 128 }, { rows: 1, heads: 1, headDim: 2 }],
    shape: (r) => ({ rows: r.whole(1, 30), heads: r.whole(1, 20), headDim: r.even(2, 128) }),
    // An angle of 1e6 rounded anywhere to f32 would be off by 0.03.
    tolerance: 4e-7,
  },
  { kernel: 'swiglu', variants: ['f32'], edges: [{ rows: 1, width: 1 }], shape: (r) => ({ rows: r.whole(1, 10), width: r.whole(1, 3000) }) },
  { kernel: 'embed', variants: ['f16'], edges: [{ rows: 1, width: 2 }], shape: (r) => ({ rows: r.whole(1, 50), width: r.even(2, 700) }), tolerance: 0 },
];

async function errorOf(device: Device, call: KernelCall, options: OperationOptions, seed: number): Promise<number> {
  const plan = planOperation(call, options);
  const operands = await makeOperands(device, plan, seed);
  try {
    const steps = await device.bindAll(plan, operands.buffers);
    await device.run(steps);
    return await relativeError(device, call, plan, operands, options, seed);
  } finally {
    device.free(...operands.buffers.values());
  }
}

describeGpu('kernels against float64', (device) => {
  for (const contract of CONTRACTS) {
    for (const variant of contract.variants) {
      test(`${contract.kernel} ${variant}`, { timeout: 120_000 }, async () => {
        // Variants share their code but for the element type: the edges are divided among them.
        const edges = contract.edges.filter((_, i) => i % contract.variants.length === contract.variants.indexOf(variant) || contract.edges.length < 3);
        for (let i = 0; i < edges.length + (contract.randomShapes ?? RANDOM_SHAPES); i++) {
          const seed = mix(SEED + i);
          const random = randomOf(seed);
          const shape = edges[i] ?? contract.shape(random);
          const options = contract.options?.(random, shape) ?? {};
          const error = await errorOf(device, { kernel: contract.kernel, variant, shape }, options, seed);
          const where = `${contract.kernel} ${variant} ${JSON.stringify(shape)} ${JSON.stringify(options)}, LLA_SIM_SEED=${SEED}`;
          expect(error <= (contract.tolerance ?? TOLERANCE), `relative error ${error} at ${where}`).toBe(true);
        }
      });
    }
  }
});
