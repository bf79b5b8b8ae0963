/**
 * The buffers of a prefill, which live for one call (cost/memory.ts, prefillPeaks, counts them), and where the streams
 * of a prompt are.
 */
import { pagedTokens, TILE_TOKENS } from '../../codecs/layout.js';
import { isLatent } from '../../codecs/registry.js';
import { cacheBytes, rowLayout } from '../../gpu/cache-layout.js';
import type { Buffer } from '../../gpu/index.js';
import { rotaryTable } from '../../gpu/rotary.js';
import { spansLoops, storageOf } from '../../schedule/configuration.js';
import {
  heldBefore,
  keepsRows,
  keptRowType,
  massRows,
  setsRowsAside,
  storesRun,
  type CapturingKind,
} from '../../schedule/prefill.js';
import type { Storage } from '../../kernels/spec.js';
import type { Configuration } from '../../schedule/schedule.js';
import { Allocations } from './allocations.js';
import { Caches } from './caches.js';
import { branchHeads, latentRows, rankOf } from './latent.js';
import { packedRow, type Machine } from './machine.js';
import { planSlots } from './slots.js';
import type { Visit } from '../../schedule/expand.js';

/** Tokens of the rows that attention reads: whole tiles. */
export const keptSlots = (tokens: number): number => pagedTokens(tokens, TILE_TOKENS);

export interface PromptOptions {
  /** Tokens of the longest run. */
  readonly room: number;
  /** Rows that a run attends to at most: its tokens, under H2O those before it, too. */
  readonly rows: number;
  readonly chunkTokens: number;
  readonly captures: CapturingKind | undefined;
  /** Runs stand behind others, to which they attend as well. */
  readonly carries: boolean;
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
    /** Rows of a run, where they cannot lie in a cache that is evicted from. */
    readonly aside: Caches | undefined,
  ) {
    this.residual = this.buffer('stream 0');
    this.normed = this.buffer('stream 1');
  }

  /** @throws GpuError `out-of-memory`; nothing stays allocated */
  static async open(m: Machine, { room, rows, chunkTokens, captures, carries }: PromptOptions): Promise<Prompt> {
    const allocations = new Allocations(m.device);
    try {
      await allocate(m, allocations, { room, rows, captures, chunk: Math.min(room, chunkTokens) });
      if (carries) await allocateCarried(m, allocations, room);
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

  /**
   * Prepares for the operations of a run.
   * @throws GpuError `out-of-memory` for rows that are kept of it
   */
  async begin(visits: readonly Visit[]): Promise<void> {
    if (!this.captures) return;
    const { of, count } = planSlots(visits, this.captures === 'one-shot');
    this.slots = of;
    for (let slot = 0; slot < count; slot++)
      await makeKept(this.m, this.allocations, keptRowType(this.m.c, this.captures), this.rows, slot);
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

/**
 * Floats of a token's row of projections, packed or gate and up; on the fast path the rows of all loops of its latents.
 */
function projectionsRow(c: Configuration): number {
  const { mlpHidden, kvHeads, headDim, loops } = c.geometry;
  return Math.max(2 * mlpHidden, packedRow(c), c.path === 'fast' && spansLoops(c) ? loops * kvHeads * headDim : 0);
}

/** Floats of a row of what is made from them: attention's output, the MLP's, latents that were read back. */
function resultsRow(m: Machine): number {
  const { mlpHidden, heads, headDim } = m.c.geometry;
  const latents = isLatent(m.c.codec) ? latentRows(m) * Math.max(rankOf(m, 'key'), rankOf(m, 'value')) : 0;
  return Math.max(mlpHidden, heads * headDim, latents);
}

/** What attention in several calls needs: statistics of the queries, and latents of a piece of earlier tokens. */
async function allocateCarried(m: Machine, allocations: Allocations, room: number): Promise<void> {
  const { c } = m;
  if (!keepsRows(c)) return;
  const make = (label: string, floats: number): Promise<Buffer> =>
    allocations.make(label, 'prefill', 4 * room * floats);
  await make('statistics', 2 * c.geometry.heads);
  if (!isLatent(c.codec) || c.path === 'fast') return;
  await make('earlier latents', latentRows(m) * Math.max(rankOf(m, 'key'), rankOf(m, 'value')));
  if (c.path === 'absorbed') await make('earlier branch keys', branchHeads(m) * c.branch.width);
}

const keptLabel = (side: 'keys' | 'values', slot = 0): string => `kept ${side} ${slot}`;

/** The rows of a role that are stored beside the cache until it is known which of them stay. */
export const storedLabel = (role: string): string => `stored ${role}`;
/** Masses of the run's tokens, by their number. */
export const massLabel = (number: number): string => `run mass ${number}`;

/** Rows of full width of one layer and loop. */
async function makeRows(
  m: Machine,
  allocations: Allocations,
  labels: readonly string[],
  type: Storage,
  rows: number,
): Promise<void> {
  const { kvHeads, headDim } = m.c.geometry;
  const bytes = cacheBytes(rowLayout(type, headDim, m.c.choice.groupSize), keptSlots(rows), kvHeads);
  const padding = Math.ceil(bytes / 16) * 16 - bytes;
  for (const label of labels)
    await allocations.make(label, [
      { kind: 'prefill', bytes },
      ...(padding > 0 ? [{ kind: 'control' as const, bytes: padding }] : []),
    ]);
}

/** Keys and values of one layer and loop as attention reads them. */
const makeKept = (
  m: Machine,
  allocations: Allocations,
  type: 'f16' | 'f32',
  rows: number,
  slot: number,
): Promise<void> =>
  makeRows(
    m,
    allocations,
    (['keys', 'values'] as const).map((side) => keptLabel(side, slot)),
    type,
    rows,
  );

/**
 * H2O: what the choice among the run's tokens is made by, and their rows where they lie nowhere as they will be stored.
 */
async function allocateH2o(m: Machine, allocations: Allocations, rows: number, chunk: number): Promise<void> {
  const { c } = m;
  await allocations.make('statistics', 'prefill', 4 * chunk * 2 * c.geometry.heads);
  for (const [i, evicting] of massRows(c).entries())
    await allocations.make(massLabel(i), 'prefill', 4 * rows * evicting);
  if (storesRun(c)) await makeRows(m, allocations, ['key', 'value'].map(storedLabel), storageOf(c), rows);
}

async function allocate(
  m: Machine,
  allocations: Allocations,
  { room, rows, captures, chunk }: { room: number; rows: number; captures: CapturingKind | undefined; chunk: number },
): Promise<void> {
  const { c } = m;
  const g = c.geometry;
  const make = (label: string, floats: number): Promise<Buffer> => allocations.make(label, 'prefill', 4 * floats);
  // An adapter mixes the prelude's output in, which stays.
  for (let i = 0; i < (g.adapter ? 3 : 2); i++) await make(`stream ${i}`, room * g.hidden);
  await make('projections', chunk * projectionsRow(c));
  await make('results', chunk * resultsRow(m));
  await make('logits', g.vocab);
  await allocations.make('next token', 'control', 4);
  await allocations.make('draw', 'control', 8);
  if (keepsRows(c) && !captures) await makeKept(m, allocations, keptRowType(c), rows, 0);
  if (isLatent(c.codec)) {
    for (let layer = 0; layer < (spansLoops(c) ? g.layers : 1); layer++) {
      if (!captures)
        for (const axis of ['key', 'value'] as const)
          await make(`latent ${axis} ${layer}`, room * latentRows(m) * rankOf(m, axis));
      if (c.path === 'absorbed') await make(`branch key ${layer}`, rows * branchHeads(m) * c.branch.width);
    }
  }
  if (captures && c.path !== 'absorbed') {
    const table = rotaryTable(g.headDim, { ropeBase: g.rope.theta, positions: m.positions, back: true });
    await m.device.write(
      await allocations.make('turns back', 'control', table.bytes),
      table.data?.() as Float32Array<ArrayBuffer>,
    );
  }
  await allocations.make('tokens', 'control', 4 * room);
  const positions = await allocations.make('positions', 'control', 4 * chunk);
  await m.device.write(
    positions,
    Uint32Array.from({ length: chunk }, (_, i) => i),
  );
  if (c.eviction?.policy === 'h2o') await allocateH2o(m, allocations, rows, chunk);
  // It holds zeros.
  if (c.eviction?.policy === 'streaming') await allocations.make('one position', 'control', 4 * chunk);
}
