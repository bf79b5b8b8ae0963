/**
 * Products on matrix units: whether a device has those that matrix_units.wgsl needs, which products use them, and how.
 * The kernels are checked with the units emulated and compiled with them; on hardware they have not run yet.
 */
import type { Tuning } from '../../options.js';
import { requireShape } from '../../host/errors.js';
import type { OperationPlan, Step } from '../../host/plan.js';
import { tuned } from '../../launch.js';

/** The same type as in device.ts, which loads Dawn; plans are made without Dawn. */
const FEATURE = 'chromium-experimental-subgroup-matrix';

/** Products of matrix_units.wgsl: f16 tiles of this side into f32, by subgroups of this many threads. */
const SIDE = 16;

const SUBGROUP = 32;

/** Threads of a kernel's workgroup: four subgroups. */
const WORKGROUP = 128;

/** Workgroup memory of the kernels' largest tiles. */
const WORKGROUP_BYTES = 32_768;

/**
 * Relative RMS error against float64 that kernels on matrix units may have. Measured with the units emulated, as
 * rounding to f16 makes the error: products 1.9e-4 with x uniform in [-1, 1) and 2.1e-4 with magnitudes over three
 * decades, rebuilt rows 2.1e-4 from f16 latents and 3.0e-4 from others, whose values are rounded, too. So operands are
 * not split into two halves, which would double the products.
 */
export const MATRIX_RELATIVE_ERROR = 1e-3;

/** Rows from which a product goes to matrix units: fewer leave most of a tile empty. */
const LEAST_MATRIX_ROWS = 16;

/**
 * Columns of a workgroup's tile that are tried, widest first: a wide tile reads x less often, and more tiles keep more
 * of the device busy.
 */
const TILE_COLUMNS = [128, 64, 32];

/** Workgroups needed before tiles get wider: one for each multiprocessor of a large GPU. */
const WANTED_WORKGROUPS = 128;

const SOURCES: readonly string[] = ['matmul_matrix', 'rebuild_matrix'];

/** Whether a plan's results have the accuracy of matrix units. */
export const usesMatrixUnits = (plan: OperationPlan): boolean =>
  plan.steps.some((step) => SOURCES.includes(step.source));

/** What a launch asks of a device. */
export interface DeviceTraits {
  readonly description: { readonly software: boolean };
  has(feature: string): boolean;
  readonly units: {
    /** Threads of the smallest and of the largest subgroup. */
    readonly subgroupSizes: readonly [number, number];
    readonly matrixConfigs: readonly {
      readonly M: number;
      readonly N: number;
      readonly K: number;
      readonly componentType: string;
      readonly resultComponentType: string;
    }[];
  };
  readonly limits: { readonly maxComputeWorkgroupStorageSize: number };
}

/** Why a device has no units for kernels that multiply 16 × 16 × 16 f16 into f32, or null. */
export function unitsObstacle(device: Pick<DeviceTraits, 'has' | 'units'>): string | null {
  const { matrixConfigs } = device.units;
  if (!device.has(FEATURE)) return `the adapter has no ${FEATURE}`;
  if (!device.has('shader-f16') || !device.has('subgroups'))
    return 'matrix units need shader-f16 and subgroups, which the adapter lacks';
  const fits = matrixConfigs.some(
    ({ componentType, resultComponentType, M, N, K }) =>
      componentType === 'f16' && resultComponentType === 'f32' && [M, N, K].every((side) => side === SIDE),
  );
  if (fits) return null;
  const there = matrixConfigs.map((c) => `${c.M}×${c.N}×${c.K} ${c.componentType} into ${c.resultComponentType}`);
  const are = there.length === 1 ? 'is' : 'are';
  return `no matrix unit multiplies 16×16×16 f16 into f32; there ${are} ${there.join(', ') || 'none'}`.slice(0, 400);
}

/**
 * Why kernels on matrix units cannot run on a device, or null: the reason not to set `OperationOptions.matrixUnits`.
 */
export function matrixUnitsObstacle(device: Omit<DeviceTraits, 'description'>): string | null {
  const [least, most] = device.units.subgroupSizes;
  const none = unitsObstacle(device);
  if (none !== null) return none;
  if (least !== SUBGROUP || most !== SUBGROUP)
    return `subgroups have ${least} to ${most} threads; the kernels want ${SUBGROUP}`;
  const bytes = device.limits.maxComputeWorkgroupStorageSize;
  return bytes < WORKGROUP_BYTES
    ? `the kernels want ${WORKGROUP_BYTES} bytes of workgroup memory, the device has ${bytes}`
    : null;
}

/** One step of a product, without its buffers. */
export type Launch = Pick<Step, 'source' | 'workgroups' | 'constants'> & Pick<OperationPlan, 'tuning'>;

/**
 * Whether a product runs on matrix units: it needs enough rows, and weights that are whole vec4s, as the kernel reads
 * them.
 */
export const matrixFits = (m: number, weightBytes: number): boolean => m >= LEAST_MATRIX_ROWS && weightBytes % 16 === 0;

/** The step of matmul_matrix.wgsl, without its element, uniforms and buffers. */
export function matrixStep(
  s: { readonly groups: number; readonly m: number; readonly n: number },
  tuning: Tuning | undefined,
): Launch {
  // Few rows: all four subgroups side by side along the columns.
  const down = s.m <= 32 ? 1 : 2;
  const blockRows = s.m <= 16 ? 1 : 2;
  const rows = SIDE * blockRows * down;
  const across = WORKGROUP / SUBGROUP / down;
  const choices = TILE_COLUMNS.filter((columns) => columns % (SIDE * across) === 0);
  const grid = (columns: number): [number, number, number] => [
    Math.ceil(s.m / rows),
    Math.ceil(s.n / columns),
    s.groups,
  ];
  const filling = choices.find((columns) => grid(columns).reduce((a, b) => a * b) >= WANTED_WORKGROUPS);
  const columns = tuned(tuning, 'matrixColumns', filling ?? (choices.at(-1) as number));
  requireShape(
    choices.includes(columns),
    `matmul: tiles of ${rows} rows on matrix units have ${choices.join(', ')} columns, not ${columns}`,
  );
  return {
    source: 'matmul_matrix',
    constants: {
      DOWN: down,
      BLOCK_ROWS: blockRows,
      BLOCK_COLUMNS: columns / (SIDE * across),
      WHOLE_VECTORS: s.n % 8 === 0 || s.n % 8 === 7 ? 1 : 0,
    },
    workgroups: grid(columns),
    tuning: { workgroup: WORKGROUP, rows, columns, matrixUnits: 1 },
  };
}

/** One step of a rebuild; `slots` are those of a workgroup. */
export type RebuildLaunch = Omit<Launch, 'workgroups'> & { readonly slots: number };

/**
 * The step of rebuild_matrix.wgsl: `unit` components are read at once (storage_*.wgsl), and a stage is whole
 * units.
 */
export function matrixRebuild(unit: number, headDim: number, edges: number): RebuildLaunch {
  const depth = Math.max(2 * SIDE, unit);
  // Deeper stages leave room for fewer tokens.
  const tokens = depth > 2 * SIDE ? 32 : 64;
  const pairs = headDim > 64 ? 64 : 32;
  return {
    source: 'rebuild_matrix',
    constants: { TOKENS: tokens, PAIRS: pairs, DEPTH: depth, EDGES: edges },
    slots: tokens,
    tuning: { workgroup: WORKGROUP, tokens, pairs, matrixUnits: 1 },
  };
}
