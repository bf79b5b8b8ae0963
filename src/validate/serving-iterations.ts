/**
 * What the decoder ran under its serving loop, iteration by iteration, beside the price of exactly that. It tells an
 * error of prices from one of the schedule, and a rehearsal's iterations correct the prices.
 */
import { clockNow } from '../io/clock.js';
import type { SequenceEngine } from '../decoder/serving/loop.js';
import { driftExponentOf, slowdownOf } from '../schema/drift.js';
import { sum } from '../numbers/statistics.js';
import { MixedBatch, type IterationPricer } from '../serving/scheduler/batch.js';
import type { ApartPricer, Correction } from './serving-price.js';

/** A part of a prompt that was taken in. */
interface RanChunk {
  readonly tokens: number;
  /** Tokens of its sequence that were in the cache already. */
  readonly before: number;
  /** True where the prompt ended with it, and gave a token. */
  readonly ends: boolean;
  /** By the device's clock. */
  readonly seconds: number;
  /** Time of the probe before and after it, over its reference. */
  readonly drift: number;
}

/** The calls of an iteration that ran: a decode step, then chunks of prompts. */
export interface Ran {
  /** Tokens in the cache of each sequence that decoded, before the step; none where there was no step. */
  readonly lengths: readonly number[];
  /** Of the step, by the device's clock; 0 without one. */
  readonly stepSeconds: number;
  /** Likewise; 1 without a step. */
  readonly stepDrift: number;
  readonly chunks: readonly RanChunk[];
  /** Wall time of these calls: the device's, the host's, and what other programs took from both. */
  readonly wallSeconds: number;
}

/**
 * An engine that keeps what it runs. `take` gives what ran since it was last called.
 * @param probed runs the probe: its drift between this run and the one before
 */
export function recording(
  engine: SequenceEngine,
  probed: () => Promise<number>,
): { readonly engine: SequenceEngine; readonly take: () => Ran } {
  const cached = new Array<number>(engine.sequences).fill(0);
  let lengths: number[] = [];
  let chunks: RanChunk[] = [];
  let [stepSeconds, stepDrift, wallSeconds] = [0, 1, 0];
  const timed = async <T>(call: Promise<T>): Promise<{ result: T; drift: number }> => {
    const began = clockNow();
    const result = await call;
    wallSeconds += clockNow() - began;
    return { result, drift: await probed() };
  };
  return {
    engine: {
      ...engine,
      extend: async (sequence, tokens, ends) => {
        const { result, drift } = await timed(engine.extend(sequence, tokens, ends));
        const before = cached[sequence] as number;
        chunks.push({ tokens: tokens.length, before, ends, seconds: result.seconds, drift });
        cached[sequence] = before + tokens.length;
        return result;
      },
      step: async (tokens, joins) => {
        const { result, drift } = await timed(engine.step(tokens, joins));
        [stepSeconds, stepDrift] = [result.seconds, drift];
        cached.forEach((length, sequence) => {
          if (!joins(sequence)) return;
          lengths.push(length);
          cached[sequence] = length + result.tokens[sequence]!.length;
        });
        return result;
      },
      forget: (sequence, stream, draw) => {
        engine.forget(sequence, stream, draw);
        cached[sequence] = 0;
      },
    },
    take: () => {
      const ran: Ran = { lengths, stepSeconds, stepDrift, chunks, wallSeconds };
      [lengths, chunks, stepSeconds, stepDrift, wallSeconds] = [[], [], 0, 1, 0];
      return ran;
    },
  };
}

/** Exponents of the probe's drift (schema/drift.ts). */
export interface Exponents {
  readonly step: number;
  readonly chunk: number;
}

/** Steps and chunks as they ran, with the machine's drift taken off, seconds. */
function corrected(ran: Ran, exponents: Exponents): { readonly step: number; readonly chunks: number[] } {
  return {
    step: ran.stepSeconds / slowdownOf(ran.stepDrift, exponents.step),
    chunks: ran.chunks.map(({ seconds, drift }) => seconds / slowdownOf(drift, exponents.chunk)),
  };
}

/** Seconds of an iteration with the machine's drift taken off. */
export function correctedSeconds(ran: Ran, exponents: Exponents): number {
  const { step, chunks } = corrected(ran, exponents);
  return chunks.reduce((sum, seconds) => sum + seconds, step);
}

/** A call that ran, with the machine's drift taken off, and its price: seconds. */
interface PricedCall {
  readonly measured: number;
  readonly priced: number;
}

/** Every step and every chunk beside its price. */
function priceEach(
  all: readonly Ran[],
  exponents: Exponents,
  pricer: ApartPricer,
): { readonly steps: PricedCall[]; readonly chunks: PricedCall[] } {
  const steps: PricedCall[] = [];
  const chunks: PricedCall[] = [];
  for (const ran of all) {
    const measured = corrected(ran, exponents);
    if (ran.lengths.length > 0) {
      const batch = new MixedBatch(pricer.knots, 0);
      for (const length of ran.lengths) batch.add(length);
      steps.push({ measured: measured.step, priced: pricer.stepSeconds(batch) });
    }
    ran.chunks.forEach(({ tokens, before, ends }, i) =>
      chunks.push({ measured: measured.chunks[i] as number, priced: pricer.chunkSeconds(tokens, before, ends) }),
    );
  }
  return { steps, chunks };
}

/** Calls of one kind that ran: their number, and sums of their times and prices, seconds. */
export interface Priced extends PricedCall {
  readonly count: number;
}

const sumOf = (calls: readonly PricedCall[]): Priced => ({
  count: calls.length,
  measured: sum(calls.map(({ measured }) => measured)),
  priced: sum(calls.map(({ priced }) => priced)),
});

/** Sums over iterations that ran: of decode steps, and of chunks. */
export function priceRan(
  all: readonly Ran[],
  exponents: Exponents,
  pricer: ApartPricer,
): { readonly steps: Priced; readonly chunks: Priced } {
  const { steps, chunks } = priceEach(all, exponents, pricer);
  return { steps: sumOf(steps), chunks: sumOf(chunks) };
}

/** The drift beside every step and every chunk. */
export const driftsOf = (all: readonly Ran[]): { readonly steps: number[]; readonly chunks: number[] } => ({
  steps: all.flatMap(({ lengths, stepDrift }) => (lengths.length > 0 ? [stepDrift] : [])),
  chunks: all.flatMap(({ chunks }) => chunks.map(({ drift }) => drift)),
});

/** Time over price of every iteration, with the machine's drift taken off. */
export function ratiosOf(all: readonly Ran[], exponents: Exponents, pricer: ApartPricer): number[] {
  return all.map((one) => {
    const { steps, chunks } = priceEach([one], exponents, pricer);
    const { measured, priced } = sumOf([...steps, ...chunks]);
    return measured / priced;
  });
}

/** What a rehearsal says about prices: exponents of drift, and what corrects the pricer. */
export function fitRehearsal(
  all: readonly Ran[],
  pricer: ApartPricer,
): { readonly exponents: Exponents; readonly correction: Correction } {
  const raw = priceEach(all, { step: 0, chunk: 0 }, pricer);
  const relative = (calls: readonly PricedCall[], drift: readonly number[]): number =>
    driftExponentOf([{ seconds: calls.map(({ measured, priced }) => measured / priced), drift }]);
  const exponents = {
    step: relative(raw.steps, driftsOf(all).steps),
    chunk: relative(raw.chunks, driftsOf(all).chunks),
  };
  const { steps, chunks } = priceEach(all, exponents, pricer);
  return { exponents, correction: { step: ratioOf(steps), chunk: lineThrough(chunks) } };
}

function ratioOf(calls: readonly PricedCall[]): number {
  const { measured, priced } = sumOf(calls);
  return priced > 0 ? measured / priced : 1;
}

/** Of the mean price: prices that differ by less are as one. */
const LEAST_SPREAD = 0.1;

/**
 * Measured times as a line over prices, by least squares: a chunk costs something beyond its price, whatever its size.
 * Through the origin where prices hardly differ, or where that would be less than nothing.
 */
function lineThrough(calls: readonly PricedCall[]): Correction['chunk'] {
  const { count, measured, priced } = sumOf(calls);
  const [y, x] = [measured / count, priced / count];
  const squares = sum(calls.map((call) => (call.priced - x) ** 2));
  const products = sum(calls.map((call) => (call.priced - x) * (call.measured - y)));
  const scale = products / squares;
  const seconds = y - scale * x;
  return squares > count * (LEAST_SPREAD * x) ** 2 && scale > 0 && seconds > 0
    ? { scale, seconds }
    : { scale: ratioOf(calls), seconds: 0 };
}

/**
 * Prices iterations at what they took, one after the other, as long as the simulation's are those that ran. From the
 * first that is another on, `pricer` does.
 */
export function replaying(
  all: readonly Ran[],
  exponents: Exponents,
  pricer: IterationPricer,
): { readonly pricer: IterationPricer; readonly replayed: () => number } {
  let next = 0;
  let differs = false;
  const isSame = ({ lengths, chunks }: Ran, batch: MixedBatch): boolean =>
    lengths.length === batch.size &&
    sum(lengths) === Math.round(batch.size * batch.meanLength) &&
    chunks.length === batch.chunks.count &&
    chunks.every(({ tokens, before }, i) => batch.chunks.tokens[i] === tokens && batch.chunks.before[i] === before);
  return {
    pricer: {
      knots: pricer.knots,
      seconds: (batch) => {
        const own = all[next];
        differs ||= !own || !isSame(own, batch);
        if (differs) return pricer.seconds(batch);
        next++;
        return correctedSeconds(own as Ran, exponents);
      },
    },
    replayed: () => next,
  };
}
