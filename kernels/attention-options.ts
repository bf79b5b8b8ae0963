/** Options of launches that attend: which tokens, which splits, where queries and rows lie. */
import type { Placement } from './placement.js';

/** The cached tokens of one sequence: pinned ones, then a ring from the position of its first token on. */
export interface Span {
  readonly pinned: number;
  readonly firstPosition: number;
  readonly ring: number;
}

/**
 * Where an attention call's tokens are, and which of a query's splits it writes. The defaults are those of a plain
 * cache.
 */
export interface RunOptions {
  /** Slots of a row before its ring; 0 unless given. */
  readonly pinned?: number;
  /** Slots of a row, rounded up to whole tiles; what the spans hold at most unless given. */
  readonly capacity?: number;
  /** One for each sequence; the call's context as a ring from `firstPosition` on unless given. */
  readonly spans?: readonly Span[];
  /** Position of the first cached token of every sequence where no spans are given. */
  readonly firstPosition?: number;
  /** Pinned tokens are scored by a second set of queries, rotated for their place in the cache. */
  readonly pinnedQuery?: boolean;
  /** Queries from one to its second: those of the call unless given. */
  readonly queriesApart?: number;
  /** The splits that this call writes; about as many as the shape says, and all of a query, unless given. */
  readonly division?: Division;
  /** Which of the segments this call reads; both unless given. */
  readonly only?: 'pinned' | 'ring';
}

/** The splits of a query that one attention call writes, among those that its merge folds. */
export interface Division {
  /** Splits that the call writes, those of the pinned tokens first. */
  readonly splits: number;
  readonly pinnedSplits: number;
  /** Tokens of a split: whole units, so that splits start at a tile. Later splits may be empty. */
  readonly tokens: number;
  /** The first split that the call writes, and splits of the query in all. */
  readonly first: number;
  readonly all: number;
}

/**
 * Options of a call over latents beside its run: the scale, and the layout of pairs and of the positions of pinned
 * tokens.
 */
export interface AttendRebuildOptions {
  /** Factor of q · k; headDim^-½ unless given. */
  readonly scale?: number;
  /** Half-split unless given. */
  readonly pairing?: Pairing;
  /** Each KV head has positions of its own for the pinned tokens (H2O); those of a sequence are alike unless given. */
  readonly positionsByHead?: boolean;
}

export interface BlockVectorsOptions {
  /** Query heads that share a KV head: heads / kvHeads of one sequence unless given. */
  readonly group?: number;
}

export interface CurrentOptions {
  /** Query heads of a sequence. */
  readonly heads: number;
  /** Query heads that share a KV head. */
  readonly group: number;
  /** Of q · k: (key width)^-½ unless given. */
  readonly scale?: number;
  /** Side by side unless given. */
  readonly queries?: Placement;
  readonly keys?: Placement;
  readonly values?: Placement;
  /** join_chosen only: words of a list of chosen tokens. */
  readonly listWords?: number;
  /** attend_merge only: row of output and stats that the call begins with; 0 unless given. */
  readonly firstRow?: number;
  /** attend_current only: the last components of query and key, in places of their own. */
  readonly branch?: CurrentBranch;
}

/**
 * A rotary branch: its width, where the vectors of query heads lie (`head`: floats from one to the next), and its keys,
 * side by side.
 */
interface CurrentBranch {
  readonly width: number;
  readonly queries: Placement & { readonly head: number };
  readonly keys: Placement;
  /** Keys of a sequence: one a KV head, or 1 for all. */
  readonly heads: number;
}

/** Tokens of a sequence before the chunk, and of the chunk. */
export interface ChunkSpan {
  readonly before: number;
  readonly tokens: number;
}

/** A rotary branch beside the keys: part of the shape's key width. */
export interface PrefillBranch {
  readonly width: number;
  /** Keys of a token: one a KV head, or 1 for all. */
  readonly heads: number;
  /** Where the queries of a token lie; `head`: floats from one to the next. */
  readonly queries: Placement & { readonly head: number };
  /** Tokens of a sequence that the buffer of keys has room for; those of the call unless given. */
  readonly tokens?: number;
}

export interface PrefillOptions {
  /**
   * One for each sequence; the shape's context and queries unless given. Where attention is carried on, all its rows
   * are `before`.
   */
  readonly spans?: readonly ChunkSpan[];
  /** Slot of the first row; 0 unless given. For attention that is carried on. */
  readonly first?: number;
  /**
   * The call continues the state of earlier calls. Unless given this is true, except where a chunk attends to itself.
   */
  readonly carried?: boolean;
  /** Slots of a row, rounded up to whole tiles; those of the call unless given. */
  readonly capacity?: number;
  /** Sequences that lie before the call's first in the rows. */
  readonly firstSequence?: number;
  /** Side by side unless given. */
  readonly queries?: Placement;
  readonly output?: Placement;
  readonly branch?: PrefillBranch;
}

export interface MassPrefillOptions extends Pick<PrefillOptions, 'capacity' | 'firstSequence' | 'queries' | 'branch'> {
  /** Floats of a row of masses: the call's tokens unless given. */
  readonly room?: number;
  /** Tokens of the chunk have no mass yet; true unless given. */
  readonly begins?: boolean;
}

/** Which components form a rotary pair: (m, m + d/2) or (2m, 2m + 1). */
export type Pairing = 'half-split' | 'adjacent';
