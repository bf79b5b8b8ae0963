/**
 * Classes of operations that serving stacks have kernels for, and what each shape of them moves and computes. Tables
 * that others measured are mapped to these. Elements are bf16. Sizes are in elements, work in bytes and operations.
 */
import { STORAGE_BYTES, type ClassSpec, type OpShape } from './op-class.js';

/** Bytes of a weight or a cached scalar in 8-bit floats. */
export const FP8_BYTES = 1;

type Heads = (s: OpShape) => number;

/** @param stored bytes of a cached scalar; queries and results are bf16 */
const decode = (kvHeads: Heads, heads: Heads, stored = STORAGE_BYTES): Omit<ClassSpec, 'axes'> => ({
  fixed: ['headDim'],
  headsAsSequences: true,
  work: (s) => {
    const cacheBytes = 2 * stored * kvHeads(s) * s.batch! * s.context! * s.headDim!;
    return {
      bytes: cacheBytes + 2 * STORAGE_BYTES * heads(s) * s.batch! * s.headDim!,
      operations: 4 * heads(s) * s.batch! * s.context! * s.headDim!,
      cacheBytes,
      rows: s.batch! * kvHeads(s),
    };
  },
  // Sequences × KV heads are what a kernel divides among its units; which of the two makes little difference.
  coordinates: (s) => [
    s.batch! * kvHeads(s),
    s.context!,
    kvHeads(s),
    heads(s) / kvHeads(s),
    s.batch! * kvHeads(s) * s.context!,
  ],
});

const prefill = (kvHeads: Heads, heads: Heads, stored = STORAGE_BYTES): Omit<ClassSpec, 'axes'> => ({
  fixed: ['headDim'],
  headsAsSequences: true,
  work: (s) => ({
    bytes: 2 * s.batch! * s.tokens! * s.headDim! * (stored * kvHeads(s) + STORAGE_BYTES * heads(s)),
    // Causal: a query reads the keys up to its own.
    operations: 2 * heads(s) * s.batch! * s.tokens! * (s.tokens! + 1) * s.headDim!,
  }),
  coordinates: (s) => [s.batch! * heads(s), s.tokens!, kvHeads(s), heads(s) / kvHeads(s)],
});

const all = (s: OpShape): number => s.heads!;
const groups = (s: OpShape): number => s.kvHeads!;
const grouped = (s: OpShape): number => s.kvHeads! * s.group!;

const elementwise = (reads: number, writes: number): ClassSpec => ({
  axes: ['tokens', 'width'],
  fixed: [],
  work: (s) => ({ bytes: STORAGE_BYTES * s.tokens! * s.width! * (reads + writes), operations: 0 }),
  coordinates: (s) => [s.tokens!, s.width!],
});

/** Output tile whose count decides how many rounds a matrix product takes on a GPU. */
const TILE = 64;
const productCoordinates = (s: OpShape): number[] => [
  s.rows!,
  s.columns!,
  s.inner!,
  Math.ceil(s.rows! / TILE) * Math.ceil(s.columns! / TILE),
];

export const OP_CLASSES = {
  /** rows × inner times inner × columns. */
  product: {
    axes: ['rows', 'columns', 'inner'],
    fixed: [],
    work: (s) => ({
      bytes: STORAGE_BYTES * (s.rows! * s.inner! + s.inner! * s.columns! + s.rows! * s.columns!),
      operations: 2 * s.rows! * s.columns! * s.inner!,
    }),
    coordinates: productCoordinates,
  },
  /**
   * The same with weights and activations in 8-bit floats, the latter quantised on the way; results are bf16. Matrix
   * units take two such operations for one in 16 bits.
   */
  'product-fp8': {
    axes: ['rows', 'columns', 'inner'],
    fixed: [],
    work: (s) => ({
      bytes: FP8_BYTES * s.inner! * s.columns! + STORAGE_BYTES * s.rows! * (s.inner! + s.columns!),
      operations: s.rows! * s.columns! * s.inner!,
    }),
    coordinates: productCoordinates,
  },
  /** One new token a sequence; every query head has a KV head of its own. `context` counts the new token. */
  'decode-attention': { axes: ['heads', 'batch', 'context'], ...decode(all, all) },
  /** The same with `group` query heads a KV head. */
  'decode-attention-grouped': { axes: ['kvHeads', 'group', 'batch', 'context'], ...decode(groups, grouped) },
  /** One latent for all heads: `latentWidth` scalars are keys and values, `branchWidth` more keys alone. */
  'decode-attention-latent': {
    axes: ['heads', 'batch', 'context'],
    fixed: ['latentWidth', 'branchWidth'],
    work: (s) => {
      const row = s.latentWidth! + s.branchWidth!;
      const cacheBytes = STORAGE_BYTES * s.batch! * s.context! * row;
      return {
        bytes: cacheBytes + STORAGE_BYTES * s.batch! * s.heads! * (row + s.latentWidth!),
        operations: 2 * s.heads! * s.batch! * s.context! * (row + s.latentWidth!),
        cacheBytes,
        rows: s.batch!,
      };
    },
    coordinates: (s) => [s.batch!, s.context!, s.heads!, s.batch! * s.context!],
  },
  /** Causal attention of a prompt to itself. */
  'prefill-attention': { axes: ['heads', 'batch', 'tokens'], ...prefill(all, all) },
  'prefill-attention-grouped': { axes: ['kvHeads', 'group', 'batch', 'tokens'], ...prefill(groups, grouped) },
  /** The same over a cache of 8-bit floats; products are bf16. */
  'decode-attention-fp8': { axes: ['heads', 'batch', 'context'], ...decode(all, all, FP8_BYTES) },
  'decode-attention-grouped-fp8': {
    axes: ['kvHeads', 'group', 'batch', 'context'],
    ...decode(groups, grouped, FP8_BYTES),
  },
  'prefill-attention-fp8': { axes: ['heads', 'batch', 'tokens'], ...prefill(all, all, FP8_BYTES) },
  'prefill-attention-grouped-fp8': {
    axes: ['kvHeads', 'group', 'batch', 'tokens'],
    ...prefill(groups, grouped, FP8_BYTES),
  },
  /** A message of so many bytes summed over GPUs and left on each. Each sends it once where switches add. */
  'all-reduce': {
    axes: ['gpus', 'bytes'],
    fixed: [],
    work: (s) => ({ bytes: s.bytes!, operations: 0, onLink: true }),
    coordinates: (s) => [s.gpus!, s.bytes!],
  },
  /** With the sum of the residual: servers fuse both. */
  norm: elementwise(2, 2),
  rope: elementwise(1, 1),
  /** SwiGLU: reads both halves of `width` results each. */
  activation: elementwise(2, 1),
  /** Activations to 8-bit floats by a scale that is known: one half of what it reads is written. */
  quantise: elementwise(1, FP8_BYTES / STORAGE_BYTES),
} as const satisfies Record<string, ClassSpec>;

export type OpClass = keyof typeof OP_CLASSES;
export const OP_CLASS_NAMES = Object.keys(OP_CLASSES) as OpClass[];
export const classSpec = (op: OpClass): ClassSpec => OP_CLASSES[op];
