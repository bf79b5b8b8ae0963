/** What first tokens of whole servers were off by, beyond the prices of the iterations that make them. */
import type { Interval } from './evidence.js';
import type { Pricer, SchedulePrice } from './latency.js';

/**
 * How much further an end of a first token's time lies from the estimate than that of its prompt's iterations: as far
 * as published first tokens of left-out servers were, but no prompt is faster than the GPU's datasheet.
 * @param prompt the price of such a prompt
 */
export function firstTokenFactor(
  { spread }: Pick<Pricer, 'spread'>,
  bound: 'low' | 'high',
  prompt: Pick<SchedulePrice, 'low' | 'floor'> | null,
): number {
  if (!spread) return 1;
  const further = Math.exp(Math.max(0, spread.firstToken - spread.step));
  if (bound === 'high') return further;
  const floor = prompt?.floor ? Math.max(prompt.floor.memory, prompt.floor.compute) : 0;
  return Math.max(1 / further, prompt ? Math.min(1, floor / prompt.low) : 0);
}

/** Seconds to the first token of a prompt alone: those of the prompt, of a request, and the spread of first tokens. */
export function firstTokenOf(prompt: SchedulePrice, pricer: Pricer): Interval {
  const request = pricer.requestOverhead ?? { estimate: 0, low: 0, high: 0 };
  const end = (bound: 'low' | 'high'): number =>
    (prompt[bound] + request[bound]) * firstTokenFactor(pricer, bound, prompt);
  return { estimate: prompt.estimate + request.estimate, low: end('low'), high: end('high') };
}
