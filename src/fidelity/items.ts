/**
 * What a model is asked. Every item is a prompt, which is prefilled, and a continuation, whose tokens are forced and
 * predicted one by one. A greedy decoder gives an answer exactly if it predicts each of its tokens after those before,
 * and follows another greedy decoder until the first token that it predicts otherwise: so forced tokens tell both.
 */
import { passkeyTask, recallTask, sumTask, lesson, type Task, type TaskKind } from '../tiny/tasks.js';
import { randomFrom } from '../numbers/random.js';

export type ItemKind = 'text' | 'rollout' | TaskKind;

export interface Item {
  readonly kind: ItemKind;
  /** At least two tokens. */
  readonly prompt: readonly number[];
  /** Tokens that are forced after it; of a rollout the uncompressed model's own greedy ones. */
  readonly continuation: readonly number[];
  /** Of a passkey: its place in the prompt, 0 (begin) to 1 (end). */
  readonly depth?: number;
  /** Of a rollout that is not of the usual length: its tokens. */
  readonly rolloutTokens?: number;
}

/** Tokens of a rollout that tells whether a training helps long ones, and how many there are. */
export const LONG_ROLLOUT = 96;
const LONG_ROLLOUTS = 32;

export interface ItemCounts {
  readonly texts: number;
  readonly rollouts: number;
  /** For each context and depth. */
  readonly passkeys: number;
  readonly recalls: number;
  readonly sums: number;
  readonly contexts: readonly number[];
  readonly depths: readonly number[];
  /** Tokens of a prompt of a text or rollout (the fewest, where a text is given), and tokens scored after it. */
  readonly promptTokens: number;
  readonly scoredTokens: number;
}

const DEFAULT_COUNTS: ItemCounts = {
  texts: 12,
  rollouts: 6,
  passkeys: 2,
  recalls: 9,
  sums: 6,
  contexts: [64, 128, 256],
  depths: [0.1, 0.5, 0.9],
  promptTokens: 64,
  scoredTokens: 24,
};

const textOf = (tokens: readonly number[], promptTokens: number): Item => ({
  kind: 'text',
  prompt: tokens.slice(0, promptTokens),
  continuation: tokens.slice(promptTokens),
});

/** Rollouts get their continuation from the uncompressed model. */
const rolloutOf = (prompt: readonly number[]): Item => ({ kind: 'rollout', prompt, continuation: [] });

/**
 * Items of the bundled models' tasks, the same for both. A seed gives the same items; other seeds than calibration's
 * are other texts.
 */
export function taskItems(seed: number, c: ItemCounts = DEFAULT_COUNTS): Item[] {
  const random = randomFrom(seed);
  const list = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
  const itemOf = ({ kind, prompt, answer }: Task): Item => ({ kind, prompt, continuation: answer });
  return [
    ...list(c.texts, () => textOf(lesson(random, c.promptTokens + c.scoredTokens).tokens, c.promptTokens)),
    ...list(c.rollouts, () => rolloutOf(lesson(random, c.promptTokens).tokens)),
    ...c.contexts.flatMap((context) =>
      c.depths.flatMap((depth) => list(c.passkeys, () => ({ ...itemOf(passkeyTask(random, context, depth)), depth }))),
    ),
    ...list(c.recalls, (i) => itemOf(recallTask(random, c.contexts[i % c.contexts.length] as number))),
    ...list(c.sums, () => itemOf(sumTask(random, c.promptTokens))),
  ];
}

/** Items of a text alone: forced tokens and rollouts at the end of each window, so that they see all of it. */
export function textItems(windows: readonly (readonly number[])[], c: ItemCounts = DEFAULT_COUNTS): Item[] {
  const long = windows.filter((window) => window.length >= c.promptTokens + c.scoredTokens);
  return [
    ...long.slice(0, c.texts).map((window) => textOf(window, window.length - c.scoredTokens)),
    ...long.slice(0, c.rollouts).map((window) => rolloutOf(window.slice(0, window.length - c.scoredTokens))),
  ];
}

export const longRollouts = (seed: number): Item[] =>
  taskItems(seed, { ...DEFAULT_COUNTS, texts: 0, rollouts: LONG_ROLLOUTS, passkeys: 0, recalls: 0, sums: 0 }).map(
    (item) => ({ ...item, rolloutTokens: LONG_ROLLOUT }),
  );

/** Long rollouts of a text: in each window behind as much of it as leaves room for one. */
export const longTextRollouts = (windows: readonly (readonly number[])[]): Item[] =>
  windows
    .filter((window) => window.length > LONG_ROLLOUT + 1)
    .slice(0, LONG_ROLLOUTS)
    .map((window) => ({
      ...rolloutOf(window.slice(0, window.length - LONG_ROLLOUT)),
      rolloutTokens: LONG_ROLLOUT,
    }));
