/** Products of activations (f32) and weights: a vector kernel for few rows, a tiled one for many, or matrix units. */
import type { Tuning } from '../options.js';
import type { Rows } from '../placement.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep, stored } from '../host/plan.js';
import { bytesOfPairs, elementOf, shapeOf } from '../host/shape.js';
import { tuned, type Launch as KernelLaunch } from '../launch.js';
import { matrixFits, matrixStep, type Launch } from '../shared/dense/matrix.launch.js';

/** Rows up to which a GPU reads each weight once, by a vector kernel. Beyond, tiles reuse it from workgroup memory. */
const MOST_VECTOR_ROWS = 8;

/**
 * Launch of the vector kernels unless tuned: threads, those of them that lie side by side along a row of weights (a
 * thread takes a pair, or a quad of pairs), and the most rows of x at a time. On a GPU the other threads share k, and a
 * row's threads read whole 32-byte sectors. A software adapter's subgroup is eight threads: alone they need no barrier,
 * and its registers hold no more than the sums of four rows and a weight each.
 */
const VECTOR = {
  software: { workgroup: 8, pairs: 8, quads: 8, rows: 4 },
  hardware: { workgroup: 128, pairs: 16, quads: 4, rows: MOST_VECTOR_ROWS },
};

/** Of k, between which a vector kernel loads. */
const MOST_STEPS = 4;

const TILE_COLUMNS = 64;

const TILE_DEPTH = 16;

/** Pairs that a row of weights is stored in; an odd n is padded. */
export const pairsOf = (n: number): number => Math.ceil(n / 2);

/** Strides with their defaults, and the floats that the rows reach. */
function placed(
  rows: Rows | undefined,
  groups: number,
  m: number,
  width: number,
): { offset: number; row: number; group: number; floats: number } {
  const { offset = 0, row = width, group = m * row } = rows ?? {};
  return { offset, row, group, floats: offset + (m - 1) * row + (groups - 1) * group + width };
}

/** Buffers: x, weights, y. Many rows of f16 weights go to matrix units, with their accuracy. */
const plan: KernelLaunch['plan'] = (call, { matmul: options = {}, tuning, software, matrixUnits }) => {
  const s = shapeOf<'matmul'>(call);
  const element = elementOf(call);
  const { weightGroup = 1, accumulate = false, transposed = false } = options;
  requireShape(
    weightGroup >= 1 && s.groups % weightGroup === 0,
    `matmul: ${s.groups} groups are not whole sets of ${weightGroup} that share weights`,
  );
  const [x, y] = [placed(options.x, s.groups, s.m, s.k), placed(options.y, s.groups, s.m, s.n)];
  // Rows of y must not overlap: each is written by workgroups of its own.
  requireShape(
    (s.m === 1 || y.row >= s.n) && (s.groups === 1 || y.group >= s.n),
    `matmul: rows of ${s.n} floats overlap at strides of ${y.row} and ${y.group}`,
  );
  const pairs = pairsOf(transposed ? s.k : s.n);
  const weightBytes = (s.groups / weightGroup) * (transposed ? s.n : s.k) * pairs * bytesOfPairs(element);
  const launch = (): Launch => {
    if (transposed) return transposedStep(s);
    if (matrixUnits && element === 'f16' && matrixFits(s.m, weightBytes)) return matrixStep(s, tuning);
    // A software adapter gains nothing from workgroup memory: tiles take two and a half times as long there.
    if (s.m <= MOST_VECTOR_ROWS || software) return vectorStep(s, element, software ? 'software' : 'hardware', tuning);
    return tiledStep(s);
  };
  return oneStep({
    buffers: [
      f32('x', 'input', x.floats),
      stored('weights', 'stream', element, weightBytes),
      f32('y', accumulate ? 'state' : 'output', y.floats),
    ],
    ...launch(),
    element,
    uniforms: {
      m: s.m,
      k: s.k,
      n: s.n,
      pairs,
      x_offset: x.offset,
      x_row: x.row,
      x_group: x.group,
      y_offset: y.offset,
      y_row: y.row,
      y_group: y.group,
      weight_group: weightGroup,
      accumulate: accumulate ? 1 : 0,
    },
  });
};

type Dims = Record<'groups' | 'm' | 'k' | 'n', number>;

function vectorStep(s: Dims, element: 'f16' | 'f32', kind: keyof typeof VECTOR, tuning: Tuning | undefined): Launch {
  const own = VECTOR[kind];
  const pairs = pairsOf(s.n);
  const inQuads = element === 'f16' && s.n % 8 === 0;
  const workgroup = tuned(tuning, 'workgroup', own.workgroup);
  const columns = tuned(tuning, 'columns', inQuads ? own.quads : own.pairs);
  requireShape(
    columns <= workgroup && workgroup % columns === 0,
    `matmul: ${workgroup} threads are not whole rows of ${columns}`,
  );
  const passes = Math.ceil(s.m / tuned(tuning, 'rows', own.rows));
  const rows = Math.ceil(s.m / passes);
  const sums = inQuads ? 2 * rows : rows;
  const steps = tuned(tuning, 'steps', kind === 'hardware' ? 4 : rows > 2 ? 1 : 2);
  requireShape(
    rows <= MOST_VECTOR_ROWS && steps <= MOST_STEPS,
    `matmul: at most ${MOST_VECTOR_ROWS} rows and ${MOST_STEPS} steps at a time, not ${rows} and ${steps}`,
  );
  return {
    source: inQuads ? 'matvec_quads' : 'matvec',
    constants: {
      WG: workgroup,
      COLUMNS: columns,
      ROWS: rows,
      SHARES: columns < workgroup ? workgroup * sums : 1,
      ...(inQuads ? { STEPS: steps } : {}),
    },
    workgroups: [passes, Math.ceil((inQuads ? pairs / 4 : pairs) / columns), s.groups],
    tuning: { workgroup, columns, rows, ...(inQuads ? { steps } : {}) },
  };
}

/** Rows of a thread of the transposed kernel, and its threads. */
const TRANSPOSED_ROWS = 8;

const TRANSPOSED_WORKGROUP = 64;

const transposedStep = (s: Dims): Launch => ({
  source: 'matmul_transposed',
  constants: { WG: TRANSPOSED_WORKGROUP },
  workgroups: [Math.ceil(s.n / TRANSPOSED_WORKGROUP), Math.ceil(s.m / TRANSPOSED_ROWS), s.groups],
  tuning: { workgroup: TRANSPOSED_WORKGROUP, rows: TRANSPOSED_ROWS },
});

function tiledStep(s: Dims): Launch {
  const rows = s.m <= 16 ? 16 : s.m <= 32 ? 32 : 64;
  const workgroup = (rows * TILE_COLUMNS) / 16;
  return {
    source: 'matmul',
    constants: { WG: workgroup, BM: rows, X_QUADS: (TILE_DEPTH * rows) / 4 },
    workgroups: [Math.ceil(s.n / TILE_COLUMNS), Math.ceil(s.m / rows), s.groups],
    tuning: { workgroup, rows },
  };
}

export const launch: KernelLaunch = {
  plan,
  tunables: [
    { name: 'workgroup', values: [8, 64, 128, 256] },
    { name: 'columns', values: [4, 8, 16, 32] },
    { name: 'rows', values: [2, 4, 8] },
    { name: 'steps', values: [1, 2, 4] },
    { name: 'matrixColumns', values: [64, 128] },
  ],
};
