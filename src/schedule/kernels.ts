/**
 * Every operation that a decode step can contain: its dimensions, what it reads, writes and computes, and the physical
 * terms that its time is made of. The cost model prices these, the benchmarks measure them, the decoder executes them.
 *
 * Activations are f32 in device memory; weights and codec matrices are f16; the cache has the storage type named by
 * the variant. All sizes are in elements, all work in bytes and floating-point operations (a multiply-add is two).
 */
import { ATTENTION_KERNELS } from './attention-kernels.js';
import { EVICTION_KERNELS } from './eviction-kernels.js';
import {
  field,
  padded,
  STORAGES,
  storageOfVariant,
  storedBytes,
  type KernelSpec,
  type Shape,
  type Work,
} from './kernel-spec.js';

export {
  evenRow,
  GROUP_SIZE,
  STORAGES,
  groupOf,
  isQuantised,
  STORAGE_BITS,
  storageOfVariant,
  storedBytes,
  type KernelSpec,
  type Shape,
  type Storage,
  type Work,
} from './kernel-spec.js';
export { blockBasisScalars, blockComponents } from './attention-kernels.js';

export type KernelName =
  | 'embed'
  | 'rmsnorm'
  | 'rope'
  | 'rope_kept'
  | 'swiglu'
  | 'sample'
  | 'matmul'
  | 'append'
  | 'load'
  | keyof typeof ATTENTION_KERNELS
  | keyof typeof EVICTION_KERNELS;

/** A call of one kernel at one shape: what a schedule lists, a benchmark measures and a predictor prices. */
export interface KernelCall {
  kernel: KernelName;
  variant: string;
  shape: Shape;
}

const elementwise = (
  scalarsRead: (s: Shape, v: string) => number,
  scalarsWritten: (s: Shape, v: string) => number,
  flopsPerWrite: number,
) => ({
  work: (s: Shape, v: string): Work => {
    const written = scalarsWritten(s, v);
    return {
      readBytes: 4 * scalarsRead(s, v),
      writeBytes: 4 * written,
      flops: flopsPerWrite * written,
      matrixFlops: 0,
    };
  },
  terms: (s: Shape, v: string) => [1, 4 * (scalarsRead(s, v) + scalarsWritten(s, v))],
});

/**
 * Rows that the tiled product works on: whole tiles of 16, 32 or 64 rows, 64 columns and 16 steps of depth. `passRows`:
 * of the vector kernel at a time.
 */
const MATMUL_TILE = { columns: 64, depth: 16, vectorColumns: 32, mostVectorRows: 8, passRows: 4 };
const tileRows = (m: number): number => (m <= 16 ? 16 : m <= 32 ? 32 : 64);

/**
 * Passes over the logits of nucleus sampling: maximum, sum, sixteen digits of the threshold, the sum again and the
 * draw.
 */
const NUCLEUS_PASSES = 20;

export const KERNELS: Record<KernelName, KernelSpec> = {
  /** Token embedding: rows of the f16 table, gathered to f32. */
  embed: {
    dims: ['rows', 'width'],
    variants: ['f16'],
    work: (s) => {
      const n = field(s, 'rows') * field(s, 'width');
      return { readBytes: 2 * n, writeBytes: 4 * n, flops: 0, matrixFlops: 0 };
    },
    terms: (s) => [1, field(s, 'rows') * field(s, 'width') * 6],
  },
  /** `norm`: y = n(x). `norm-add`: x += n(y) (sandwich norm). `add`: x += y. RMSNorm over the width. */
  rmsnorm: {
    dims: ['rows', 'width'],
    variants: ['norm', 'norm-add', 'add'],
    ...elementwise(
      (s, v) => field(s, 'rows') * field(s, 'width') * (v === 'norm' ? 1 : 2) + (v === 'add' ? 0 : field(s, 'width')),
      (s) => field(s, 'rows') * field(s, 'width'),
      4,
    ),
  },
  /** Rotary embedding, in place, over all rows and heads (queries and the new keys together). */
  rope: {
    dims: ['rows', 'heads', 'headDim'],
    variants: ['half-split', 'adjacent'],
    ...elementwise(
      (s) => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim'),
      (s) => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim'),
      3,
    ),
  },
  /**
   * The same of keys that were rebuilt from latents of tokens that H2O pinned: every row that evicts on its own has
   * other positions.
   */
  rope_kept: {
    dims: ['rows', 'heads', 'headDim'],
    variants: ['half-split', 'adjacent'],
    ...elementwise(
      (s) => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim'),
      (s) => field(s, 'rows') * field(s, 'heads') * field(s, 'headDim'),
      3,
    ),
  },
  /** silu(gate) · up; `width` is the MLP width, the input holds gate and up side by side. */
  swiglu: {
    dims: ['rows', 'width'],
    variants: ['f32'],
    ...elementwise(
      (s) => 2 * field(s, 'rows') * field(s, 'width'),
      (s) => field(s, 'rows') * field(s, 'width'),
      5,
    ),
  },
  /**
   * Choice of a token from the logits: the likeliest, or drawn from the nucleus (`top-p`, arXiv 1904.09751), whose
   * threshold is found digit by digit: the logits are read from memory once and passed over many times.
   */
  sample: {
    dims: ['rows', 'vocab'],
    variants: ['greedy', 'top-p'],
    work: (s, v) => {
      const n = field(s, 'rows') * field(s, 'vocab');
      return {
        readBytes: 4 * n,
        writeBytes: 4 * field(s, 'rows'),
        flops: v === 'greedy' ? n : NUCLEUS_PASSES * 4 * n,
        matrixFlops: 0,
      };
    },
    // One workgroup a row: the last term is its serial walk.
    terms: (s) => [1, 4 * field(s, 'rows') * field(s, 'vocab'), field(s, 'vocab')],
  },
  /**
   * y[g] = x[g] · W[g] for every group g: m × k by k × n. groups = 1 is a projection; groups = heads is a per-head
   * product (query absorption, value up-projection, latent encoding).
   */
  matmul: {
    dims: ['groups', 'm', 'k', 'n'],
    variants: ['f16', 'f32'],
    work: (s, v) => {
      const [g, m, k, n] = [field(s, 'groups'), field(s, 'm'), field(s, 'k'), field(s, 'n')];
      const flops = 2 * g * m * k * n;
      return {
        readBytes: g * (k * n * (v === 'f32' ? 4 : 2) + m * k * 4),
        writeBytes: g * m * n * 4,
        flops,
        matrixFlops: flops,
      };
    },
    terms: (s, v) => {
      const [g, m, k, n] = [field(s, 'groups'), field(s, 'm'), field(s, 'k'), field(s, 'n')];
      const weightBytes = g * k * n * (v === 'f32' ? 4 : 2);
      const t = MATMUL_TILE;
      // Few rows go to a kernel that reads each weight once, more to a tiled one: each has terms of its own.
      const vector = m <= t.mostVectorRows ? 1 : 0;
      const vectorFlops = 2 * g * m * k * padded(n, t.vectorColumns);
      const tiledFlops = 2 * g * padded(m, tileRows(m)) * padded(k, t.depth) * padded(n, t.columns);
      // A software adapter takes any number of rows by the vector kernel, a few at a time, all passes alike.
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
  },
  /**
   * Writes one token's K, V or latent rows to the cache in its storage type: `heads` rows of `width` scalars for each
   * of `rows` tokens.
   */
  append: {
    dims: ['rows', 'heads', 'width', 'groupSize'],
    variants: STORAGES,
    work: (s, v) => {
      const written = field(s, 'rows') * field(s, 'heads');
      const n = written * field(s, 'width');
      return {
        readBytes: 4 * n,
        writeBytes: written * storedBytes(storageOfVariant(v), field(s, 'width'), field(s, 'groupSize')),
        flops: n,
        matrixFlops: 0,
      };
    },
    terms: (s, v) => {
      const w = KERNELS.append.work(s, v);
      return [1, w.readBytes, w.writeBytes];
    },
  },
  /** The way back: `heads` rows of `width` scalars of each of `rows` cached tokens, to f32. */
  load: {
    dims: ['rows', 'heads', 'width', 'groupSize'],
    variants: STORAGES,
    work: (s, v) => {
      const { readBytes, writeBytes, flops } = KERNELS.append.work(s, v);
      return { readBytes: writeBytes, writeBytes: readBytes, flops, matrixFlops: 0 };
    },
    terms: (s, v) => {
      const w = KERNELS.load.work(s, v);
      return [1, w.readBytes, w.writeBytes];
    },
  },
  ...ATTENTION_KERNELS,
  ...EVICTION_KERNELS,
};

/** Raised whenever a kernel's dims or terms change: fitted coefficients of another version are fitted anew. */
export const TERMS_VERSION = 5;

export const KERNEL_NAMES = Object.keys(KERNELS) as KernelName[];

/** Bytes and operations of a call. */
export function workOf(call: KernelCall): Work {
  return KERNELS[call.kernel].work(call.shape, call.variant);
}
