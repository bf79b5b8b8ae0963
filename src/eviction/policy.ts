/** Which tokens stay in the cache, and what each policy says of itself. */
import { UserError, show } from '../errors.js';
import { formatTokens, MAX_TOKENS, parseTokens } from '../numbers/units.js';

/** StreamingLLM: the first `sinkTokens` and the last `windowTokens`, positions re-indexed inside the cache. */
export interface Streaming {
  readonly policy: 'streaming';
  readonly sinkTokens: number;
  readonly windowTokens: number;
  readonly budgetTokens: number;
}

/** H2O: the `heavyTokens` of largest attention mass among the older ones and the last `recentTokens`. */
export interface HeavyHitters {
  readonly policy: 'h2o';
  readonly heavyTokens: number;
  readonly recentTokens: number;
  readonly budgetTokens: number;
}

/** A number of tokens kept by an unnamed policy without state of its own. */
export interface Budget {
  readonly policy: 'budget';
  readonly budgetTokens: number;
}

/** Which tokens stay in the cache, by policy; all numbers are tokens. */
export type Eviction = Streaming | HeavyHitters | Budget;
export type Policy = Eviction['policy'];

/** Everything that the rest of the program must know of a policy. */
interface PolicySpec<E extends Eviction> {
  /** Tokens that stay whatever their age, and those that stay because they are the last. */
  readonly segments: (eviction: E) => Segments;
  /** The policy of two numbers of tokens, as they are written after its name: `NAME:first+second`. */
  readonly read?: { readonly form: string; readonly of: (first: number, second: number) => E };
  /**
   * Pinned slots are the first `segments.pinned`, one a position (`sinks`); or all but the ring's, so that the ring has
   * exactly its tokens where whole tiles have room for more.
   */
  readonly pins: 'sinks' | 'the-rest' | 'none';
  /** Positions count inside the cache, not in the text. */
  readonly reindexes: boolean;
  /** Tokens are chosen by the attention mass that they received. */
  readonly weighs: boolean;
  /** Tokens that are not pinned may have gaps between their positions. */
  readonly ringHasGaps: boolean;
  readonly label: (eviction: E) => string;
}

const SPECS: { readonly [P in Policy]: PolicySpec<Extract<Eviction, { policy: P }>> } = {
  streaming: {
    segments: ({ sinkTokens, windowTokens }) => ({ pinned: sinkTokens, ring: windowTokens }),
    pins: 'sinks',
    reindexes: true,
    weighs: false,
    ringHasGaps: false,
    read: {
      form: 'SINK+WINDOW',
      of: (sinkTokens, windowTokens) => ({
        policy: 'streaming',
        sinkTokens,
        windowTokens,
        budgetTokens: sinkTokens + windowTokens,
      }),
    },
    label: (e) => `streaming:${formatTokens(e.sinkTokens)}+${formatTokens(e.windowTokens)}`,
  },
  h2o: {
    segments: ({ heavyTokens, recentTokens }) => ({ pinned: heavyTokens, ring: recentTokens }),
    pins: 'the-rest',
    reindexes: false,
    weighs: true,
    ringHasGaps: false,
    read: {
      form: 'HEAVY+RECENT',
      of: (heavyTokens, recentTokens) => ({
        policy: 'h2o',
        heavyTokens,
        recentTokens,
        budgetTokens: heavyTokens + recentTokens,
      }),
    },
    label: (e) => `h2o:${formatTokens(e.heavyTokens)}+${formatTokens(e.recentTokens)}`,
  },
  budget: {
    segments: ({ budgetTokens }) => ({ pinned: 0, ring: budgetTokens }),
    pins: 'none',
    reindexes: false,
    weighs: false,
    ringHasGaps: true,
    label: (e) => `budget:${formatTokens(e.budgetTokens)}`,
  },
};

const specOf = (eviction: Eviction): PolicySpec<Eviction> => SPECS[eviction.policy] as PolicySpec<Eviction>;

/** Positions count inside the cache, not in the text: distances to pinned tokens shrink when others are evicted. */
export const reindexes = (eviction: Eviction | null): eviction is Streaming =>
  eviction !== null && specOf(eviction).reindexes;

/** The first tokens stay, each in the slot of its position. */
export const pinsSinks = (eviction: Eviction | null): boolean => eviction !== null && specOf(eviction).pins === 'sinks';

/** Tokens are chosen by the attention mass that they received. */
export const weighsTokens = (eviction: Eviction | null): eviction is HeavyHitters =>
  eviction !== null && specOf(eviction).weighs;

/** Tokens that are not pinned may have gaps between their positions. */
export const ringHasGaps = (eviction: Eviction | null): boolean => eviction !== null && specOf(eviction).ringHasGaps;

/** Tokens of each segment of a full row. */
export const fullSegments = (eviction: Eviction): Segments => specOf(eviction).segments(eviction);

/** Tokens that are in the cache when a step reads it. */
export const keptTokens = (eviction: Eviction | null, context: number): number =>
  eviction ? Math.min(context, eviction.budgetTokens) : context;

/** Slots of a row before its ring, whether they are filled or not. @param capacity slots of the row, whole pages */
export function pinnedSlots(eviction: Eviction | null, capacity: number): number {
  if (!eviction) return 0;
  const { pins, segments } = specOf(eviction);
  const { pinned, ring } = segments(eviction);
  if (pins === 'sinks') return Math.min(pinned, capacity - 1);
  return pins === 'the-rest' ? Math.max(0, capacity - ring) : 0;
}

/** Tokens to allocate: H2O evicts after the step, so the cache transiently holds one more. */
export const allocatedTokens = (eviction: Eviction | null, context: number): number =>
  weighsTokens(eviction) ? Math.min(context, eviction.budgetTokens + 1) : keptTokens(eviction, context);

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
  if (!eviction) return { pinned: 0, ring: kept };
  const { pins, segments } = specOf(eviction);
  const { pinned: most, ring } = segments(eviction);
  const pinned = pins === 'sinks' ? Math.min(most, kept) : pins === 'the-rest' ? Math.max(0, kept - ring) : 0;
  return { pinned, ring: kept - pinned };
}

/**
 * Which of the tokens stay (ascending in, ascending out). StreamingLLM: the first `sink` and the last `window`. H2O:
 * the last `recent`, and of the older ones the `heavy` with the largest mass, the older token on a tie. A bare budget:
 * the last tokens.
 */
export function keptPositions(
  positions: readonly number[],
  mass: ReadonlyMap<number, number>,
  eviction: Eviction | null,
): number[] {
  if (!eviction || positions.length <= eviction.budgetTokens) return [...positions];
  const { weighs, segments } = specOf(eviction);
  const { pinned, ring } = segments(eviction);
  const older = positions.slice(0, positions.length - ring);
  const candidates = weighs ? older.sort((a, b) => (mass.get(b) ?? 0) - (mass.get(a) ?? 0) || a - b) : older;
  const stay = candidates.slice(0, pinned).sort((a, b) => a - b);
  return [...stay, ...positions.slice(positions.length - ring)];
}

/** Policies that users name, and how each is written: `streaming:SINK+WINDOW`. */
export const POLICY_NAMES = (Object.keys(SPECS) as Policy[]).filter((name) => SPECS[name].read);
export const POLICY_FORMS: readonly string[] = POLICY_NAMES.map((name) => `${name}:${SPECS[name].read?.form}`);

/**
 * Reads `streaming:4+256` or `h2o:128+132`.
 * @throws UserError on any other text
 */
export function parseEviction(text: string, subject: string): Eviction | null {
  if (text === 'none') return null;
  const match = /^([a-z0-9-]+):([^+]+)\+([^+]+)$/.exec(text);
  const [, name = '', first = '', second = ''] = match ?? [];
  const read = Object.hasOwn(SPECS, name) ? SPECS[name as Policy].read : undefined;
  if (!read)
    throw new UserError(
      `${subject} must be none, ${POLICY_FORMS.slice(0, -1).join(', ')} or ${POLICY_FORMS.at(-1)}, not ${show(text)}`,
      'write for example streaming:4+256',
    );
  const [firstName = '', secondName = ''] = read.form.split('+');
  const part = (word: string, of: string): number => parseTokens(word, `${subject} ${name}:${read.form}: ${of}`);
  const [a, b] = [part(first, firstName), part(second, secondName)];
  if (a + b > MAX_TOKENS)
    throw new UserError(`${subject} keeps ${a + b} tokens, more than ${MAX_TOKENS}`, 'give a smaller budget');
  return read.of(a, b);
}

/** `streaming:4+256`, `h2o:128+132`, `budget:1024`, `none`. */
export const evictionLabel = (eviction: Eviction | null): string =>
  eviction ? specOf(eviction).label(eviction) : 'none';
