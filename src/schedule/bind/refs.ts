/**
 * What operations bind, as data: buffers of the list (buffers.ts), rows of the cache, weights, and contents that are
 * known when an operation is bound. The decoder resolves them, the recorder compares them.
 */
import type { CacheTensor } from '../../codecs/layout.js';
import type { OperationOptions } from '../../../kernels/options.js';
import type { Placement } from '../../../kernels/placement.js';
import type { Axis, Place, Visit } from '../configuration.js';

export type CacheRole = CacheTensor['role'];

/** A buffer of the list, or a part of it. */
export interface BufferRef {
  readonly buffer: string;
  /** Its number, where a row of the list has several: a layer, or a unit that evicts on its own. */
  readonly index?: number;
  /** The part of the sequences that it is for, where each has a buffer. */
  readonly part?: number;
  /** Where the binding begins, and its length, in words: the rest unless given; `planned`: what the launch asks for. */
  readonly offset?: number;
  readonly words?: number | 'planned';
}

/** Cached rows of a role, of one part of the sequences. `aside`: of a run, where the cache cannot hold them yet. */
export interface CacheRef {
  readonly cache: CacheRole;
  readonly place: Place;
  readonly loop: number;
  readonly part: number;
  readonly aside?: true;
}

/** Projections of a model, and of the rotary branch beside them. */
export type Projection =
  | 'qkv'
  | 'q'
  | 'kv'
  | 'attention-out'
  | 'gate-up'
  | 'down'
  | 'branch-key'
  | 'embedding-up'
  | 'adapter'
  | 'exit-gate'
  | 'head-down'
  | 'loop-gate'
  | 'change-down'
  | 'change-up'
  | 'head';
export type NormName =
  | 'input_layernorm'
  | 'input_layernorm_2'
  | 'post_attention_layernorm'
  | 'post_attention_layernorm_2'
  | 'loop_gate_norm'
  | 'self_attn.q_norm'
  | 'self_attn.k_norm'
  | 'core'
  | 'final';

/** A layer of the core and a loop, whose weights of a codec an operation takes. */
interface CodecPlace {
  readonly layer: number;
  readonly loop: number;
}

/** A matrix of a codec: rows of a loop, W_up of a whole latent, or a map of rotated latents. */
export type CodecMatrixRef = CodecPlace &
  (
    | { readonly weights: 'down' | 'up-rows' | 'up-columns' | 'up-stacked'; readonly axis: Axis }
    | { readonly weights: 'map'; readonly map: 'encode' | Axis }
  );

/** Values that are added to a codec's rows; `restored-means`: what restored rows lack, of some loops end to end. */
export type CodecVectorRef =
  | (CodecPlace & { readonly weights: 'mean' | 'centre'; readonly axis: Axis })
  | (Omit<CodecPlace, 'loop'> & {
      readonly weights: 'restored-means';
      readonly loops: readonly number[];
      readonly axis: Axis;
    });

/** Weights as kernels read them. Layers are those of the core for a codec's, else those stored. */
export type WeightRef =
  /** Columns [first, first + columns) of a matrix; `inputs`: which of its rows, all unless given. */
  | {
      readonly weights: 'projection';
      readonly of: Projection;
      readonly stored: number;
      readonly layer: number;
      /** Width of the rotary branch whose queries are projected as well. */
      readonly branch: number;
      readonly part: number;
      readonly first: number;
      readonly columns: number;
      readonly inputs?: { readonly from: number; readonly count: number };
    }
  | { readonly weights: 'embedding'; readonly first: number; readonly columns: number }
  | { readonly weights: 'norm'; readonly of: NormName; readonly stored: number }
  /** Biases of the projections named, one after the other. */
  | { readonly weights: 'biases'; readonly letters: string; readonly stored: number }
  | { readonly weights: 'low-state' | 'change-rates' }
  | { readonly weights: 'loop-gate' | 'loop-gate-bias'; readonly stored: number }
  | CodecMatrixRef
  | CodecVectorRef;

/** A few words that are known when an operation is bound. */
interface ContentsRef {
  readonly contents: string;
  readonly words: readonly number[];
}

/** A table that comes with the launch, under a name that calls share. */
interface TableRef {
  readonly table: string;
}

export type Ref = BufferRef | CacheRef | WeightRef | ContentsRef | TableRef;

/** What an operation's launch takes beside its kernel and shape: its options, and what each binding is. */
export interface Bound {
  readonly options?: OperationOptions;
  readonly binds: Readonly<Record<string, Ref>>;
}

/** One run of an operation, with what it binds there. */
export interface BoundVisit extends Visit, Required<Bound> {
  /** Dispatches that it is launched as. */
  readonly dispatches: number;
}

/** A buffer, and where an operation's vectors are in it. */
export interface Placed {
  readonly rows: BufferRef;
  readonly at: Placement;
}

/** The place of an operation that only stacks have. */
export function placed({ op, place }: Visit): Place {
  if (!place) throw new Error(`${op.label} belongs into a layer`);
  return place;
}

/** The loop whose rows an operation works on. */
export const loopOf = (visit: Visit): number => visit.op.loop ?? placed(visit).loop - (visit.op.loopsBack ?? 0);

export const codecPlace = (visit: Visit): CodecPlace => ({ layer: placed(visit).layer, loop: loopOf(visit) });

/** The name under which a buffer of the list is allocated. */
export const labelOf = ({ buffer, index, part = 0 }: BufferRef): string =>
  `${buffer}${index === undefined ? '' : ` ${index}`}${partSuffix(part)}`;

/** Behind the label of a buffer that each part of the sequences has. */
export const partSuffix = (part: number): string => (part > 0 ? ` part ${part}` : '');
