/** Options of launches that write, read, choose and evict cached rows. */
import type { Placement } from './placement.js';
import type { Span } from './attention-options.js';

export interface AppendOptions {
  /** Tokens that each row of the cache can hold; rounded up to whole tiles. */
  capacity: number;
  /** New tokens of each sequence: `rows` is sequences × chunk. 1 unless given. */
  chunk?: number;
  /** Slots before the ring, 0 unless given. */
  pinned?: number;
  /** Slots of the ring: the rest of the capacity unless given. */
  ring?: number;
  /**
   * Positions below this are stored in the slot of their number (StreamingLLM's sinks); at most `pinned`. 0 unless
   * given.
   */
  sinks?: number;
  /** A constant row [head][width] is added to every token: buffer `bias`. */
  bias?: boolean;
  /**
   * Where the rows lie in the buffer `rows`, in floats: first one, and from a token to the next. Side by side unless
   * given.
   */
  rowOffset?: number;
  rowStride?: number;
  /** Added to the positions in `tokens`; 0 unless given. */
  first?: number;
  /** Sequences that lie before the call's first in the cache; 0 unless given. */
  firstSequence?: number;
  /** Where in `tokens` the sequences begin; 0 unless given. */
  firstStart?: number;
}

export interface AppendResidualOptions {
  /** Tokens that each row of the cache can hold; rounded up to whole tiles. */
  readonly capacity: number;
  /** New tokens of each sequence: `rows` is sequences × chunk. 1 unless given. */
  readonly chunk?: number;
  /**
   * Where the rows lie in the buffer `rows`, in floats: the first one, from a token to the next, and from a loop to the
   * next. [token][loop][head] side by side unless given.
   */
  readonly rowOffset?: number;
  readonly rowStride?: number;
  readonly loopStride?: number;
  /** Added to the positions in `tokens`; 0 unless given. */
  readonly first?: number;
  /** Sequences that lie before the call's first in the cache; 0 unless given. */
  readonly firstSequence?: number;
  /** Where in `tokens` the sequences begin; 0 unless given. */
  readonly firstStart?: number;
}

export interface LoadOptions {
  /** Slots of a row, rounded up to whole tiles; those of the call unless given. */
  readonly capacity?: number;
  /** Tokens of each sequence: `rows` is sequences × chunk. All rows are of one sequence unless given. */
  readonly chunk?: number;
  /** Slot of the first token, and sequences before the first in the cache; 0 unless given. */
  readonly first?: number;
  readonly firstSequence?: number;
  /** Where the rows go; side by side unless given. */
  readonly output?: Placement;
}

export interface RopeKeptOptions {
  /** Where the keys lie; side by side unless given. */
  readonly data?: Placement;
  /** Heads that a row of positions is for: 1 unless given. */
  readonly pooled?: number;
  /** Row of the first head, and slot of the first token; 0 unless given. */
  readonly firstRow?: number;
  readonly first?: number;
  /** Slots of a row of positions; those of the call unless given. */
  readonly capacity?: number;
}

export interface ResidualOptions {
  /** Which of the loops that share an anchor is read, from 0; the first unless given. The anchor's is the last. */
  readonly loop?: number;
}

/** Where rows of flashloop and lists of chosen tokens lie. */
export interface StreamsOptions {
  /** Loops of a packed group; those that are read unless given. */
  readonly loops?: number;
  /** Slots of the ring of exact rows, whole tiles; those of the call unless given. */
  readonly tailSlots?: number;
  /** Words of a list, and lists before that of the call's first query head. */
  readonly listWords?: number;
  readonly firstList?: number;
}

/** Spans have packed tokens for pinned ones, and exact ones as a ring. */
export interface AppendStreamsOptions extends Pick<StreamsOptions, 'loops'> {
  readonly sequences: number;
  /** Groups of each sequence; 1 unless given. */
  readonly groups?: number;
  /** Tokens that a packed row has room for. */
  readonly capacity: number;
  /** Slots of the exact rows, whole tiles. */
  readonly slots: number;
  /** Exact tokens, the current one included, with which a step packs; 0: the first groups of a prompt. */
  readonly full: number;
  /** Sequences that lie before the call's first in the cache; 0 unless given. */
  readonly firstSequence?: number;
  readonly spans?: readonly Span[];
}

export interface ChooseKeysOptions extends Pick<StreamsOptions, 'listWords' | 'firstList'> {
  /** Query heads of a sequence, and those that share a KV head. */
  readonly heads?: number;
  readonly group?: number;
  /** Slots of a row of scores. */
  readonly capacity?: number;
  /** Keys of the current tokens; side by side unless given. */
  readonly keys?: Placement;
}

export interface MassOptions {
  /** Slots of a row: the context, rounded up to whole tiles, unless given. */
  readonly capacity?: number;
}

/** A cache whose tokens a row chooses. */
export interface EvictedCache {
  /** Name of its buffer. */
  readonly name: string;
  readonly width: number;
  /** Cached rows that one evicting row decides for, one after the other: 1 unless given. */
  readonly rows?: number;
}

export interface EvictOptions {
  /** Evicting rows of a sequence: 1 unless given. */
  readonly heads?: number;
  /** Slots before the ring, of which `context` are filled at most: the context unless given. */
  readonly pinned?: number;
  /** Slots of the ring: as many as are pinned unless given. */
  readonly ring?: number;
  /** Slots of a cached row: pinned and ring unless given. */
  readonly capacity?: number;
  /** A key cache and a value cache of half the width each unless given. */
  readonly caches?: readonly EvictedCache[];
}

export interface EvictPrefillOptions {
  /**
   * Slots before the ring, of which `heavy` are filled at most: half of those that stay, and all of them, unless given.
   */
  readonly pinned?: number;
  readonly heavy?: number;
  /** Slots of the ring: as many as stay beside the heavy ones unless given. */
  readonly ring?: number;
  /** Slots of a cached row: pinned and ring unless given. */
  readonly capacity?: number;
  /** Evicting rows before the first in mass, positions and caches; 0 unless given. */
  readonly firstRow?: number;
  /** Floats of a row of the run's masses, and slots of a row of the run; its tokens unless given. */
  readonly room?: number;
  readonly runCapacity?: number;
  /** A key cache and a value cache of half the width each unless given. */
  readonly caches?: readonly EvictedCache[];
}

export interface EvictChunkOptions extends EvictPrefillOptions {
  /** Position of the chunk's first token: as many as are held unless given. */
  readonly position?: number;
}
