/**
 * Kernels for matrix units: emulated in plain WGSL (matrix_emulated.wgsl) against float64, compiled by Dawn's null
 * backend, and run where an adapter has the units.
 */
import './narrow.js';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import {
  capacityOf,
  openDevice,
  planOperation,
  type Device,
  type OperationOptions,
  type OperationPlan,
} from '../../src/gpu/index.js';
import {
  MATRIX_RELATIVE_ERROR,
  matrixUnitsObstacle,
  usesMatrixUnits,
} from '../../kernels/shared/dense/matrix.launch.js';
import { readKernelFile } from '../../kernels/files.js';
import { OWN_SOURCES, sourcesFrom, type SourceSet } from '../../kernels/source.js';
import type { KernelCall } from '../../kernels/registry.js';
import { isQuantised, type Storage } from '../../kernels/spec.js';
import { expectContract } from './contract-run.js';
import { describeGpu } from './device.js';
import { between, productErrors, type Product } from './products.js';
import { randomOf, SEED, type Random } from './random.js';
import { everyNth } from './sample.js';

const EMULATED = sourcesFrom('emulated', (file) =>
  file === 'matrix_units.wgsl'
    ? readFileSync(new URL('matrix_emulated.wgsl', import.meta.url), 'utf8')
    : readKernelFile(file),
);
/** Against float64 over the same f16 operands only the order of f32 sums is left. */
const SUM_TOLERANCE = 1e-5;

/** The device, running the kernels of another set of sources. */
const running = (device: Device, sources: SourceSet): Device =>
  Object.assign(Object.create(device) as Device, {
    bindAll: (plan: OperationPlan, buffers: Parameters<Device['bindAll']>[1]) => device.bindAll(plan, buffers, sources),
  });

function productOf(r: Random, fixed: Partial<Product>): Product {
  const weightGroup = r.pick([1, 2, 4]);
  const c = {
    variant: 'f16' as const,
    groups: weightGroup * r.whole(1, 2),
    m: r.pick([16, 17, 32, 40, 64, 70]),
    k: 4 * r.whole(1, 30),
    n: r.whole(1, 150),
    ...fixed,
  };
  return {
    ...c,
    options: {
      x: between(r, c, c.k, r.whole(1, 3)),
      y: between(r, c, c.n, r.whole(1, 3)),
      weightGroup: c.groups % weightGroup === 0 ? weightGroup : 1,
      accumulate: r.pick([true, false]),
      ...fixed.options,
    },
  };
}

const callOf = ({ groups, m, k, n }: Omit<Product, 'options' | 'variant'>): KernelCall => ({
  kernel: 'matmul',
  variant: 'f16',
  shape: { groups, m, k, n },
});

/** Relative error against float64: over f16 operands, and over the activations as they are. */
async function checkProduct(device: Device, c: Product, seed: number, spread = 0) {
  const where = `${JSON.stringify(c)}, LLA_SIM_SEED=${SEED}`;
  const plan = planOperation(callOf(c), { matmul: c.options, matrixUnits: true });
  expect(usesMatrixUnits(plan), where).toBe(true);
  const errors = await productErrors(device, plan, c, seed, where, (i) =>
    spread === 0 ? 1 : 10 ** (spread * ((mix(seed + i) % 1000) / 1000)),
  );
  expect(errors.rounded, `over f16 operands: ${where}`).toBeLessThanOrEqual(SUM_TOLERANCE);
  expect(errors.error, where).toBeLessThanOrEqual(MATRIX_RELATIVE_ERROR);
  return errors;
}

/** Every shape of tile, whole and with edges; the last columns of an odd n; one step of k and several stages. */
const EDGES: readonly Partial<Product>[] = [
  { groups: 1, m: 16, k: 64, n: 64 },
  { groups: 1, m: 64, k: 96, n: 256 },
  { groups: 1, m: 130, k: 33, n: 72 },
  { groups: 1, m: 33, k: 4, n: 1 },
  { groups: 4, m: 100, k: 36, n: 27, options: { y: { offset: 2, group: 3090, row: 30 }, accumulate: false } },
  { groups: 160, m: 16, k: 8, n: 65 },
  { groups: 160, m: 20, k: 36, n: 70 },
  { groups: 64, m: 65, k: 8, n: 129 },
  ...[{}, {}, {}, {}],
];

/** Every storage and stage depth, one and several stages and passes, odd ranks, rows without whole quads. */
const REBUILDS: readonly { storage: Storage; rank: number; headDim: number }[] = [
  { storage: 'f16', rank: 96, headDim: 128 },
  { storage: 'f16', rank: 27, headDim: 96 },
  { storage: 'f32', rank: 41, headDim: 64 },
  { storage: 'q8', rank: 18, headDim: 20 },
  { storage: 'q4', rank: 70, headDim: 256 },
  { storage: 'q3', rank: 45, headDim: 100 },
  { storage: 'q2', rank: 150, headDim: 128 },
];

function rebuildOf(
  r: Random,
  { storage, rank, headDim }: (typeof REBUILDS)[number],
): { call: KernelCall; options: OperationOptions } {
  const [kvHeads, context, sequences, pinned] = [2, r.whole(1, 150), r.whole(1, 3), r.pick([0, 4, 37])];
  const shape = {
    sequences,
    kvHeads,
    latentHeads: r.pick([1, kvHeads]),
    context,
    rank,
    headDim,
    groupSize: isQuantised(storage) ? 32 * r.whole(1, 2) : 0,
  };
  const spans = Array.from({ length: sequences }, (_, i) => ({
    pinned: r.whole(0, pinned),
    firstPosition: r.whole(0, 100_000),
    ring: i === 0 ? context : r.whole(1, context),
  }));
  const run = { pinned, capacity: capacityOf(pinned + context + r.whole(0, 40)), spans };
  const options = {
    ropeBase: r.pick([1e4, 1e6]),
    pairing: headDim % 4 === 0 ? r.pick(['adjacent', 'half-split'] as const) : 'adjacent',
    positionsByHead: r.pick([true, false]),
    positions: 2 ** 17,
    matrixUnits: true,
    run,
  } as const;
  return { call: { kernel: 'rebuild', variant: `${storage}+${r.pick(['rope', 'plain'])}`, shape }, options };
}

function contract(device: Device): void {
  test('products: rows apart, shared weights, sums, edges', async () => {
    const cases = EDGES.map((edge, i) => ({ c: productOf(randomOf(mix(SEED + i)), edge), seed: mix(SEED + i) }));
    const tiles = cases.map(({ c }) =>
      JSON.stringify(planOperation(callOf(c), { matmul: c.options, matrixUnits: true }).steps[0]?.constants),
    );
    expect(new Set(tiles).size).toBeGreaterThan(5);
    for (const { c, seed } of everyNth(cases, 5)) await checkProduct(device, c, seed);
  });

  test('f16 activations keep the contract at magnitudes over three decades', async () => {
    const product = { variant: 'f16', groups: 1, m: 48, k: 512, n: 64, options: {} } as const;
    for (const spread of [0, 3]) {
      const { error } = await checkProduct(device, product, mix(SEED + 99), spread);
      // Rounding leaves 2^-12 or less of an operand, and something must be left.
      expect(error, `LLA_SIM_SEED=${SEED}`).toBeLessThan(4e-4);
      expect(error, `LLA_SIM_SEED=${SEED}`).toBeGreaterThan(5e-5);
    }
  });

  test.each(everyNth(REBUILDS, 5, 1))('rebuild: $storage, rank $rank, head width $headDim', async (fixed) => {
    const { call, options } = rebuildOf(randomOf(mix(SEED + fixed.rank)), fixed);
    expect(usesMatrixUnits(planOperation(call, options)), `${JSON.stringify(call)}, LLA_SIM_SEED=${SEED}`).toBe(true);
    await expectContract(device, call, options, mix(SEED), MATRIX_RELATIVE_ERROR);
  });
}

describeGpu('matrix units, emulated', (device) => {
  if (device.has('shader-f16')) contract(running(device, EMULATED));
  else test.skip('[skipped: the adapter has no shader-f16]', () => undefined);
});

describeGpu('matrix units', (device) => {
  const reason = matrixUnitsObstacle(device);
  if (reason === null) contract(running(device, OWN_SOURCES));
  else test.skip(`products, rebuild [skipped: ${reason}]`, () => undefined);
});

describeGpu('matrix units, compiled', () => {
  test('Dawn takes every tile of every kernel', async () => {
    const nothing = await openDevice({ backend: 'null' });
    const most = nothing.limits.maxComputeWorkgroupStorageSize;
    try {
      const calls = [
        [16, 64],
        [32, 64],
        [64, 32],
        [64, 33],
        [16, 4096 * 8],
        [64, 4096 * 8],
      ].map(([m = 0, n = 0]) => callOf({ groups: 1, m, k: 64, n }));
      for (const call of [...calls, ...REBUILDS.map((fixed) => rebuildOf(randomOf(SEED), fixed).call)]) {
        const plan = planOperation(call, { matrixUnits: true });
        expect(usesMatrixUnits(plan)).toBe(true);
        // The null backend has 16 KiB of workgroup memory: of larger tiles it can say that everything else is right.
        await nothing
          .pipeline(plan.steps[0]!)
          .catch((error: Error) =>
            expect(error.message).toMatch(
              new RegExp(`The total use of workgroup storage .* is larger than the maximum allowed \\(${most} bytes`),
            ),
          );
      }
    } finally {
      nothing.close();
    }
  });
});

test.each<[string, object, string?, boolean?]>([
  ['matmul_matrix', {}],
  ['matmul', { m: 15 }],
  ['matvec_quads', { m: 8 }],
  ['matvec', { m: 8, n: 65 }],
  ['matmul', { k: 33, n: 65 }],
  ['matmul', {}, 'f32'],
  ['matmul', {}, 'f16', false],
])('%s runs %j %s: matrix units take whole vec4s of f16 weights and rows enough', (source, fixed, ...of) => {
  const [variant = 'f16', matrixUnits = true] = of;
  const shape = { groups: 1, m: 16, k: 64, n: 64, ...fixed };
  expect(planOperation({ kernel: 'matmul', variant, shape }, { matrixUnits }).steps[0]?.source).toBe(source);
});

const UNIT = { componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16 };
const FEATURES = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];
test.each<[RegExp | null, { has?: string[]; unit?: Partial<typeof UNIT>; sizes?: [number, number]; bytes?: number }]>([
  [null, {}],
  [/has no chromium-experimental-subgroup-matrix/, { has: FEATURES.slice(0, 2) }],
  [/need shader-f16/, { has: FEATURES.slice(1) }],
  [/there is 16×16×16 f16 into f16/, { unit: { resultComponentType: 'f16' } }],
  [/there is 16×8×16/, { unit: { N: 8 } }],
  [/8 to 32 threads/, { sizes: [8, 32] }],
  [/64 to 64 threads/, { sizes: [64, 64] }],
  [/16384/, { bytes: 16_384 }],
])('what a device lacks for matrix units is named: %s', (why, { has = FEATURES, unit, sizes = [32, 32], bytes }) => {
  const obstacle = matrixUnitsObstacle({
    has: (feature: string) => has.includes(feature),
    units: { matrixConfigs: [{ ...UNIT, ...unit }], subgroupSizes: sizes },
    limits: { maxComputeWorkgroupStorageSize: bytes ?? 49_152 },
  });
  if (why === null) expect(obstacle).toBeNull();
  else expect(obstacle).toMatch(why);
});
