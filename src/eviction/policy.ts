/** Which tokens stay in the cache. */
import { UserError, show } from '../errors.js';
import { formatTokens, MAX_TOKENS, parseTokens } from '../units.js';

export type Eviction =
  /** StreamingLLM: the first `sinkTokens` and the last `windowTokens`, positions re-indexed inside the cache. */
  | {
      readonly policy: 'streaming';
      readonly sinkTokens: number;
      readonly windowTokens: number;
      readonly budgetTokens: number;
    }
  /** H2O: the `heavyTokens` of largest attention mass among the older ones and the last `recentTokens`. */
  | {
      readonly policy: 'h2o';
      readonly heavyTokens: number;
      readonly recentTokens: number;
      readonly budgetTokens: number;
    }
  /** A number of tokens kept by an unnamed policy without state of its own. */
  | { readonly policy: 'budget'; readonly budgetTokens: number };

/** Tokens that are in the cache when a step reads it. */
export const keptTokens = (eviction: Eviction | null, context: number): number =>
  eviction ? Math.min(context, eviction.budgetTokens) : context;

/** Slots of a row before its ring, whether they are filled or not. @param capacity slots of the row, whole pages */
export function pinnedSlots(eviction: Eviction | null, capacity: number): number {
  if (eviction?.policy === 'streaming') return Math.min(eviction.sinkTokens, capacity - 1);
  // Whole tiles may leave slots beyond heavy and recent tokens. These are pinned slots, so that the ring has exactly
  // `recentTokens`.
  return eviction?.policy === 'h2o' ? Math.max(0, capacity - eviction.recentTokens) : 0;
}

/** Tokens to allocate: H2O evicts after the step, so the cache transiently holds one more. */
export const allocatedTokens = (eviction: Eviction | null, context: number): number =>
  eviction?.policy === 'h2o' ? Math.min(context, eviction.budgetTokens + 1) : keptTokens(eviction, context);

/**
 * The two segments of a row: `pinned` tokens stay until they are replaced, the others are in a ring in order of
 * position.
 */
export interface Segments {
  readonly pinned: number;
  readonly ring: number;
}

/**
 * Tokens of each segment when a step reads the cache. StreamingLLM pins its sinks. H2O pins its heavy tokens, in any
 * order; a token gets there from the ring of recent ones, so the ring fills first.
 */
export function segmentsOf(eviction: Eviction | null, context: number): Segments {
  const kept = keptTokens(eviction, context);
  const pinned =
    eviction?.policy === 'streaming'
      ? Math.min(eviction.sinkTokens, kept)
      : eviction?.policy === 'h2o'
        ? Math.max(0, kept - eviction.recentTokens)
        : 0;
  return { pinned, ring: kept - pinned };
}

/**
 * Reads `streaming:4+256` or `h2o:128+132`.
 * @throws UserError on any other text
 */
export function parseEviction(text: string, subject: string): Eviction | null {
  if (text === 'none') return null;
  const match = /^(streaming|h2o):([^+]+)\+([^+]+)$/.exec(text);
  if (!match)
    throw new UserError(
      `${subject} must be none, streaming:SINK+WINDOW or h2o:HEAVY+RECENT, not ${show(text)}`,
      'write for example streaming:4+256',
    );
  const [a, b] = [match[2], match[3]].map((part) => parseTokens(part as string, subject)) as [number, number];
  if (a + b > MAX_TOKENS)
    throw new UserError(`${subject} keeps ${a + b} tokens, more than ${MAX_TOKENS}`, 'give a smaller budget');
  return match[1] === 'streaming'
    ? { policy: 'streaming', sinkTokens: a, windowTokens: b, budgetTokens: a + b }
    : { policy: 'h2o', heavyTokens: a, recentTokens: b, budgetTokens: a + b };
}

/** `streaming:4+256`, `h2o:128+132`, `budget:1024`, `none`. */
export function evictionLabel(eviction: Eviction | null): string {
  if (!eviction) return 'none';
  if (eviction.policy === 'streaming')
    return `streaming:${formatTokens(eviction.sinkTokens)}+${formatTokens(eviction.windowTokens)}`;
  if (eviction.policy === 'h2o')
    return `h2o:${formatTokens(eviction.heavyTokens)}+${formatTokens(eviction.recentTokens)}`;
  return `budget:${formatTokens(eviction.budgetTokens)}`;
}
