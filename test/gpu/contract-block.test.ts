/** Block-absorbed attention and its set-up against float64, alone and one after the other. */
import { expect, test } from 'vitest';
import { makeOperands } from '../../src/bench/inputs.js';
import { mix } from '../../src/numbers/hash.js';
import { attendLatentRow } from '../../kernels/attend_rebuild/reference.js';
import { mergedRow, runOver } from '../../kernels/shared/attention/attention.reference.js';
import { cacheRow, capacityOf } from '../../kernels/host/cache-layout.js';
import { bufferOf, planOperation, type OperationOptions } from '../../src/gpu/index.js';
import { blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import type { Shape } from '../../kernels/spec.js';
import { expectContract, scoreTolerance, TOLERANCE } from './contract-run.js';
import { describeGpu } from './device.js';
import { everyNth } from './sample.js';
import { randomOf, SEED, type Random } from './random.js';

/** The shape of a call with the block plan's share. */
function withBlock(shape: Shape, ropeBase: number): Shape {
  const { blockTokens, functions } = blockPlan(ropeBase, shape.headDim!);
  return { ...shape, blockTokens, functions };
}
const HEADS = { sequences: 1, kvHeads: 2, latentHeads: 2, group: 1 };
const LONG = { ...HEADS, context: 1000, rankK: 96, rankV: 160, headDim: 128, groupSize: 0, splits: 3 };
const SMALL = { ...LONG, headDim: 64, rankK: 27, rankV: 45, context: 300, splits: 2 };
/** Scores with a spread of a few units, so that softmax is neither flat nor one token. */
const scaleOf = (s: Shape): number => 4 * (s.rankK! * s.headDim!) ** -0.5;
/** The same of a random basis. */
const basisScale = (s: Shape): number => 4 * (s.rankK! * s.functions!) ** -0.5;
const FIRST = [0, 12_345, 900_001] as const;
/** A ragged batch: a ring that wraps after pinned tokens, and a short one. */
const ragged = {
  pinned: 37,
  capacity: 352,
  spans: [
    { pinned: 37, firstPosition: 1234, ring: 300 },
    { pinned: 5, firstPosition: 999_983, ring: 11 },
  ],
};

interface Case {
  name: string;
  variant: string;
  shape: Shape;
  base: number;
  options: (random: Random) => OperationOptions;
}
/** One a seed, or all on demand: a pipeline takes a software adapter up to half a minute to compile. */
const OTHER_STORAGES = Object.entries({ f32: 0, q8: 32, q4: 32, q3: 64, q2: 32 }).map(([variant, groupSize]): Case => {
  const own = variant === 'q4' ? { sequences: 2 } : {};
  const shape = { ...SMALL, groupSize, headDim: 36, ...own };
  return { name: variant, variant, shape, base: 5e4, options: () => (variant === 'q4' ? { run: ragged } : {}) };
});
const CASES: readonly Case[] = [
  {
    name: 'whole units',
    variant: 'f16',
    shape: LONG,
    base: 1e6,
    options: (r) => ({ run: { firstPosition: r.pick(FIRST) } }),
  },
  {
    name: 'odd ranks, one latent for all heads, grouped queries',
    variant: 'f16',
    shape: { ...SMALL, latentHeads: 1, group: 3 },
    base: 1e4,
    options: (r) => ({ run: { firstPosition: r.pick(FIRST) } }),
  },
  {
    name: 'a wrapped ring after pinned tokens, scores kept',
    variant: 'f16+scores',
    shape: { ...SMALL, sequences: 2 },
    base: 1e4,
    options: () => ({ run: ragged }),
  },
  {
    name: 'launched as on a GPU, two blocks at a time',
    variant: 'f16',
    shape: { ...SMALL, headDim: 36, context: 900 },
    base: 5e4,
    options: () => ({ software: false, tuning: { ways: 2 } }),
  },
];

describeGpu('block-absorbed attention against float64', (device) => {
  const cases = [...everyNth(CASES, 4), ...everyNth(OTHER_STORAGES, OTHER_STORAGES.length)];
  for (const { name, variant, shape, base, options } of cases) {
    test(name, async () => {
      const own = options(randomOf(mix(SEED)));
      const blocks = withBlock(shape, base);
      const all: OperationOptions = { software: true, ropeBase: base, scale: basisScale(blocks), ...own };
      const call = { kernel: 'attend_block_absorbed', variant, shape: blocks } as const;
      await expectContract(device, call, all, mix(SEED), scoreTolerance);
    });
  }

  test.each([
    [{ heads: 6, kvHeads: 3, rankK: 27, headDim: 64 }, { pairing: 'adjacent' }],
    [{ heads: 12, kvHeads: 3, rankK: 96, headDim: 128 }, { blockVectors: { group: 2 } }],
    [{ heads: 1, kvHeads: 1, rankK: 1, headDim: 2 }, {}],
  ] as [Shape, OperationOptions][])('block_vectors %j %j', async (shape, options) => {
    const call = { kernel: 'block_vectors', variant: 'f16', shape } as const;
    await expectContract(device, call, options, mix(SEED), 1e-6);
  });

  test.each([
    ['whole quads, three heads', { sequences: 1, heads: 3, context: 700, rankK: 96, headDim: 128 }, 1e6, {}],
    [
      'an odd rank, a ragged batch far out',
      { sequences: 2, heads: 2, context: 300, rankK: 27, headDim: 64 },
      1e4,
      { run: ragged },
    ],
    ['few pairs', { sequences: 1, heads: 1, context: 5, rankK: 1, headDim: 2 }, 7e7, {}],
  ] as [string, Shape, number, OperationOptions][])('block_basis: %s', async (_, shape, ropeBase, options) => {
    const { blockTokens, functions, setupPerRank } = blockPlan(ropeBase, shape.headDim!);
    const all = { ...shape, blockTokens, functions, setupPerRank };
    const call = { kernel: 'block_basis', variant: 'f32', shape: all } as const;
    await expectContract(device, call, { ropeBase, ...options }, mix(SEED), 2e-6);
  });

  test.each(['half-split', 'adjacent'] as const)(
    'all three in a row are attention over rebuilt keys with %s pairs',
    async (pairing) => {
      const shape = withBlock({ ...SMALL, group: 2, sequences: 2 }, 1e4);
      const scale = scaleOf(shape) / 2;
      const run = { firstPosition: 900_001 };
      const vectorsPlan = planOperation(
        { kernel: 'block_vectors', variant: 'f16', shape: { heads: 8, kvHeads: 2, rankK: 27, headDim: 64 } },
        { pairing, blockVectors: { group: 2 } },
      );
      const attendPlan = planOperation(
        { kernel: 'attend_block_absorbed', variant: 'f16', shape },
        { software: true, ropeBase: 1e4, scale, run },
      );
      const vectors = await makeOperands(device, vectorsPlan, mix(SEED));
      const attend = await makeOperands(device, attendPlan, mix(SEED + 1));
      const { blockTokens, functions, setupPerRank } = blockPlan(1e4, 64);
      const sizes = { sequences: 2, heads: 4, context: 300, rankK: 27, headDim: 64 };
      const basisPlan = planOperation(
        { kernel: 'block_basis', variant: 'f32', shape: { ...sizes, blockTokens, functions, setupPerRank } },
        { ropeBase: 1e4, run },
      );
      const basis = await makeOperands(device, basisPlan, mix(SEED + 2));
      const basisBuffers = new Map([...basis.buffers, ['vectors', vectors.buffers.get('vectors')!]]);
      const buffers = new Map([...attend.buffers, ['basis', basis.buffers.get('basis')!]]);
      await device.run([
        ...(await device.bindAll(vectorsPlan, vectors.buffers)),
        ...(await device.bindAll(basisPlan, basisBuffers)),
        ...(await device.bindAll(attendPlan, buffers)),
      ]);
      const partials = new Float32Array(
        await device.read(buffers.get('partials')!, bufferOf(attendPlan, 'partials').bytes),
      );
      const capacity = capacityOf(300);
      const cached = (name: string, width: number) => cacheRow(attend.words(name), 'f16', width, 64, capacity);
      const span = { pinned: 0, firstPosition: 900_001, ring: 300 };
      const tokens = runOver(() => span, 0, capacity, 0);
      const rebuilding = { ropeBase: 1e4, pairing, weights: vectors.scalar('weights'), means: vectors.scalar('means') };
      for (let head = 0; head < 8; head++) {
        const { output } = attendLatentRow(
          shape,
          scale,
          vectors.scalar('queries'),
          rebuilding,
          { keys: cached('keys', 27), values: cached('values', 45) },
          tokens,
          head,
          () => 0,
        );
        const actual = mergedRow((i) => partials[i]!, head, 2, 45);
        const error = Math.sqrt(
          output.reduce((s, x, i) => s + (x - actual[i]!) ** 2, 0) / output.reduce((s, x) => s + x * x, 0),
        );
        expect(error <= TOLERANCE, `head ${head}: relative error ${error}, LLA_SIM_SEED=${SEED}`).toBe(true);
      }
      device.free(...vectors.buffers.values(), ...basis.buffers.values(), ...attend.buffers.values());
    },
  );
});
