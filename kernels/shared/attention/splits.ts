/** Into how many splits attention over cached tokens is divided, and which tokens each takes. */
import type { Division } from '../../attention-options.js';
import { TILE_TOKENS } from '../../spec.js';

/** Fewest tokens in a split: below that the merge costs more than the parallelism brings. */
const MIN_SPLIT_TOKENS = 256;
/** Splits are capped so that the merge stays a small kernel. */
export const MAX_SPLITS = 256;

/** Into how many parts the context is split when `rows` (sequences × KV heads) workgroups exist already. */
export function splitCount(context: number, rows: number, targetWorkgroups: number): number {
  const most = Math.min(MAX_SPLITS, Math.max(1, Math.ceil(context / MIN_SPLIT_TOKENS)));
  return Math.max(1, Math.min(most, Math.ceil(targetWorkgroups / rows)));
}

/**
 * Divides a call's tokens into about `asked` splits. Pinned tokens and the ring have splits of their own, of equal
 * length.
 * @param unit tokens that a split is a multiple of
 */
export function divide(
  { pinned, ring }: { readonly pinned: number; readonly ring: number },
  asked: number,
  unit: number = TILE_TOKENS,
): Division {
  const tokens = Math.ceil(Math.ceil(Math.max(1, pinned + ring) / asked) / unit) * unit;
  const pinnedSplits = Math.ceil(pinned / tokens);
  const splits = pinnedSplits + (pinned > 0 ? Math.ceil(ring / tokens) : asked);
  return { splits, pinnedSplits, tokens, first: 0, all: splits };
}
