/** What first tokens of whole servers were off by, beyond the prices of the iterations that make them. */
import type { Interval } from './evidence.js';
import type { Pricer, SchedulePrice } from './latency.js';

/** How much further an end of a first token's time lies from the estimate than that of the iterations before it. */
export function firstTokenFactor({ spread }: Pick<Pricer, 'spread'>, bound: 'low' | 'high'): number {
  const further = spread ? Math.exp(Math.max(0, spread.firstToken - spread.step)) : 1;
  return bound === 'high' ? further : 1 / further;
}

/**
 * Seconds of a prompt by the GPU's datasheet; 0 where its rates are not known. Under a runtime what prompts read may
 * come from the L2, so that only operations count.
 */
export function leastSeconds({ floor }: Pick<SchedulePrice, 'floor'>, { runtime }: Pick<Pricer, 'runtime'>): number {
  return floor === null ? 0 : runtime ? floor.compute : Math.max(floor.memory, floor.compute);
}

/**
 * The fast end of a first token: as much earlier than its iterations as published ones were, but no earlier than the
 * datasheet allows the prompt, unless these iterations are: then a prefix was cached.
 */
export const fastEnd = (seconds: number, factor: number, least: number): number =>
  Math.max(seconds * factor, Math.min(seconds, least));

/** Seconds to the first token of a prompt alone: those of the prompt, of a request, and the spread of first tokens. */
export function firstTokenOf(prompt: SchedulePrice, pricer: Pricer): Interval {
  const request = pricer.requestOverhead ?? { estimate: 0, low: 0, high: 0 };
  const low = prompt.low + request.low;
  return {
    estimate: prompt.estimate + request.estimate,
    low: fastEnd(low, firstTokenFactor(pricer, 'low'), leastSeconds(prompt, pricer)),
    high: (prompt.high + request.high) * firstTokenFactor(pricer, 'high'),
  };
}
