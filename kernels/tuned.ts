/**
 * What a tuned kernel does for a call of ours: the work that no implementation can leave out, and the name under which
 * tables of serving stacks hold the same operation. Activations are bf16, products run on matrix units, and what one
 * kernel of ours hands to the next (split partials, a block's basis, biases) stays on chip.
 */
import { type OpShape, type OpWork, STORAGE_BYTES } from './op-class.js';
import { OP_CLASSES, type OpClass } from './op-classes.js';
import type { StoredWeights } from './stored-weights.js';

/** Kernels of one class reach the same shares of a GPU's rates. */
export const TUNED_CLASSES = [
  'product',
  /** Weights in 8-bit floats, activations quantised on the way: half of the units' rate, and their own launches. */
  'product-fp8',
  'decode-attention',
  'latent-attention',
  'prefill-attention',
  'small',
  'all-reduce',
  /** Over a link through the server's processor: about three times as long, and as different as servers' boards. */
  'all-reduce-host',
] as const;
export type TunedClass = (typeof TUNED_CLASSES)[number];

export interface TunedCall {
  readonly class: TunedClass;
  readonly work: OpWork;
  /** The same operation as a class of the tables; absent where no stack has such a kernel. */
  readonly table?: {
    readonly op: OpClass;
    readonly shape: OpShape;
    /** A chunk of a prompt: the time of `shape` less that of this, the tokens before the chunk. */
    readonly before?: OpShape;
  };
  /** Done inside a neighbour's kernel: it pays no launch of its own. */
  readonly inside?: boolean;
  /** Weights that the table's call reads otherwise: in 16 bits, or with one scale a tensor where these have blocks. */
  readonly stored?: StoredWeights | 'blocks';
}

/** The class of an operation of the tables. */
export function tunedClass(op: OpClass): TunedClass {
  switch (op) {
    case 'product':
    case 'product-fp8':
    case 'all-reduce':
      return op;
    case 'decode-attention':
    case 'decode-attention-grouped':
    case 'decode-attention-fp8':
    case 'decode-attention-grouped-fp8':
      return 'decode-attention';
    case 'decode-attention-latent':
      return 'latent-attention';
    case 'prefill-attention':
    case 'prefill-attention-grouped':
    case 'prefill-attention-fp8':
    case 'prefill-attention-grouped-fp8':
      return 'prefill-attention';
    default:
      return 'small';
  }
}

/** An operation that the tables have. */
export const listed = (op: OpClass, shape: OpShape): TunedCall => ({
  class: tunedClass(op),
  work: OP_CLASSES[op].work(shape),
  table: { op, shape },
});

/** A product in 16 bits of weights in fewer: the table's call reads all 16. */
export function reading(stored: StoredWeights, shape: OpShape): TunedCall {
  const call = listed('product', shape);
  const { inner = 0, columns = 0 } = shape;
  const saved = (STORAGE_BYTES - stored.bits / 8) * inner * columns;
  return { ...call, work: { ...call.work, bytes: call.work.bytes - saved }, stored };
}

/** A product of 8-bit floats with a scale a block. */
export const inBlocks = (shape: OpShape): TunedCall => ({ ...listed('product-fp8', shape), stored: 'blocks' });

/** An operation that no table has. */
export const unlisted = (
  of: TunedClass,
  bytes: number,
  { matrix = 0, vector = 0, rows }: { matrix?: number; vector?: number; rows?: number } = {},
): TunedCall => ({
  class: of,
  work: { bytes, operations: matrix, vectorOperations: vector, rows },
});

/** Moves so many scalars of activations. */
export const moving = (scalars: number): TunedCall => unlisted('small', STORAGE_BYTES * scalars);

/** Head widths of attention kernels in the tables. */
export const LISTED_HEAD_DIMS: readonly number[] = [64, 128];

/**
 * Attention of a prompt's `queries` to the `context` tokens before them and, if `causal`, to each other. The tables
 * hold whole prompts: a chunk is the difference of two.
 * @param fp8 the cache holds 8-bit floats
 */
export function tunedPrefill(s: OpShape, matrixOperations: number, causal: boolean, fp8 = false): TunedCall {
  const { sequences = 1, kvHeads = 1, group = 1, queries = 0, context = 0, keyWidth = 0, valueWidth = 0 } = s;
  const read = kvHeads * (context + (causal ? queries : 0)) * (keyWidth + valueWidth);
  const call = unlisted(
    'prefill-attention',
    sequences *
      ((fp8 ? 1 : STORAGE_BYTES) * read + STORAGE_BYTES * kvHeads * group * queries * (keyWidth + valueWidth)),
    {
      matrix: matrixOperations,
    },
  );
  if (!causal || keyWidth !== valueWidth || !LISTED_HEAD_DIMS.includes(keyWidth)) return call;
  const kind = group === 1 ? 'prefill-attention' : 'prefill-attention-grouped';
  const op: OpClass = fp8 ? `${kind}-fp8` : kind;
  const heads = group === 1 ? { heads: kvHeads } : { kvHeads, group };
  const shape = { headDim: keyWidth, batch: sequences, ...heads };
  return {
    ...call,
    table: {
      op,
      shape: { ...shape, tokens: context + queries },
      ...(context > 0 ? { before: { ...shape, tokens: context } } : {}),
    },
  };
}
