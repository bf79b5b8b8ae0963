/** From which ratio, and from which context, a path decodes faster than the full cache. */
import type { Interval } from '../cost/evidence.js';
import type { StepPrice } from '../cost/latency.js';
import { FULL_DECODING as FULL } from './figures/figure.js';
import { furthest } from '../numbers/halving.js';
import type { PaperModel } from './model.js';
import type { Decoding } from './types.js';

type Ends<T> = Readonly<Record<keyof Interval, T>>;

const atEnds = <T>(of: (end: keyof Interval) => T): Ends<T> => ({
  low: of('low'),
  estimate: of('estimate'),
  high: of('high'),
});

/** Contexts between which time grows by cached tokens alone: splits and every fixed cost are equal. */
const [SHORT, LONG] = [2 ** 16, 2 ** 17];
/** Longest context that is searched. */
const LONGEST = 2 ** 20;

/** Seconds that one more cached token adds to a step, at each end of the interval. */
function secondsPerToken(m: PaperModel, model: string, decoding: Decoding): Ends<number> {
  const [a, b] = [m.step(model, decoding, 1, SHORT), m.step(model, decoding, 1, LONG)];
  return atEnds((end) => (b[end] - a[end]) / (LONG - SHORT));
}

/**
 * The smallest ratio from which a path of LLA is no slower for each cached token than the full cache, at each end of
 * the interval; null where no ranks of at least 3/5 are enough. Time grows with the rank sum, so sums are bisected.
 */
export function breakEvenRatio(m: PaperModel, model: string, path: Omit<Decoding, 'codec'>): Ends<number | null> {
  const g = m.geometry(model);
  const whole = 2 * g.loops * g.headDim;
  const full = secondsPerToken(m, model, FULL);
  const own = new Map<number, Ends<number>>();
  const at = (sum: number): Ends<number> => {
    const known = own.get(sum) ?? secondsPerToken(m, model, { ...path, codec: m.codec(model, 'lla', whole / sum) });
    own.set(sum, known);
    return known;
  };
  return atEnds((end) => {
    const fastEnough = (sum: number): boolean => at(sum)[end] <= full[end] * (1 + 1e-9);
    if (!fastEnough(8)) return null;
    const most = furthest(8, whole, fastEnough);
    return whole / (fastEnough(most + 1) ? most + 1 : most);
  });
}

/**
 * The shortest context from which a decoding is no slower than the full cache at the same batch and context, at each
 * end of the interval; null where it is slower up to 1M tokens. Contexts are doubled until it is faster, then bisected.
 */
export function breakEvenContext(m: PaperModel, model: string, decoding: Decoding, batch: number): Ends<number | null> {
  const prices = new Map<number, readonly [own: StepPrice, full: StepPrice]>();
  const at = (context: number): readonly [StepPrice, StepPrice] => {
    const known = prices.get(context) ?? [m.step(model, decoding, batch, context), m.step(model, FULL, batch, context)];
    prices.set(context, known);
    return known;
  };
  return atEnds((end) => {
    const faster = (context: number): boolean => at(context)[0][end] <= at(context)[1][end];
    let high = 1;
    while (high < LONGEST && !faster(high)) high *= 2;
    if (!faster(high)) return null;
    return furthest(high, high / 2, faster);
  });
}
