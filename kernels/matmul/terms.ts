import { field, padded, type KernelSpec } from '../spec.js';
import { FLOAT8_BLOCKS, storedIn } from '../stored-weights.js';
import { inBlocks, listed, reading, unlisted } from '../tuned.js';

/**
 * Rows that the tiled product works on: whole tiles of 16, 32 or 64 rows, 64 columns and 16 steps of depth. `passRows`:
 * of the vector kernel at a time.
 */
const MATMUL_TILE = { columns: 64, depth: 16, vectorColumns: 32, mostVectorRows: 8, passRows: 4 };
/** Columns of the narrowest tile of a tuned product. */
const LEAST_COLUMNS = 64;
const tileRows = (m: number): number => (m <= 16 ? 16 : m <= 32 ? 32 : 64);

/** 8-bit floats and packed weights are a server's: no kernel here reads them. */
function weightBytesOf(variant: string): number {
  const stored = storedIn(variant);
  if (stored) return stored.bits / 8;
  return variant === 'f32' ? 4 : variant === 'f8' || variant === FLOAT8_BLOCKS ? 1 : 2;
}

/**
 * y[g] = x[g] · W[g] for every group g: m × k by k × n. groups = 1 is a projection; groups = heads is a per-head
 * product (query absorption, value up-projection, latent encoding).
 */
export const spec: KernelSpec<'groups' | 'm' | 'k' | 'n'> = {
  sources: ['matvec', 'matvec_quads', 'matmul', 'matmul_matrix'],
  dims: ['groups', 'm', 'k', 'n'],
  variants: ['f16', 'f32'],
  work: (s, v) => {
    const [g, m, k, n] = [field(s, 'groups'), field(s, 'm'), field(s, 'k'), field(s, 'n')];
    const flops = 2 * g * m * k * n;
    return {
      readBytes: g * (k * n * weightBytesOf(v) + m * k * 4),
      writeBytes: g * m * n * 4,
      flops,
      matrixFlops: flops,
    };
  },
  terms: (s, v) => {
    const [g, m, k, n] = [field(s, 'groups'), field(s, 'm'), field(s, 'k'), field(s, 'n')];
    const weightBytes = g * k * n * weightBytesOf(v);
    const t = MATMUL_TILE;
    // Few rows go to a kernel that reads each weight once, more to a tiled one: each has terms of its own.
    const vector = m <= t.mostVectorRows ? 1 : 0;
    const vectorFlops = 2 * g * m * k * padded(n, t.vectorColumns);
    const tiledFlops = 2 * g * padded(m, tileRows(m)) * padded(k, t.depth) * padded(n, t.columns);
    // A software adapter uses the vector kernel for any number of rows, a few at a time, in equal passes.
    const passes = Math.ceil(m / t.passRows);
    const passFlops = 2 * g * passes * Math.ceil(m / passes) * k * padded(n, t.columns);
    return [
      1,
      vector * weightBytes,
      vector * vectorFlops,
      (1 - vector) * weightBytes * Math.ceil(m / tileRows(m)),
      (1 - vector) * tiledFlops,
      g * m * (k + n) * 4,
      k,
      weightBytes * passes,
      passFlops,
    ];
  },
  tuned: (s, v) => {
    const [g, m, k, n] = [field(s, 'groups'), field(s, 'm'), field(s, 'k'), field(s, 'n')];
    // A kernel's tile has no fewer columns: an exit gate of one takes its time.
    const columns = Math.max(n, LEAST_COLUMNS);
    if (g === 1 && v !== 'f32') {
      const shape = { rows: m, columns, inner: k };
      const stored = storedIn(v);
      if (stored) return reading(stored, shape);
      if (v === FLOAT8_BLOCKS) return inBlocks(shape);
      return listed(v === 'f8' ? 'product-fp8' : 'product', shape);
    }
    const bytes = g * (k * n * weightBytesOf(v) + (m * k + m * n) * 2);
    return unlisted('product', bytes, { matrix: 2 * g * m * k * n });
  },
};
