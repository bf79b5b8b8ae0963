/**
 * Every operation that a decode step can contain: its dimensions, what it reads, writes and computes, and the physical
 * terms that its time is made of. The cost model prices these, the benchmarks measure them, the decoder executes them.
 *
 * Activations are f32 in device memory; weights and codec matrices are f16; the cache has the storage type named by
 * the variant. All sizes are in elements, all work in bytes and floating-point operations (a multiply-add is two).
 */

/** What one call moves and computes. `matrixFlops` is the part of `flops` that matrix units can do. */
export interface Work {
  readBytes: number;
  writeBytes: number;
  flops: number;
  matrixFlops: number;
}

/** Element types of the cache, with the bits of one scalar; group scales are counted by the layout. */
export const STORAGE_BITS = { f32: 32, f16: 16, q8: 8, q4: 4, q3: 3, q2: 2 } as const;
export type Storage = keyof typeof STORAGE_BITS;
/** Scalars that share one f16 scale in a quantised cache row. */
export const GROUP_SIZE = 64;

/** Bytes that `width` scalars of one token and head take in the cache, with their group scales (f16). */
export function storedBytes(storage: Storage, width: number, groupSize: number = GROUP_SIZE): number {
  const scales = storage === 'f16' || storage === 'f32' ? 0 : Math.ceil(width / groupSize) * 2;
  return (width * STORAGE_BITS[storage]) / 8 + scales;
}

export type KernelName =
  | 'embed'
  | 'rmsnorm'
  | 'rope'
  | 'swiglu'
  | 'sample'
  | 'matmul'
  | 'append'
  | 'attend'
  | 'attend_rebuild'
  | 'attend_block_absorbed'
  | 'attend_merge'
  | 'rebuild'
  | 'evict';

export type Shape = Readonly<Record<string, number>>;

export interface KernelSpec {
  /** Names of the shape fields, in order. They are also the axes on which the predictor interpolates (in log2). */
  readonly dims: readonly string[];
  readonly variants: readonly string[];
  work(shape: Shape, variant: string): Work;
  /**
   * Non-negative physical terms; predicted time is a non-negative combination of them times a smooth residual.
   * The first is always 1 (launch).
   */
  terms(shape: Shape, variant: string): number[];
}

/** A call of one kernel at one shape: what a schedule lists, a benchmark measures and a predictor prices. */
export interface KernelCall {
  kernel: KernelName;
  variant: string;
  shape: Shape;
}

/** Operations that turn one stored n-bit scalar into f32: extract, convert, scale, at two an instruction. */
const UNPACK_FLOPS = 6;

const storages = Object.keys(STORAGE_BITS) as Storage[];

const elementwise = (scalarsRead: (s: Shape, v: string) => number, scalarsWritten: (s: Shape, v: string) => number, flopsPerWrite: number) => ({
  work: (s: Shape, v: string): Work => {
    const written = scalarsWritten(s, v);
    return { readBytes: 4 * scalarsRead(s, v), writeBytes: 4 * written, flops: flopsPerWrite * written, matrixFlops: 0 };
  },
  terms: (s: Shape, v: string) => [1, 4 * (scalarsRead(s, v) + scalarsWritten(s, v))],
});

const field = (s: Shape, name: string): number => {
  const value = s[name];
  if (value === undefined) throw new Error(`kernel shape lacks ${name}`);
  return value;
};

/** Cached tokens × KV heads × sequences: how many rows an attention call walks over. */
const rows = (s: Shape) => field(s, 'sequences') * field(s, 'kvHeads') * field(s, 'context');
/**
 * Latent rows of a cache: `latentHeads` is the number of KV heads (LLA), or 1 where one latent serves all of them
 * (LLA-2D, mla-head) and is read once for all heads.
 */
const latentRows = (s: Shape) => field(s, 'sequences') * field(s, 'latentHeads') * field(s, 'context');
/** Query heads × sequences. */
const queries = (s: Shape) => field(s, 'sequences') * field(s, 'kvHeads') * field(s, 'group');
/** Bytes of the split partials that an attention call writes: an output row, its maximum and its sum, f32. */
const partialBytes = (s: Shape, width: number) => queries(s) * field(s, 'splits') * (width + 2) * 4;

/** The longest serial walk of one workgroup, in tokens: what is left when every split runs at once. */
const serialTokens = (s: Shape) => Math.ceil(field(s, 'context') / field(s, 'splits'));

/** Attention: launch, bytes read, operations, partials written, workgroups started, and the longest serial walk. */
const attendTerms = (s: Shape, w: Work) => [1, w.readBytes, w.flops, w.writeBytes, queries(s) * field(s, 'splits'), serialTokens(s)];

/** Rows that the tiled product works on: whole tiles of 16, 32 or 64 rows, 64 columns and 16 steps of depth. */
const MATMUL_TILE = { columns: 64, depth: 16, vectorColumns: 32, mostVectorRows: 8 };
const padded = (n: number, tile: number): number => Math.ceil(n / tile) * tile;
const tileRows = (m: number): number => (m <= 16 ? 16 : m <= 32 ? 32 : 64);

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
  /** silu(gate) · up; `width` is the MLP width, the input holds gate and up side by side. */
  swiglu: {
    dims: ['rows', 'width'],
    variants: ['f32'],
    ...elementwise((s) => 2 * field(s, 'rows') * field(s, 'width'), (s) => field(s, 'rows') * field(s, 'width'), 5),
  },
  /** Greedy or sampled choice of a token from the logits. */
  sample: {
    dims: ['rows', 'vocab'],
    variants: ['greedy'],
    work: (s) => ({ readBytes: 4 * field(s, 'rows') * field(s, 'vocab'), writeBytes: 4 * field(s, 'rows'), flops: field(s, 'rows') * field(s, 'vocab'), matrixFlops: 0 }),
    terms: (s) => [1, 4 * field(s, 'rows') * field(s, 'vocab')],
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
      return { readBytes: g * (k * n * (v === 'f32' ? 4 : 2) + m * k * 4), writeBytes: g * m * n * 4, flops, matrixFlops: flops };
    },
    terms: (s, v) => {
      const [g, m, k, n] = [field(s, 'groups'), field(s, 'm'), field(s, 'k'), field(s, 'n')];
      const weightBytes = g * k * n * (v === 'f32' ? 4 : 2);
      const t = MATMUL_TILE;
      // Few rows go to a kernel that reads each weight once, more to a tiled one: each has terms of its own.
      const vector = m <= t.mostVectorRows ? 1 : 0;
      const vectorFlops = 2 * g * m * k * padded(n, t.vectorColumns);
      const tiledFlops = 2 * g * padded(m, tileRows(m)) * padded(k, t.depth) * padded(n, t.columns);
      return [1, vector * weightBytes, vector * vectorFlops, (1 - vector) * weightBytes * Math.ceil(m / tileRows(m)), (1 - vector) * tiledFlops, g * m * (k + n) * 4, k];
    },
  },
  /** Writes one token's K, V or latent rows to the cache in its storage type. `width`: scalars over all heads. */
  append: {
    dims: ['rows', 'width'],
    variants: storages,
    work: (s, v) => {
      const n = field(s, 'rows') * field(s, 'width');
      return { readBytes: 4 * n, writeBytes: field(s, 'rows') * storedBytes(v as Storage, field(s, 'width')), flops: n, matrixFlops: 0 };
    },
    terms: (s) => [1, 4 * field(s, 'rows') * field(s, 'width')],
  },
  /**
   * Split-KV decode attention of one new token over cached rows that are used as they lie: full K/V, or latents with
   * an absorbed query. `branchWidth`: rotary key scalars beside the content key (0 without), shared by all KV heads
   * when `branchHeads` is 1. `group`: query heads that read the same cached row.
   */
  attend: {
    dims: ['sequences', 'kvHeads', 'group', 'context', 'keyWidth', 'valueWidth', 'branchWidth', 'branchHeads', 'splits'],
    variants: storages,
    work: (s, v) => {
      const storage = v as Storage;
      const branch = field(s, 'branchWidth');
      const key = field(s, 'keyWidth');
      const value = field(s, 'valueWidth');
      const branchRows = field(s, 'sequences') * field(s, 'branchHeads') * field(s, 'context');
      const product = rows(s) * field(s, 'group') * 2 * (key + branch + value);
      // Each quantised scalar is extracted, converted and scaled once for all query heads of its row.
      const unpacking = storage.startsWith('q') ? rows(s) * UNPACK_FLOPS * (key + branch + value) : 0;
      return {
        readBytes: rows(s) * (storedBytes(storage, key) + storedBytes(storage, value)) + (branch > 0 ? branchRows * storedBytes(storage, branch) : 0) + queries(s) * (key + branch) * 4,
        writeBytes: partialBytes(s, value),
        flops: product + unpacking,
        matrixFlops: product,
      };
    },
    terms: (s, v) => attendTerms(s, KERNELS.attend.work(s, v)),
  },
  /**
   * Split-KV decode attention over latents with K rebuilt in workgroup memory and rotated; V stays latent (its
   * up-projection is applied after the merge).
   */
  attend_rebuild: {
    dims: ['sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'splits'],
    variants: storages,
    work: (s, v) => {
      const storage = v as Storage;
      const [rk, rv, d, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
      const product = rows(s) * 2 * d * rk;
      return {
        readBytes: latentRows(s) * (storedBytes(storage, rk) + storedBytes(storage, rv)) + field(s, 'kvHeads') * d * (rk * 2 + 4) + queries(s) * d * 4,
        writeBytes: partialBytes(s, rv),
        flops: product + rows(s) * (3 * d + group * 2 * (d + rv)),
        matrixFlops: product,
      };
    },
    // Latent pairs are staged in powers of two, at least 16 and at most 256 at a time.
    terms: (s, v) => {
      const pairs = field(s, 'rankK') / 2;
      const step = Math.min(256, Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(1, pairs)))));
      return latentTerms(s, KERNELS.attend_rebuild.work(s, v), rows(s) * 4 * field(s, 'headDim') * padded(pairs, step));
    },
  },
  /**
   * Split-KV decode attention with full RoPE straight on latents: block by block, the rotated key up-projection is
   * expressed in few functions of the position, so that K is never rebuilt. `macsPerRank`: multiply-adds per cached
   * token, head and latent component, set-up included (schedule/block-absorbed.ts).
   */
  attend_block_absorbed: {
    dims: ['sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'macsPerRank', 'splits'],
    variants: storages,
    work: (s, v) => {
      const storage = v as Storage;
      const [rk, rv, d, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
      const score = rows(s) * group * 2 * field(s, 'macsPerRank') * rk;
      return {
        readBytes: latentRows(s) * (storedBytes(storage, rk) + storedBytes(storage, rv)) + queries(s) * d * rk * 4,
        writeBytes: partialBytes(s, rv),
        flops: score + rows(s) * group * 2 * rv,
        matrixFlops: score,
      };
    },
    terms: (s, v) => latentTerms(s, KERNELS.attend_block_absorbed.work(s, v), rows(s) * field(s, 'group') * 2 * field(s, 'macsPerRank') * field(s, 'rankK')),
  },
  /** Folds the split partials of one query into its output. `rows`: sequences × query heads. */
  attend_merge: {
    dims: ['rows', 'splits', 'width'],
    variants: ['f32'],
    work: (s) => ({
      readBytes: field(s, 'rows') * field(s, 'splits') * (field(s, 'width') + 2) * 4,
      writeBytes: field(s, 'rows') * field(s, 'width') * 4,
      flops: field(s, 'rows') * field(s, 'splits') * (field(s, 'width') * 2 + 4),
      matrixFlops: 0,
    }),
    // A workgroup of 64 threads a row: widths are worked on in whole steps of 64.
    terms: (s) => [1, field(s, 'rows') * field(s, 'splits') * (field(s, 'width') + 2) * 4, field(s, 'rows'), field(s, 'rows') * field(s, 'splits'), field(s, 'rows') * field(s, 'splits') * padded(field(s, 'width'), 64), field(s, 'splits')],
  },
  /** Rebuilds K (`rope`: rotated) or V (`plain`) of one layer and loop for the whole context into f16 rows. */
  rebuild: {
    dims: ['sequences', 'kvHeads', 'latentHeads', 'context', 'rank', 'headDim'],
    variants: ['rope', 'plain'],
    work: (s, v) => {
      const [r, d] = [field(s, 'rank'), field(s, 'headDim')];
      const product = rows(s) * 2 * d * r;
      return {
        readBytes: latentRows(s) * r * 2 + field(s, 'kvHeads') * d * r * 2,
        writeBytes: rows(s) * d * 2,
        flops: product + (v === 'rope' ? rows(s) * 3 * d : 0),
        matrixFlops: product,
      };
    },
    terms: (s, v) => {
      const w = KERNELS.rebuild.work(s, v);
      return [1, w.readBytes, w.writeBytes, w.flops];
    },
  },
  /** H2O: adds this step's attention mass and drops the lightest older token. `rows`: sequences × KV heads. */
  evict: {
    dims: ['rows', 'context'],
    variants: ['h2o'],
    work: (s) => ({ readBytes: field(s, 'rows') * field(s, 'context') * 8, writeBytes: field(s, 'rows') * field(s, 'context') * 4, flops: field(s, 'rows') * field(s, 'context') * 2, matrixFlops: 0 }),
    terms: (s) => [1, field(s, 'rows') * field(s, 'context') * 12],
  },
};

/** Attention over latents: the K side's multiply-adds, and what every cached token costs whatever its rank (rotation, softmax). */
const latentTerms = (s: Shape, w: Work, keyFlops: number) => [
  1, w.readBytes, keyFlops, rows(s) * field(s, 'group'), w.writeBytes, queries(s) * field(s, 'splits'), serialTokens(s),
];

/** Raised whenever a kernel's dims or terms change: fitted coefficients of another version are fitted anew. */
export const TERMS_VERSION = 2;

export const KERNEL_NAMES = Object.keys(KERNELS) as KernelName[];

/** Bytes and operations of a call. */
export function workOf(call: KernelCall): Work {
  return KERNELS[call.kernel].work(call.shape, call.variant);
}
