/**
 * The machine of a prompt's prefill: a row a token of a chunk. Its buffers exist for one call (cost/memory.ts,
 * prefillPeaks, counts them); what it has not it takes from the decoder.
 */
import { pathSpec } from '../../codecs/paths.js';
import { isLatent } from '../../codecs/registry.js';
import { pagedTokens, TILE_TOKENS } from '../../codecs/layout.js';
import { reindexes } from '../../eviction/policy.js';
import type { Buffer } from '../../gpu/index.js';
import { rotaryTable } from '../../gpu/rotary.js';
import { anchoredIn } from '../../schedule/configuration.js';
import { ASIDE, prefillBuffers, type PromptExtent } from '../../schedule/buffers.js';
import type { Visit } from '../../schedule/expand.js';
import { heldBefore, setsRowsAside, storesRun, type CapturingKind } from '../../schedule/prefill.js';
import type { CodecAxis } from '../tensors.js';
import { Allocations } from './allocations.js';
import { Caches, type CachePart, type CacheRole, type Slots } from './caches.js';
import { Machine, placed, type Placed, type Target, type Vectors } from './machine.js';
import { planSlots } from './slots.js';

/** Tokens of the rows that attention reads: whole tiles. */
const keptSlots = (tokens: number): number => pagedTokens(tokens, TILE_TOKENS);

export interface PromptOptions extends Omit<PromptExtent, 'chunk'> {
  readonly chunkTokens: number;
}

/** Rows of one sequence: `first` is the slot of the run's first token. */
export interface Rowset {
  readonly cache: Buffer;
  readonly capacity: number;
  readonly firstSequence: number;
  readonly first: number;
}

/** First token of the chunk, within its run; of tokens before the run, their position. */
export const fromOf = ({ op }: Visit): number => op.from ?? 0;
/** Rows that an operation works on. */
export const countOf = ({ op }: Visit): number => (op.shape.m ?? op.shape.rows ?? op.shape.queries) as number;

/**
 * Where an operation's rows go among others.
 * @param within number of the first of them, of the run's tokens
 * @param slots how the cached rows are used, where tokens are evicted from them
 */
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

/**
 * Buffers of a step that are one in a prompt: queries, keys and values of a chunk, or gate and up; attention's output,
 * or the MLP's, or latents.
 */
const SHARED: Readonly<Record<string, string>> = {
  'query key value': 'projections',
  'gate up': 'projections',
  'reconstructed keys': 'projections',
  'reconstructed values': 'projections',
  attention: 'results',
  activated: 'results',
};

/** A prefill by runs of tokens, and where the streams of a run are. */
export class Prompt extends Machine {
  /** Number of the sequence, tokens of the run, and tokens of the sequence before it. */
  sequence = 0;
  tokens = 0;
  before = 0;
  private slots: ReadonlyMap<Visit, number> = new Map();

  private constructor(
    private readonly decoder: Machine,
    allocations: Allocations,
    /** Rows that a run attends to at most, and tokens of the chunks in which it is worked on. */
    readonly rows: number,
    readonly chunkTokens: number,
    /** How latents are encoded, unless accumulated. */
    readonly captures: CapturingKind | undefined,
    /** Rows of a run, where a cache under eviction cannot hold them. */
    readonly aside: Caches | undefined,
  ) {
    const { device, c, batch, contextTokens, normEpsilon, weights, caches } = decoder;
    super(device, c, batch, contextTokens, normEpsilon, allocations, weights, caches);
  }

  /** @throws GpuError `out-of-memory`; nothing stays allocated */
  static async open(m: Machine, { room, rows, chunkTokens, captures, carries }: PromptOptions): Promise<Prompt> {
    const allocations = new Allocations(m.device);
    try {
      const extent = { room, rows, chunk: Math.min(room, chunkTokens), captures, carries };
      // Rows set aside are a cache of their own.
      for (const row of prefillBuffers(m.c, extent)) if (row.label !== ASIDE) await allocations.makeRow(row, 1);
      await allocateControl(m, allocations, extent);
      const aside = setsRowsAside(m.c)
        ? new Caches({ ...m.c, eviction: null }, 1, rows, TILE_TOKENS, allocations)
        : undefined;
      await aside?.allocate('prefill');
      return new Prompt(m, allocations, rows, chunkTokens, captures, aside);
    } catch (error) {
      allocations.free();
      throw error;
    }
  }

  /** A projection back into the stream overwrites the rows that the projections before it have read. */
  buffer(label: string): Buffer {
    if (label === 'projected') return this.normed;
    const own = SHARED[label] ?? label;
    return this.allocations.has(own) ? this.allocations.get(own) : this.decoder.buffer(label);
  }

  get projections(): Buffer {
    return this.buffer('projections');
  }

  get results(): Buffer {
    return this.buffer('results');
  }

  /** Tokens of the cache whose rows come before those of the run (H2O). */
  get held(): number {
    return heldBefore(this.c, { from: this.before });
  }

  firstRow(visit: Visit): number {
    return fromOf(visit);
  }

  firstPosition(visit: Visit): number {
    return this.before + fromOf(visit);
  }

  get lastRows(): Vectors {
    const { hidden } = this.c.geometry;
    return { offset: (this.tokens - 1) * hidden, stride: hidden };
  }

  partOf({ place }: Visit): CachePart {
    return this.caches.partOf(place?.block.name ?? 'core', this.sequence);
  }

  /** Prepares for the operations of a run: which of the kept rows each of them works on. */
  begin(visits: readonly Visit[]): void {
    if (this.captures) this.slots = planSlots(visits, this.captures === 'one-shot').of;
  }

  /** Latents of a chunk where none are accumulated: encoded from all loops at once, or read back. */
  chunkLatents(axis: CodecAxis): Placed {
    return { rows: this.results, at: { offset: 0, stride: this.latentRow(axis) } };
  }

  override latents(visit: Visit, axis: CodecAxis): Placed {
    return this.captures ? this.chunkLatents(axis) : super.latents(visit, axis);
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
    const { index, first } = this.partOf(visit);
    return {
      cache: this.caches.buffer(role, placed(visit), loop, index),
      capacity: this.caches.slots.capacity,
      firstSequence: this.sequence - first,
      first: this.before,
    };
  }

  /** Where rows of the run are written and read again: in the cache, or beside one that is evicted from. */
  ownRows(role: CacheRole, visit: Visit, loop?: number): Rowset {
    const place = placed(visit);
    const beside = (cache: Buffer, capacity: number): Rowset => ({
      cache,
      capacity,
      firstSequence: 0,
      first: this.held,
    });
    if (this.aside) return beside(this.aside.buffer(role, place, loop), this.aside.slots.capacity);
    if (storesRun(this.c)) return beside(this.buffer(`stored ${role}`), keptSlots(this.rows));
    return this.inCache(role, visit, loop);
  }

  /** Rows as attention reads them, in memory of their own. */
  kept(axis: CodecAxis, visit: Visit): Rowset {
    const cache = this.buffer(`kept ${axis}s ${this.slots.get(visit) ?? 0}`);
    return { cache, capacity: keptSlots(this.rows), firstSequence: 0, first: this.held };
  }

  /** Rows of the whole run as the cache will have them. */
  runRows(role: CacheRole, visit: Visit): Rowset {
    return this.aside || storesRun(this.c) ? this.ownRows(role, visit) : this.kept(role as CodecAxis, visit);
  }

  target(visit: Visit, role: CacheRole, loop?: number): Target {
    return into(visit, this.ownRows(role, visit, loop));
  }

  recentTarget(visit: Visit, role: CacheRole): Target {
    const target = into(visit, this.inCache(role, visit), fromOf(visit), this.caches.recentSlots);
    return { ...target, row: this.rowOf(visit) };
  }

  /** The row of a token of the run among those of its chunk. */
  rowOf(visit: Visit): number {
    return fromOf(visit) % this.chunkTokens;
  }
}

/** Buffers that the memory model counts in its reserve: tokens and positions of a run, and tables. */
async function allocateControl(
  { c, device, positions }: Machine,
  allocations: Allocations,
  { room, chunk, captures }: PromptExtent,
): Promise<void> {
  const make = (label: string, words: number): Promise<Buffer> => allocations.make(label, 'control', 4 * words);
  if (captures && isLatent(c.codec) && !pathSpec(c.path).branch) {
    const table = rotaryTable(c.geometry.headDim, { ropeBase: c.geometry.rope.theta, positions, back: true });
    await device.write(await make('turns back', table.bytes / 4), table.data?.() as Float32Array<ArrayBuffer>);
  }
  await make('next tokens', 1);
  await make('draws', 2);
  await make('tokens', room);
  await device.write(
    await make('positions', chunk),
    Uint32Array.from({ length: chunk }, (_, i) => i),
  );
  // It holds zeros.
  if (reindexes(c.eviction)) await make('one position', chunk);
}
