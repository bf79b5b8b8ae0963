/**
 * What a call states beside its shape: the options of every kernel's launch, as types. A schedule gives them, launches
 * read them.
 */

/** Chosen values by name, for one kernel. What is not named keeps the planner's own choice. */
export type Tuning = Readonly<Record<string, number>>;

/** Options that a call's shape does not state, with a benchmark's values. */
export interface OperationOptions extends AttendRebuildOptions {
  ropeBase?: number;
  /** Positions that the rotary tables must reach; the context unless given. */
  positions?: number;
  /** Position of the first cached token, for kernels that take a cache in order. */
  firstPosition?: number;
  vocabulary?: number;
  eps?: number;
  /** Of each loop's rows in a sum over loops. */
  factor?: number;
  /** Rows that an element-wise kernel reads and writes. */
  placement?: PlacementOptions;
  rope?: RopeOptions;
  ropeKept?: RopeKeptOptions;
  /** The embedding table is stored [width][vocabulary], like a tied output projection's weights. */
  embeddingColumns?: boolean;
  blockVectors?: BlockVectorsOptions;
  append?: AppendOptions;
  appendResidual?: AppendResidualOptions;
  appendStreams?: AppendStreamsOptions;
  streams?: StreamsOptions;
  chooseKeys?: ChooseKeysOptions;
  residual?: ResidualOptions;
  current?: CurrentOptions;
  matmul?: MatmulOptions;
  mass?: MassOptions;
  evict?: EvictOptions;
  prefill?: PrefillOptions;
  massPrefill?: MassPrefillOptions;
  evictPrefill?: EvictPrefillOptions;
  evictChunk?: EvictChunkOptions;
  load?: LoadOptions;
  sample?: SampleOptions;
  /**
   * Products of many rows go to matrix units, with the accuracy of f16 operands (shared/dense/matrix.launch.ts):
   * `deviceOptions` says whether there are any; false unless given.
   */
  matrixUnits?: boolean;
  /** The device is a software adapter: launch constants that suit one, where these differ from a GPU's. */
  software?: boolean;
  /** Threads of the smallest subgroup, 1 without subgroups; launches are made for 8 and more. */
  subgroupThreads?: number;
  /** Launch constants that `calibrate --tune` found; the planners' own unless given. */
  tuning?: Tuning;
  /** Segments, spans and splits of an attention call; a plain cache unless given. */
  run?: RunOptions;
}

/** Offsets of rows in a buffer, in floats: the first one, and from one to the next. */
export interface Placement {
  readonly offset: number;
  readonly stride: number;
}

/** Rows that an operation reads and writes; side by side unless given. */
export interface PlacementOptions {
  readonly input?: Placement;
  readonly output?: Placement;
}

/** Offsets of an activation's rows, in floats: the first one, from a row to the next, and from a group to the next. */
export interface Rows {
  readonly offset?: number;
  readonly row?: number;
  readonly group?: number;
}

export interface MatmulOptions {
  /** [group][m][k] side by side unless given. */
  readonly x?: Rows;
  /** [group][m][n] side by side unless given. */
  readonly y?: Rows;
  /** Groups that follow each other and share weights: query heads of a KV head. 1 unless given. */
  readonly weightGroup?: number;
  /** y += x W instead of y = x W. */
  readonly accumulate?: boolean;
  /** Weights are stored [group][n][k, in pairs] (matmul_transposed.wgsl). */
  readonly transposed?: boolean;
}

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

export interface RopeOptions {
  /** Rows of the data: queries and keys inside a packed row, for instance. Heads follow each other. */
  readonly data?: Placement;
  /** Rows that take the results of the first heads; in place unless given. */
  readonly target?: Placement & {
    /** Floats from a head to the next; the head width unless given. */ readonly head?: number;
  };
  /** How many heads go there: all unless given. The others are rotated in place. */
  readonly targetHeads?: number;
  /** Added to every position, which must not fall below 0. */
  readonly positionOffset?: number;
  /** A bias [head][head width] is added before the rotation. */
  readonly bias?: boolean;
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

export interface SampleOptions {
  /** Divides the logits; above 0. */
  readonly temperature: number;
  /** Probability that the nucleus reaches, above 0; 1 draws from all tokens. */
  readonly topP: number;
  readonly seed: number;
}

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

export interface MassOptions {
  /** Slots of a row: the context, rounded up to whole tiles, unless given. */
  readonly capacity?: number;
}

export interface MassPrefillOptions extends Pick<PrefillOptions, 'capacity' | 'firstSequence' | 'queries' | 'branch'> {
  /** Floats of a row of masses: the call's tokens unless given. */
  readonly room?: number;
  /** Tokens of the chunk have no mass yet; true unless given. */
  readonly begins?: boolean;
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

/** Which components form a rotary pair: (m, m + d/2) or (2m, 2m + 1). */
export type Pairing = 'half-split' | 'adjacent';
