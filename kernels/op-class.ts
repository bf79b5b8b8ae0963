/** What a class of operations states about itself. */

/** Sizes of one call by name, e.g. rows, columns, inner. */
export type OpShape = Readonly<Record<string, number>>;

export interface OpWork {
  readonly bytes: number;
  /** Floating-point operations; a multiply-add is two. */
  readonly operations: number;
  /** Operations that matrix units cannot do, beside these. */
  readonly vectorOperations?: number;
  /** Rows that a kernel can share out without splitting them: sequences × KV heads. */
  readonly rows?: number | undefined;
  /** Bytes that the busiest unit reads one after another, where a kernel does not divide a row over the units. */
  readonly walkedBytes?: number;
  /** Bytes of the cache that is read once: below the L2's size a repeated measurement may find it there. */
  readonly cacheBytes?: number;
  /** The bytes cross the link between GPUs, not the memory. */
  readonly onLink?: boolean;
}

export interface ClassSpec {
  /** Sizes that a table's grid is made of. */
  readonly axes: readonly string[];
  /** Sizes that are the same in all rows of a table: another value needs another table. */
  readonly fixed: readonly string[];
  /** Each KV head reads a cache of its own, so that more of them are to a kernel what more sequences are. */
  readonly headsAsSequences?: true;
  work(shape: OpShape): OpWork;
  /** Where a shape lies for interpolation between scattered points, as positive numbers; their logarithms count. */
  coordinates(shape: OpShape): number[];
}

/** bf16. */
export const STORAGE_BYTES = 2;

/** Rates of a GPU by its datasheet. */
export interface Rates {
  readonly memoryBytesPerSecond: number;
  readonly linkBytesPerSecond: number;
  readonly operationsPerSecond: number;
  /** f32, without matrix units; where it is absent vector operations count as matrix ones. */
  readonly vectorOperationsPerSecond?: number;
}
