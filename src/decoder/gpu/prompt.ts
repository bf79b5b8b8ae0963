/** The buffers of a prefill, which live for one call (cost/memory.ts, prefillPeaks, counts them), and where the streams of a prompt are. */
import { pagedTokens, TILE_TOKENS } from '../../codecs/layout.js';
import { isLatent } from '../../codecs/registry.js';
import { cacheBytes, rowLayout } from '../../gpu/cache-layout.js';
import type { Buffer } from '../../gpu/index.js';
import { rotaryTable } from '../../gpu/rotary.js';
import { spansLoops } from '../../schedule/configuration.js';
import { keepsRows, keptRowType, type CapturingKind } from '../../schedule/prefill.js';
import type { Configuration } from '../../schedule/schedule.js';
import { Allocations } from './allocations.js';
import { branchHeads, latentRows, rankOf } from './latent.js';
import { packedRow, type Machine } from './machine.js';
import { planSlots } from './slots.js';
import type { Visit } from './walk.js';

/** Tokens of the rows that attention reads: whole tiles. */
export const keptSlots = (tokens: number): number => pagedTokens(tokens, TILE_TOKENS);

/** The buffers of a prefill of prompts of at most `tokens`, and where the streams of a prompt are. */
export class Prompt {
  residual: Buffer;
  normed: Buffer;
  preludeOutput: Buffer | undefined;
  state: Buffer | undefined;
  private slots: ReadonlyMap<Visit, number> = new Map();

  private constructor(
    readonly m: Machine,
    readonly allocations: Allocations,
    /** How latents are encoded, unless accumulated. */
    readonly captures: CapturingKind | undefined,
    /** Tokens of the longest prompt. */
    readonly longest: number,
    /** Number of the sequence, and tokens of its prompt. */
    public sequence: number,
    public tokens: number,
  ) {
    this.residual = this.buffer('stream 0');
    this.normed = this.buffer('stream 1');
  }

  /** @throws GpuError `out-of-memory`; nothing stays allocated */
  static async open(m: Machine, longest: number, captures: CapturingKind | undefined, chunkTokens: number): Promise<Prompt> {
    const allocations = new Allocations(m.device);
    try {
      await allocate(m, allocations, longest, captures, Math.min(longest, chunkTokens));
      return new Prompt(m, allocations, captures, longest, 0, longest);
    } catch (error) {
      allocations.free();
      throw error;
    }
  }

  buffer(label: string): Buffer {
    return this.allocations.get(label);
  }

  /**
   * Prepares for the operations of a prompt.
   * @throws GpuError `out-of-memory` for rows that are kept of it
   */
  async begin(visits: readonly Visit[]): Promise<void> {
    if (!this.captures) return;
    const { of, count } = planSlots(visits, this.captures === 'one-shot');
    this.slots = of;
    for (let slot = 0; slot < count; slot++) await makeKept(this.m, this.allocations, keptRowType(this.m.c, this.captures), this.longest, slot);
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

const keptLabel = (side: 'keys' | 'values', slot = 0): string => `kept ${side} ${slot}`;

/** Keys and values of one layer and loop as attention reads them. */
async function makeKept(m: Machine, allocations: Allocations, type: 'f16' | 'f32', longest: number, slot: number): Promise<void> {
  const { kvHeads, headDim } = m.c.geometry;
  const bytes = cacheBytes(rowLayout(type, headDim), keptSlots(longest), kvHeads);
  const padding = Math.ceil(bytes / 16) * 16 - bytes;
  for (const side of ['keys', 'values'] as const) await allocations.make(keptLabel(side, slot), [{ kind: 'prefill', bytes }, ...(padding > 0 ? [{ kind: 'control' as const, bytes: padding }] : [])]);
}

async function allocate(m: Machine, allocations: Allocations, longest: number, captures: CapturingKind | undefined, chunk: number): Promise<void> {
  const { c } = m;
  const g = c.geometry;
  const make = (label: string, floats: number): Promise<Buffer> => allocations.make(label, 'prefill', 4 * floats);
  // An adapter mixes the prelude's output in, which stays.
  for (let i = 0; i < (g.adapter ? 3 : 2); i++) await make(`stream ${i}`, longest * g.hidden);
  await make('projections', chunk * projectionsRow(c));
  await make('results', chunk * resultsRow(m));
  await make('logits', g.vocab);
  if (keepsRows(c) && !captures) await makeKept(m, allocations, keptRowType(c), longest, 0);
  if (isLatent(c.codec)) {
    for (let layer = 0; layer < (spansLoops(c) ? g.layers : 1); layer++) {
      if (!captures) for (const axis of ['key', 'value'] as const) await make(`latent ${axis} ${layer}`, longest * latentRows(m) * rankOf(m, axis));
      if (c.path === 'absorbed') await make(`branch key ${layer}`, longest * branchHeads(m) * c.branch.width);
    }
  }
  if (captures && c.path !== 'absorbed') {
    const table = rotaryTable(g.headDim, { ropeBase: g.rope.theta, positions: m.positions, back: true });
    await m.device.write(await allocations.make('turns back', 'control', table.bytes), table.data?.() as Float32Array<ArrayBuffer>);
  }
  await allocations.make('tokens', 'control', 4 * longest);
  const positions = await allocations.make('positions', 'control', 4 * chunk);
  await m.device.write(positions, Uint32Array.from({ length: chunk }, (_, i) => i));
}
