/** Products of activations (f32) and weights: a vector kernel for few rows, a tiled one for many. */
import type { KernelCall } from '../../schedule/kernels.js';
import { read, u32, write, type OperationPlan, type Step } from '../plan.js';
import { bytesOfPairs, dimensions, elementOf, requirePositive } from '../shape.js';

/** Rows up to which each weight is read once by the vector kernel. Beyond, tiles reuse it from workgroup memory. */
export const MOST_VECTOR_ROWS = 8;
/** Threads of the vector kernel, and the column pairs that they cover: 16 pairs are two 32-byte sectors of f16. */
const VECTOR_WORKGROUP = 128;
const VECTOR_COLUMNS = 16;
const TILE_COLUMNS = 64;
const TILE_DEPTH = 16;

/** Pairs that a row of weights is stored in; an odd n is padded. */
export const pairsOf = (n: number): number => Math.ceil(n / 2);

/** Buffers: x, weights, y. */
export function planMatmul(call: KernelCall): OperationPlan {
  const s = dimensions(call, 'groups', 'm', 'k', 'n');
  requirePositive(call, s);
  const element = elementOf(call);
  const step = s.m <= MOST_VECTOR_ROWS ? vectorStep(s) : tiledStep(s);
  return {
    buffers: [
      { name: 'x', role: 'input', content: 'f32', bytes: s.groups * s.m * s.k * 4 },
      { name: 'weights', role: 'stream', content: element, bytes: s.groups * s.k * pairsOf(s.n) * bytesOfPairs(element) },
      { name: 'y', role: 'output', content: 'f32', bytes: s.groups * s.m * s.n * 4 },
    ],
    steps: [{ ...step, element, uniforms: [u32(s.m), u32(s.k), u32(s.n), u32(pairsOf(s.n))], buffers: [...read('x', 'weights'), ...write('y')] }],
    tuning: { workgroup: step.constants.WG as number, rows: (step.constants.ROWS ?? step.constants.BM) as number },
  };
}

type Dims = Record<'groups' | 'm' | 'k' | 'n', number>;
type Launch = Pick<Step, 'source' | 'workgroups'> & { constants: Record<string, number> };

function vectorStep(s: Dims): Launch {
  const pairs = pairsOf(s.n);
  return {
    source: 'matvec',
    constants: { WG: VECTOR_WORKGROUP, COLUMNS: VECTOR_COLUMNS, ROWS: s.m, SHARES: VECTOR_WORKGROUP * s.m },
    workgroups: [Math.ceil(pairs / VECTOR_COLUMNS), 1, s.groups],
  };
}

function tiledStep(s: Dims): Launch {
  const rows = s.m <= 16 ? 16 : s.m <= 32 ? 32 : 64;
  return {
    source: 'matmul',
    constants: { WG: (rows * TILE_COLUMNS) / 16, BM: rows, X_QUADS: (TILE_DEPTH * rows) / 4 },
    workgroups: [Math.ceil(s.n / TILE_COLUMNS), Math.ceil(s.m / rows), s.groups],
  };
}
