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

const TEXTS = 12;
const ROLLOUTS = 6;
/** For each context and depth. */
const PASSKEYS = 2;
const RECALLS = 9;
const SUMS = 6;
const CONTEXTS = [64, 128, 256];
const DEPTHS = [0.1, 0.5, 0.9];
/** Tokens of a prompt of a text or rollout (the fewest, where a text is given), and tokens scored after it. */
const PROMPT_TOKENS = 64;
const SCORED_TOKENS = 24;

const textOf = (tokens: readonly number[], promptTokens: number): Item => ({
  kind: 'text',
  prompt: tokens.slice(0, promptTokens),
  continuation: tokens.slice(promptTokens),
});

/** Rollouts get their continuation from the uncompressed model. */
const rolloutOf = (prompt: readonly number[]): Item => ({ kind: 'rollout', prompt, continuation: [] });

const list = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));

/**
 * Items of the bundled models' tasks, the same for both. A seed gives the same items; other seeds than calibration's
 * are other texts.
 */
export function taskItems(seed: number): Item[] {
  const random = randomFrom(seed);
  const itemOf = ({ kind, prompt, answer }: Task): Item => ({ kind, prompt, continuation: answer });
  return [
    ...list(TEXTS, () => textOf(lesson(random, PROMPT_TOKENS + SCORED_TOKENS).tokens, PROMPT_TOKENS)),
    ...list(ROLLOUTS, () => rolloutOf(lesson(random, PROMPT_TOKENS).tokens)),
    ...CONTEXTS.flatMap((context) =>
      DEPTHS.flatMap((depth) => list(PASSKEYS, () => ({ ...itemOf(passkeyTask(random, context, depth)), depth }))),
    ),
    ...list(RECALLS, (i) => itemOf(recallTask(random, CONTEXTS[i % CONTEXTS.length] as number))),
    ...list(SUMS, () => itemOf(sumTask(random, PROMPT_TOKENS))),
  ];
}

/** Tokens of a window that can be judged on, at least. */
export const LEAST_JUDGED = PROMPT_TOKENS + SCORED_TOKENS;

/** Items of a text alone: forced tokens and rollouts at the end of each window, so that they see all of it. */
export function textItems(windows: readonly (readonly number[])[]): Item[] {
  const long = windows.filter((window) => window.length >= LEAST_JUDGED);
  return [
    ...long.slice(0, TEXTS).map((window) => textOf(window, window.length - SCORED_TOKENS)),
    ...long.slice(0, ROLLOUTS).map((window) => rolloutOf(window.slice(0, window.length - SCORED_TOKENS))),
  ];
}

const longRollout = (prompt: readonly number[]): Item => ({ ...rolloutOf(prompt), rolloutTokens: LONG_ROLLOUT });

export function longRollouts(seed: number): Item[] {
  const random = randomFrom(seed);
  return list(LONG_ROLLOUTS, () => longRollout(lesson(random, PROMPT_TOKENS).tokens));
}

/** Long rollouts of a text: in each window behind as much of it as leaves room for one. */
export const longTextRollouts = (windows: readonly (readonly number[])[]): Item[] =>
  windows
    .filter((window) => window.length > LONG_ROLLOUT + 1)
    .slice(0, LONG_ROLLOUTS)
    .map((window) => longRollout(window.slice(0, window.length - LONG_ROLLOUT)));
