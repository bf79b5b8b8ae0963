/**
 * The buffers of a prefill, which exist for one call (cost/memory.ts, prefillPeaks, counts them), and where the streams
 * of a prompt are.
 */
import { pathSpec } from '../../codecs/paths.js';
import { pagedTokens, TILE_TOKENS } from '../../codecs/layout.js';
import { reindexes } from '../../eviction/policy.js';
import type { Buffer } from '../../gpu/index.js';
import { rotaryTable } from '../../gpu/rotary.js';
import { ASIDE, prefillBuffers, type PromptExtent } from '../../schedule/buffers.js';
import type { Visit } from '../../schedule/expand.js';
import { heldBefore, setsRowsAside, type CapturingKind } from '../../schedule/prefill.js';
import { Allocations } from './allocations.js';
import { Caches } from './caches.js';
import type { Machine } from './machine.js';
import { planSlots } from './slots.js';

/** Tokens of the rows that attention reads: whole tiles. */
export const keptSlots = (tokens: number): number => pagedTokens(tokens, TILE_TOKENS);

export interface PromptOptions extends Omit<PromptExtent, 'chunk'> {
  readonly chunkTokens: number;
}

/** The buffers of a prefill by runs of tokens, and where the streams of a run are. */
export class Prompt {
  residual: Buffer;
  normed: Buffer;
  preludeOutput: Buffer | undefined;
  state: Buffer | undefined;
  /** Number of the sequence, tokens of the run, and tokens of the sequence before it. */
  sequence = 0;
  tokens = 0;
  before = 0;
  /** Tokens of the cache whose rows come before those of the run (H2O). */
  get held(): number {
    return heldBefore(this.m.c, { from: this.before });
  }
  private slots: ReadonlyMap<Visit, number> = new Map();

  private constructor(
    readonly m: Machine,
    readonly allocations: Allocations,
    /** Rows that a run attends to at most, and tokens of the chunks in which it is worked on. */
    readonly rows: number,
    readonly chunkTokens: number,
    /** How latents are encoded, unless accumulated. */
    readonly captures: CapturingKind | undefined,
    /** Rows of a run, where a cache under eviction cannot hold them. */
    readonly aside: Caches | undefined,
  ) {
    this.residual = this.buffer('stream 0');
    this.normed = this.buffer('stream 1');
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

  buffer(label: string): Buffer {
    return this.allocations.get(label);
  }

  /** Prepares for the operations of a run: which of the kept rows each of them works on. */
  begin(visits: readonly Visit[]): void {
    if (this.captures) this.slots = planSlots(visits, this.captures === 'one-shot').of;
  }

  /** The rows that an operation keeps or attends to. */
  kept(side: 'keys' | 'values', visit: Visit): Buffer {
    return this.buffer(keptLabel(side, this.slots.get(visit)));
  }

  beginPass(): void {
    this.residual = this.buffer('stream 0');
    this.normed = this.buffer('stream 1');
    this.preludeOutput = undefined;
    this.state = undefined;
  }

  /** Queries, keys and values of a chunk, or gate and up; attention's output, or the MLP's, or latents. */
  get projections(): Buffer {
    return this.buffer('projections');
  }
  get results(): Buffer {
    return this.buffer('results');
  }
}

const keptLabel = (side: 'keys' | 'values', slot = 0): string => `kept ${side} ${slot}`;

/** The rows of a role that are stored beside the cache until it is known which of them stay. */
export const storedLabel = (role: string): string => `stored ${role}`;
/** Masses of the run's tokens, by their number. */
export const massLabel = (number: number): string => `run mass ${number}`;

/** Buffers that the memory model counts in its reserve: tokens and positions of a run, and tables. */
async function allocateControl(
  { c, device, positions }: Machine,
  allocations: Allocations,
  { room, chunk, captures }: PromptExtent,
): Promise<void> {
  const make = (label: string, words: number): Promise<Buffer> => allocations.make(label, 'control', 4 * words);
  if (captures && !pathSpec(c.path).branch) {
    const table = rotaryTable(c.geometry.headDim, { ropeBase: c.geometry.rope.theta, positions, back: true });
    await device.write(await make('turns back', table.bytes / 4), table.data?.() as Float32Array<ArrayBuffer>);
  }
  await make('next token', 1);
  await make('draw', 2);
  await make('tokens', room);
  await device.write(
    await make('positions', chunk),
    Uint32Array.from({ length: chunk }, (_, i) => i),
  );
  // It holds zeros.
  if (reindexes(c.eviction)) await make('one position', chunk);
}
