/** The frame of a prompt's prefill: a row a token of a chunk. Its buffers exist for one call. */
import { TILE_TOKENS } from '../../../kernels/spec.js';
import { pagedTokens } from '../../codecs/layout.js';
import { keepsState } from '../../geometry/geometry.js';
import { weighsTokens } from '../../eviction/policy.js';
import type { PrefillOptions } from '../../../kernels/attention-options.js';
import type { Placement } from '../../../kernels/placement.js';
import type { CacheMap, CachePart, Slots } from '../cache-map.js';
import { anchoredIn, branchHeadsOf, type Axis, type Configuration, type Visit } from '../configuration.js';
import { branchWidth, evictingRows } from '../facts.js';
import {
  capturesOf,
  cachedBefore,
  rowsOfRuns,
  runsOf,
  storesRun,
  takenAs,
  type Chunk,
  type HowTaken,
  type PromptExtent,
} from '../prefill/pass.js';
import { Frame, type ExactRows, type Setting, type Target } from './frame.js';
import { planSlots } from './kept-slots.js';
import { placed, type Bound, type BufferRef, type CacheRef, type CacheRole, type Placed, type Ref } from './refs.js';

/** Rows of one sequence: `first` is the slot of the run's first token. */
export interface Rowset {
  readonly cache: CacheRef | BufferRef;
  readonly capacity: number;
  readonly firstSequence: number;
  readonly first: number;
}

/** First token of the chunk, within its run; of tokens before the run, their position. */
export const fromOf = ({ op }: Visit): number => op.from ?? 0;
/** Rows that an operation works on. */
export const countOf = ({ op }: Visit): number => (op.shape.m ?? op.shape.rows ?? op.shape.queries) as number;

/** Where rows go. @param within the first of the run's tokens @param slots where tokens are evicted */
export const into = (
  visit: Visit,
  { cache, capacity, firstSequence, first }: Rowset,
  within = fromOf(visit),
  slots?: Slots,
): Target => ({
  cache,
  // The positions begin with 0.
  options: { capacity, chunk: countOf(visit), first: first + within, firstSequence, ...slots },
});

/** Buffers of a step that are one in a prompt: what is projected; and what attention or the MLP gives, or latents. */
const SHARED: Readonly<Record<string, string>> = {
  'query key value': 'projections',
  'gate up': 'projections',
  'reconstructed keys': 'projections',
  'reconstructed values': 'projections',
  attention: 'results',
  activated: 'results',
};

const longest = (tokens: readonly number[]): number => tokens.reduce((a, b) => Math.max(a, b), 0);

/**
 * How prompts are taken in: the runs of each, and what they need room for.
 * @param counts tokens of each prompt, 0: its sequence is left alone @param lengths tokens that each has already
 */
export function planPrompts(
  c: Configuration,
  asked: HowTaken,
  counts: readonly number[],
  lengths: readonly number[],
): HowTaken & { readonly runs: readonly (readonly Chunk[])[]; readonly extent: PromptExtent } {
  const taken = takenAs(c, asked.method, asked.chunkTokens);
  const { method, chunkTokens } = taken;
  const runs = counts.map((count, i) => (count === 0 ? [] : runsOf(taken, lengths[i] as number, count)));
  const all = runs.flat();
  // Pieces of what is before a run are as long as a chunk, however short the run.
  const room =
    method === 'chunked'
      ? Math.min(chunkTokens, longest(all.map(({ from, tokens }) => from + tokens)))
      : longest(all.map(({ tokens }) => tokens));
  return {
    method,
    chunkTokens,
    runs,
    extent: {
      room,
      rows: Math.max(room, rowsOfRuns(c, all)),
      chunk: Math.min(room, chunkTokens),
      captures: capturesOf(c, method),
      carries: !weighsTokens(c.eviction) && all.some(({ from }) => from > 0),
    },
  };
}

/** What a prompt's runs have in common. */
export interface PromptSetting extends Setting, Pick<PromptExtent, 'rows' | 'captures'> {
  /** Tokens of the chunks in which runs are worked on. */
  readonly chunkTokens: number;
  /** Rows of a run, where a cache under eviction cannot hold them. */
  readonly aside: CacheMap | undefined;
}

export class PromptFrame extends Frame {
  private readonly slots: ReadonlyMap<Visit, number>;

  /** @param run its tokens, from those before it on @param visits its operations: which kept rows each has */
  constructor(
    override readonly setting: PromptSetting,
    caches: CacheMap,
    readonly sequence: number,
    readonly run: Chunk,
    visits: readonly Visit[],
  ) {
    super(setting, caches, setting.c.geometry.adapter || keepsState(setting.c.geometry) ? 3 : 2);
    this.slots = setting.captures ? planSlots(visits, setting.captures === 'one-shot').of : new Map();
  }

  /** A projection back into the stream overwrites the rows that the projections before it have read. */
  buffer(label: string, index?: number): BufferRef {
    if (label === 'projected') return this.normed;
    const buffer = SHARED[label] ?? label;
    return index === undefined ? { buffer } : { buffer, index };
  }

  get projections(): BufferRef {
    return this.buffer('projections');
  }

  get results(): BufferRef {
    return this.buffer('results');
  }

  /** Tokens of the cache whose rows come before those of the run (H2O). */
  get held(): number {
    return cachedBefore(this.c, this.run);
  }

  override firstRow(visit: Visit): number {
    return fromOf(visit);
  }

  override firstPosition(visit: Visit): number {
    return this.run.from + fromOf(visit);
  }

  get lastRows(): Placement {
    const { hidden } = this.c.geometry;
    return { offset: (this.run.tokens - 1) * hidden, stride: hidden };
  }

  partOf({ place }: Visit): CachePart {
    return this.caches.partOf(place?.block.name ?? 'core', this.sequence);
  }

  /** Latents of a chunk where none are accumulated: encoded from all loops at once, or read back. */
  chunkLatents(axis: Axis): Placed {
    return { rows: this.results, at: { offset: 0, stride: this.latentRow(axis) } };
  }

  override latents(visit: Visit, axis: Axis): Placed {
    return this.setting.captures ? this.chunkLatents(axis) : super.latents(visit, axis);
  }

  /** One axis at a time. */
  override waiting(visit: Visit): Placed & { readonly loopStride: number } {
    const { kvHeads, headDim } = this.c.geometry;
    const loopStride = kvHeads * headDim;
    const at = { offset: 0, stride: anchoredIn(this.c, placed(visit).block) * loopStride };
    return { rows: this.buffer('held rows'), at, loopStride };
  }

  override branchKeys(visit: Visit, row = this.held + fromOf(visit)): Placed {
    return super.branchKeys(visit, row);
  }

  inCache(role: CacheRole, visit: Visit, loop?: number): Rowset {
    return {
      cache: this.cacheOf(visit, role, loop),
      capacity: this.caches.slots.capacity,
      firstSequence: this.sequence - this.partOf(visit).first,
      first: this.run.from,
    };
  }

  /** Where rows of the run are written and read again: in the cache, or beside one that is evicted from. */
  ownRows(role: CacheRole, visit: Visit, loop?: number): Rowset {
    const { aside, rows } = this.setting;
    const beside = { firstSequence: 0, first: this.held };
    if (aside) {
      const cache = { ...this.cacheOf(visit, role, loop), part: 0, aside: true } as const;
      return { ...beside, cache, capacity: aside.slots.capacity };
    }
    if (storesRun(this.c)) return { ...beside, cache: this.buffer(`stored ${role}`), capacity: keptSlots(rows) };
    return this.inCache(role, visit, loop);
  }

  /** Rows as attention reads them, in memory of their own. */
  kept(axis: Axis, visit: Visit): Rowset {
    const cache = this.buffer(`kept ${axis}s`, this.slots.get(visit) ?? 0);
    return { cache, capacity: keptSlots(this.setting.rows), firstSequence: 0, first: this.held };
  }

  /** Rows of the whole run as the cache will have them. */
  runRows(role: CacheRole, visit: Visit): Rowset {
    return this.setting.aside || storesRun(this.c) ? this.ownRows(role, visit) : this.kept(role as Axis, visit);
  }

  target(visit: Visit, role: CacheRole, loop?: number): Target {
    return into(visit, this.ownRows(role, visit, loop));
  }

  recentTarget(visit: Visit, role: CacheRole): Target {
    const target = into(visit, this.inCache(role, visit), fromOf(visit), this.caches.recentSlots);
    return { ...target, row: this.rowOf(visit) };
  }

  /** In place. */
  rotateQueries(visit: Visit): Bound {
    return this.rotate(visit, this.inPacked('queries'), this.c.geometry.headDim);
  }

  rotateBranch(visit: Visit): Bound {
    return this.rotate(visit, this.inPacked('branch'), this.c.branch.width);
  }

  /** Where attention's queries lie, with those of the rotary branch, and its keys. */
  queriesOf(visit: Visit): Pick<PrefillOptions, 'queries' | 'branch'> {
    const { queries, branch } = this.packed;
    const { width } = this.c.branch;
    if (branchWidth(this.c, placed(visit).block) === 0) return { queries };
    return { queries, branch: { width, heads: branchHeadsOf(this.c), queries: { ...branch, head: width } } };
  }

  branchBinds(visit: Visit, keys = this.branchKeys(visit).rows): Record<string, Ref> {
    if (branchWidth(this.c, placed(visit).block) === 0) return {};
    return { branchQueries: this.projections, branchKeys: keys };
  }

  /** First evicting row of the prompt in the buffers of its part. */
  firstEvicting(visit: Visit): number {
    return (this.sequence - this.partOf(visit).first) * evictingRows(this.c, placed(visit).block);
  }

  /** Of whole groups from the beginning of the prompt. */
  exactRows(visit: Visit, axis: Axis): ExactRows {
    const { cache, capacity } = this.kept(axis, visit);
    const { rows, packGroup } = visit.op.shape as { rows: number; packGroup: number };
    const firstSequence = this.sequence - this.partOf(visit).first;
    return {
      options: { sequences: 1, groups: rows / packGroup, slots: capacity, full: 0, firstSequence },
      binds: { rows: cache },
    };
  }

  /** The row of a token of the run among those of its chunk. */
  rowOf(visit: Visit): number {
    return fromOf(visit) % this.setting.chunkTokens;
  }
}

/** Tokens of the rows that attention reads: whole tiles. */
const keptSlots = (tokens: number): number => pagedTokens(tokens, TILE_TOKENS);
