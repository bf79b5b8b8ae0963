/** From which ratio, and from which context, a path decodes faster than the full cache. */
import type { Interval } from '../cost/evidence.js';
import type { StepPrice } from '../cost/latency.js';
import { FULL } from './answers-time.js';
import type { PaperModel } from './model.js';
import type { Decoding } from './types.js';

const ENDS = ['low', 'estimate', 'high'] as const satisfies readonly (keyof Interval)[];
export type End = (typeof ENDS)[number];

/** Contexts between which time grows by cached tokens alone: splits and every fixed cost are equal. */
const [SHORT, LONG] = [2 ** 16, 2 ** 17];
/** Longest context that is searched. */
const LONGEST = 2 ** 20;

/** Seconds that one more cached token adds to a step, at each end of the interval. */
function secondsPerToken(m: PaperModel, model: string, decoding: Decoding): Record<End, number> {
  const [a, b] = [m.step(model, decoding, 1, SHORT), m.step(model, decoding, 1, LONG)];
  const slope = (end: End): number => (b[end] - a[end]) / (LONG - SHORT);
  return { low: slope('low'), estimate: slope('estimate'), high: slope('high') };
}

/**
 * The smallest ratio from which a path of LLA is no slower for each cached token than the full cache, at each end of
 * the interval; null where no ranks of at least 3/5 are enough. Time grows with the rank sum, so sums are bisected.
 */
export function breakEvenRatio(
  m: PaperModel,
  model: string,
  path: Omit<Decoding, 'codec'>,
): Record<End, number | null> {
  const g = m.geometry(model);
  const whole = 2 * g.loops * g.headDim;
  const full = secondsPerToken(m, model, FULL);
  const own = new Map<number, Record<End, number>>();
  const at = (sum: number): Record<End, number> => {
    const known = own.get(sum) ?? secondsPerToken(m, model, { ...path, codec: m.codec(model, 'lla', whole / sum) });
    own.set(sum, known);
    return known;
  };
  const search = (end: End): number | null => {
    const fastEnough = (sum: number): boolean => at(sum)[end] <= full[end] * (1 + 1e-9);
    let [low, high] = [8, whole];
    if (!fastEnough(low)) return null;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (fastEnough(middle)) low = middle;
      else high = middle;
    }
    return whole / (fastEnough(high) ? high : low);
  };
  return { low: search('low'), estimate: search('estimate'), high: search('high') };
}

/**
 * The shortest context from which a decoding is no slower than the full cache at the same batch and context, at each
 * end of the interval; null where it is slower up to 1M tokens. Contexts are doubled until it is faster, then bisected.
 */
export function breakEvenContext(
  m: PaperModel,
  model: string,
  decoding: Decoding,
  batch: number,
): Record<End, number | null> {
  const prices = new Map<number, readonly [own: StepPrice, full: StepPrice]>();
  const at = (context: number): readonly [StepPrice, StepPrice] => {
    const known = prices.get(context) ?? [m.step(model, decoding, batch, context), m.step(model, FULL, batch, context)];
    prices.set(context, known);
    return known;
  };
  const search = (end: End): number | null => {
    const faster = (context: number): boolean => at(context)[0][end] <= at(context)[1][end];
    let high = 1;
    while (high < LONGEST && !faster(high)) high *= 2;
    if (!faster(high)) return null;
    let low = high === 1 ? 1 : high / 2;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (faster(middle)) high = middle;
      else low = middle;
    }
    return high;
  };
  return { low: search('low'), estimate: search('estimate'), high: search('high') };
}
