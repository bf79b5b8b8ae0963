/** What becomes of a claim: its effect on a model, beside the same effect on the model's untrained twin. */
import type { Verdict } from '../../schema/claim-words.js';
import { bootstrap, type Interval } from '../../numbers/statistics.js';

/** A claim says that its effect is above zero. A function of texts, so that they can be resampled. */
export interface Effect {
  readonly texts: number;
  /** The effect over texts with these numbers, each as often as it is named. */
  readonly over: (texts: readonly number[]) => number;
}

/** 95 % bootstrap intervals over texts; null where there is no such effect. */
export interface Tried {
  readonly verdict: Verdict;
  readonly estimate: Interval | null;
  /** The effect on the untrained twin. */
  readonly control: Interval | null;
  /** The effect less the twin's, over the same texts: their joint interval. */
  readonly beyond: Interval | null;
}

const SEED = 1;

const measured = (effect: Effect): Interval => bootstrap(effect.over, effect.texts, SEED);

/** An effect by a mean over texts. */
export const meanEffect = (values: readonly number[]): Effect => ({
  texts: values.length,
  over: (texts) => texts.reduce((sum, i) => sum + (values[i] as number), 0) / texts.length,
});

/**
 * Judges an effect. Both models must have been asked the same texts: those are resampled together.
 * @throws RangeError where they were not
 */
export function judged(own: Effect | null, twin: Effect | null): Tried {
  const [effect, other] = [own, twin].map((e) => (e && e.texts > 0 ? e : null)) as [Effect | null, Effect | null];
  if (effect && other && effect.texts !== other.texts)
    throw new RangeError(`${effect.texts} texts of the model, ${other.texts} of its twin`);
  const estimate = effect && measured(effect);
  const beyond =
    effect && other && measured({ texts: effect.texts, over: (texts) => effect.over(texts) - other.over(texts) });
  return { verdict: verdictOf(estimate, beyond), estimate, control: other && measured(other), beyond };
}

/**
 * The rule, for every claim:
 * - An interval that holds zero decides nothing.
 * - One below zero contradicts. One counter-example is enough, so the twin has no say.
 * - One above zero agrees where the effect exceeds the twin's by more than their joint interval. Otherwise the twin
 *   shows it as well, without any training: it is not shown by this.
 * - Without a twin's effect nothing agrees.
 */
export function verdictOf(estimate: Interval | null, beyond: Interval | null): Verdict {
  if (estimate === null || (estimate.low <= 0 && estimate.high >= 0)) return 'not decided';
  if (estimate.high < 0) return 'contradicts';
  if (beyond === null) return 'not decided';
  return beyond.low > 0 ? 'agrees' : 'not shown by this';
}
