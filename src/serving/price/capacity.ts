/** How many blocks of cache a replica has, and what limits that. */
import { allocatedTokens } from '../../eviction/policy.js';
import { memoryModel, prefillPeaks, withoutWorkspace, type MemoryModel, type PrefillKind } from '../../cost/memory.js';
import type { Configuration } from '../../schedule/schedule.js';

export interface CapacityOptions {
  readonly usableBytes: number;
  /** Longest sequence, tokens. */
  readonly longest: number;
  readonly blockTokens: number;
  readonly maxNumSeqs: number;
  /** Prompt tokens that are worked on at once. */
  readonly chunkTokens: number;
  readonly prefill: PrefillKind;
  /** Working memory lies in what the server reserves. */
  readonly withinReserve: boolean;
}

export interface Capacity {
  readonly blocks: number;
  /** Bytes of a block: its keys and values, and what workspace and eviction state need for its tokens. */
  readonly blockBytes: number;
  /** Blocks that a sequence takes beside those of its tokens: for exact rows of windows, whatever its length. */
  readonly sequenceBlocks: number;
  /** Beside the blocks: weights, codec, workspace, in-flight latents of all sequences, working memory of prompts. */
  readonly weightsBytes: number;
  readonly codecBytes: number;
  readonly workspaceBytes: number;
  readonly inFlightBytes: number;
  readonly prefillPeakBytes: number;
}

/** Where the workspace of a short sequence is read. */
const SHORT_TOKENS = 32;

/**
 * Divides a GPU's memory as a server does at its start: what `maxNumSeqs` sequences and one batch of prompts need is
 * set aside, the rest is cache. Workspace that grows with a sequence's length is counted with its blocks. Exact rows of
 * windows are whole blocks of each sequence that runs.
 */
export function capacityOf(c: Configuration, o: CapacityOptions): Capacity {
  const longest = Math.max(o.longest, SHORT_TOKENS + 1);
  const modelAt = (tokens: number): MemoryModel => {
    const m = memoryModel(c, tokens, 1);
    return o.withinReserve ? withoutWorkspace(m) : m;
  };
  const long = modelAt(longest);
  const short = modelAt(SHORT_TOKENS);
  const held = Math.min(longest, allocatedTokens(c.eviction, longest));
  const perToken = (of: (m: typeof long) => number): number =>
    held > SHORT_TOKENS ? Math.max(0, (of(long) - of(short)) / (held - SHORT_TOKENS)) : 0;
  const growing = (m: typeof long): number => m.workspaceBytesPerSequence + m.evictionBytesPerSequence;
  const grows = perToken(growing);
  const each = Math.max(0, growing(short) - grows * SHORT_TOKENS);
  // Rows of a sequence's windows, whatever its length.
  const windows = Math.max(0, long.kvBytesPerSequence - long.kvBytesPerToken * held);
  const inFlightBytes = o.maxNumSeqs * long.inFlightBytesPerSequence;
  const workspaceBytes = long.workspaceFixedBytes + o.maxNumSeqs * each;
  const prefillPeakBytes = o.withinReserve
    ? 0
    : prefillPeaks(
        c,
        o.prefill === 'chunked' ? Math.max(o.chunkTokens, longest) : longest,
        o.prefill === 'chunked' ? o.chunkTokens : undefined,
      )[o.prefill];
  const blockBytes = (long.kvBytesPerToken + grows) * o.blockTokens;
  const free = o.usableBytes - long.weightsBytes - long.codecBytes - workspaceBytes - inFlightBytes - prefillPeakBytes;
  return {
    blocks: Math.max(0, Math.floor(free / blockBytes)),
    blockBytes,
    sequenceBlocks: Math.ceil(windows / blockBytes - 1e-9),
    weightsBytes: long.weightsBytes,
    codecBytes: long.codecBytes,
    workspaceBytes,
    inFlightBytes,
    prefillPeakBytes,
  };
}
