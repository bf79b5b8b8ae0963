/** Into how many splits attention over cached tokens is divided, and which tokens each takes. */
import { TILE_TOKENS } from '../codecs/layout.js';
import type { Segments } from '../eviction/policy.js';

/** Fewest tokens in a split: below that the merge costs more than the parallelism brings. */
const MIN_SPLIT_TOKENS = 256;
/** Splits are capped so that the merge stays a small kernel. */
export const MAX_SPLITS = 256;

/** Into how many parts the context is split when `rows` (sequences × KV heads) workgroups exist already. */
export function splitCount(context: number, rows: number, targetWorkgroups: number): number {
  const most = Math.min(MAX_SPLITS, Math.max(1, Math.ceil(context / MIN_SPLIT_TOKENS)));
  return Math.max(1, Math.min(most, Math.ceil(targetWorkgroups / rows)));
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
 * Divides a call's tokens into about `asked` splits. Pinned tokens and the ring have splits of their own, of equal
 * length.
 * @param unit tokens that a split is a multiple of
 */
export function divide({ pinned, ring }: Segments, asked: number, unit: number = TILE_TOKENS): Division {
  const tokens = Math.ceil(Math.ceil(Math.max(1, pinned + ring) / asked) / unit) * unit;
  const pinnedSplits = Math.ceil(pinned / tokens);
  const splits = pinnedSplits + (pinned > 0 ? Math.ceil(ring / tokens) : asked);
  return { splits, pinnedSplits, tokens, first: 0, all: splits };
}
