/** The buffers of a prefill, which live for one call (cost/memory.ts, prefillPeaks, counts them), and where the streams of a prompt are. */
import { pagedTokens, TILE_TOKENS } from '../../codecs/layout.js';
import { isLatent } from '../../codecs/registry.js';
import { cacheBytes, rowLayout } from '../../gpu/cache-layout.js';
import type { Buffer } from '../../gpu/index.js';
import { spansLoops } from '../../schedule/configuration.js';
import { keepsRows, prefillRowType, setsRowsAside } from '../../schedule/prefill.js';
import type { Configuration } from '../../schedule/schedule.js';
import { Allocations } from './allocations.js';
import { Caches } from './caches.js';
import { branchHeads, latentRows, rankOf } from './latent.js';
import { packedRow, type Machine } from './machine.js';

/** Tokens of the rows that attention reads: whole tiles. */
export const keptSlots = (tokens: number): number => pagedTokens(tokens, TILE_TOKENS);

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

  private constructor(
    readonly m: Machine,
    readonly allocations: Allocations,
    /** Tokens of the longest run, and of the chunks in which it is worked on. */
    readonly room: number,
    readonly chunkTokens: number,
    /** Rows of a run, where they cannot lie in a cache that is evicted from. */
    readonly aside: Caches | undefined,
  ) {
    this.residual = this.buffer('stream 0');
    this.normed = this.buffer('stream 1');
  }

  /**
   * @param room tokens of the longest run
   * @param carries runs stand behind others, to which they attend as well
   * @throws GpuError `out-of-memory`; nothing stays allocated
   */
  static async open(m: Machine, room: number, chunkTokens: number, carries: boolean): Promise<Prompt> {
    const allocations = new Allocations(m.device);
    try {
      await allocate(m, allocations, room, Math.min(room, chunkTokens));
      if (carries) await allocateCarried(m, allocations, room);
      const aside = setsRowsAside(m.c) ? new Caches({ ...m.c, eviction: null }, 1, room, TILE_TOKENS, allocations) : undefined;
      await aside?.allocate('prefill');
      return new Prompt(m, allocations, room, chunkTokens, aside);
    } catch (error) {
      allocations.free();
      throw error;
    }
  }

  buffer(label: string): Buffer {
    return this.allocations.get(label);
  }

  begin(): void {
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

/** Floats of a token's row of projections, packed or gate and up; on the fast path the rows of all loops of its latents. */
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
  const make = (label: string, floats: number): Promise<Buffer> => allocations.make(label, 'prefill', 4 * room * floats);
  await make('statistics', 2 * c.geometry.heads);
  if (!isLatent(c.codec) || c.path === 'fast') return;
  await make('earlier latents', latentRows(m) * Math.max(rankOf(m, 'key'), rankOf(m, 'value')));
  if (c.path === 'absorbed') await make('earlier branch keys', branchHeads(m) * c.branch.width);
}

async function allocate(m: Machine, allocations: Allocations, room: number, chunk: number): Promise<void> {
  const { c } = m;
  const g = c.geometry;
  const make = (label: string, floats: number): Promise<Buffer> => allocations.make(label, 'prefill', 4 * floats);
  // An adapter mixes the prelude's output in, which stays.
  for (let i = 0; i < (g.adapter ? 3 : 2); i++) await make(`stream ${i}`, room * g.hidden);
  await make('projections', chunk * projectionsRow(c));
  await make('results', chunk * resultsRow(m));
  await make('logits', g.vocab);
  if (keepsRows(c)) {
    const bytes = cacheBytes(rowLayout(prefillRowType(c), g.headDim), keptSlots(room), g.kvHeads);
    const padding = Math.ceil(bytes / 16) * 16 - bytes;
    for (const side of ['keys', 'values']) await allocations.make(`kept ${side}`, [{ kind: 'prefill', bytes }, ...(padding > 0 ? [{ kind: 'control' as const, bytes: padding }] : [])]);
  }
  if (isLatent(c.codec)) {
    for (let layer = 0; layer < (spansLoops(c) ? g.layers : 1); layer++) {
      for (const axis of ['key', 'value'] as const) await make(`latent ${axis} ${layer}`, room * latentRows(m) * rankOf(m, axis));
      if (c.path === 'absorbed') await make(`branch key ${layer}`, room * branchHeads(m) * c.branch.width);
    }
  }
  await allocations.make('tokens', 'control', 4 * room);
  const positions = await allocations.make('positions', 'control', 4 * chunk);
  await m.device.write(positions, Uint32Array.from({ length: chunk }, (_, i) => i));
  // It holds zeros.
  if (c.eviction?.policy === 'streaming') await allocations.make('one position', 'control', 4 * chunk);
}
