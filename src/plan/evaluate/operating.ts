/** At which batch a plan is run: its latency target, or the knee of its throughput. */
import { over } from '../../cost/evidence.js';
import { priceStep, type StepPrice } from '../../cost/latency.js';
import type { Configuration } from '../../schedule/schedule.js';
import { chanceWithin, timeAt } from './chance.js';
import { figuresAt, tunedAt } from './evaluate.js';
import type { OperatingPoint, Plan, PlanRequest } from '../types.js';

/** Share of a row's best throughput that the knee keeps. */
export const KNEE_SHARE = 0.9;
/** The knee's throughput exceeds that share by at most this share: each closer batch would cost another price. */
export const KNEE_TOLERANCE = 0.005;
/** Largest batch that is searched; grids beyond it serve nobody. */
const MAX_BATCH = 2 ** 20;

/**
 * Adds to a plan where it is run: with --batch there; with --tpot at the largest batch that meets it with the wanted
 * probability; else at the smallest batch with 90 % of the row's best throughput. Null where nothing fits, where no
 * batch meets the target, and where nothing is known about speed.
 */
export function operate(r: PlanRequest, c: Configuration, plan: Plan): Plan {
  const { pricer } = r;
  const most = Math.min(plan.maxBatch.exact, MAX_BATCH);
  if (!pricer || most < 1 || (r.batch !== null && r.batch > most)) return plan;
  const known = new Map<number, StepPrice>();
  const price = (batch: number): StepPrice => {
    const step = known.get(batch) ?? priceStep(c, pricer, batch, r.contextTokens);
    known.set(batch, step);
    return step;
  };
  const target = r.targets.secondsPerToken;
  const served = Math.min(most, r.mostSequences ?? most);
  const late = (batch: number): number => timeAt(timed(price(batch)), r.confidence) - (target ?? Infinity);
  // The largest batch has a price already.
  const seconds = (b: number): number =>
    (b === plan.decode.batch ? plan.decode.secondsPerStep : price(b))?.estimate ?? Infinity;
  const batch =
    r.batch !== null
      ? target === null || late(r.batch) <= 0
        ? r.batch
        : 0
      : target !== null
        ? lastWithin(late, served)
        : kneeOf(seconds, served);
  if (batch === 0) {
    // The search tried more than one batch: the least late is told, and whether another passes at lower confidence.
    const tried = [...known].map(([of, step]) => ({ batch: of, step, late: late(of) }));
    const { batch: least, step } = tried.reduce((x, y) => (y.late < x.late ? y : x));
    const likeliest = Math.max(...tried.map((t) => chanceAt(t.step, target) ?? 0));
    const nearest = { batch: least, ...timed(step), likeliest };
    return { ...plan, nearest, chances: { ...plan.chances, tpot: chanceAt(step, target) } };
  }
  const figures = { ...figuresAt(r, price(batch), batch), ...tunedAt(r, c, batch) };
  const knee: OperatingPoint = { ...figures, tokensPerSecondPerUser: over(1, price(batch)) };
  return {
    ...plan,
    knee,
    atTarget: target === null ? null : figures,
    chances: { ...plan.chances, tpot: chanceAt(price(batch), target) },
  };
}

const timed = ({ estimate, low, high, evidence }: StepPrice) => ({ seconds: { estimate, low, high }, evidence });
const chanceAt = (step: StepPrice, target: number | null): number | null =>
  target === null ? null : chanceWithin(timed(step), target);

/**
 * The smallest batch whose throughput is `KNEE_SHARE` of the best, within `KNEE_TOLERANCE`. Throughput rises with the
 * batch, and for some kernels falls again, mostly beyond a power of two, where a product needs one more tile: so the
 * best is looked for among these, from the largest batch down, and halfway to the next.
 * @param seconds of a step by its batch
 */
export function kneeOf(seconds: (batch: number) => number, most: number): number {
  const rate = (batch: number): number => batch / seconds(batch);
  const below2 = (batch: number): number => Math.floor(2 ** (Math.ceil(Math.log2(batch)) - 1));
  let best = most;
  for (let next = below2(best); next >= 1 && rate(next) > rate(best); next = below2(next)) best = next;
  for (const near of [0.75 * best, 1.5 * best].map(Math.floor))
    if (near >= 1 && near <= most && rate(near) > rate(best)) best = near;
  if (best === 1) return 1;
  const half = Math.floor(best / 2);
  const slack = (KNEE_TOLERANCE / 2) * rate(best);
  const aim = KNEE_SHARE * rate(best) + slack;
  const surplus = (batch: number): End => {
    const time = seconds(batch);
    return { batch, value: batch - aim * time, enough: Math.abs(batch / time - aim) <= slack };
  };
  // Where no batch at all were decoded, a step would take what is left when the time of the batch is taken away.
  const idle = Math.max(seconds(half) * 2 - seconds(best), seconds(best) * 1e-3);
  const middle = surplus(half);
  if (middle.enough) return half;
  const above = middle.value >= 0 ? middle : surplus(best);
  const below = above === middle ? { batch: 0, value: -aim * idle } : middle;
  const [low, high] = narrow(surplus, below, above);
  return low.enough ? low.batch : high.batch;
}

/**
 * The largest batch up to `most` whose `excess` is at most 0; 0 where none is. Some tables have a larger batch that
 * takes less time than a smaller one, so powers of two are tried from the largest down; between the first that is
 * within and the next above it the range is narrowed.
 */
export function lastWithin(excess: (batch: number) => number, most: number): number {
  let above = { batch: most, value: excess(most) };
  if (above.value <= 0) return most;
  const sign = (b: number): End => ({ batch: b, value: excess(b) || -Number.MIN_VALUE });
  for (let batch = 2 ** (Math.ceil(Math.log2(most)) - 1); batch >= 1; batch /= 2) {
    const at = sign(batch);
    if (at.value < 0) return narrow(sign, at, above)[0].batch;
    above = at;
  }
  return 0;
}

interface End {
  readonly batch: number;
  readonly value: number;
  /** Close enough to 0: the search ends here. */
  readonly enough?: boolean;
}

/**
 * Narrows a range of batches, of which the low end is below 0 and the high end is not, until they are neighbours or one
 * of them is enough. Interpolates, because times are almost straight lines in the batch, and halves where that does not
 * narrow the range fast.
 */
function narrow(value: (batch: number) => End, low: End, high: End): [low: End, high: End] {
  let slow = 0;
  while (high.batch - low.batch > 1 && !low.enough && !high.enough) {
    const width = high.batch - low.batch;
    const share = -low.value / (high.value - low.value);
    const guess = slow >= 2 ? width / 2 : share * width;
    const at = value(low.batch + Math.min(width - 1, Math.max(1, Math.floor(guess))));
    if (at.value < 0) low = at;
    else high = at;
    slow = high.batch - low.batch > width / 2 ? (slow % 2) + 1 : 0;
  }
  return [low, high];
}
