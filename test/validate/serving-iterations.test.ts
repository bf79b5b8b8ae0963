/** Errors of prices and of the schedule are told apart, on a decoder whose times are prices, changed as is known. */
import { describe, expect, test } from 'vitest';
import { Budget } from '../../src/io/budget.js';
import { datasheetPricer } from '../../src/cost/pricers.js';
import type { SequenceEngine } from '../../src/decoder/serving/loop.js';
import { MixedBatch, type IterationPricer } from '../../src/serving/scheduler/batch.js';
import { acceptedOf, type Speculation } from '../../src/serving/speculation.js';
import { PriceTables } from '../../src/serving/price/price.js';
import { servingGrid, servingModel } from '../../src/validate/grid.js';
import { compare, NO_CORRECTION, rowOf, serve, serveCase } from '../../src/validate/serving.js';
import { fitRehearsal, ratiosOf } from '../../src/validate/serving-iterations.js';
import { ApartPricer, roundPrice } from '../../src/validate/serving-price.js';
import { capacityOf, caseSeconds, disturbed, requestsOf, simulate } from '../../src/validate/serving-requests.js';
import { randomOf, SEED } from '../gpu/random.js';

const SEQUENCES = 4;
const STEP = 1.3;
const CHUNK = { scale: 0.8, seconds: 0.004 };
const EXPONENTS = { step: 0.4, chunk: 0.9 };

const of = {
  ...servingGrid({ geometry: servingModel(true, null), software: true, bindingBytes: 2 ** 27 })[0]!,
  sequences: SEQUENCES,
};
const options = {
  ...{ sequences: SEQUENCES, maxNumBatchedTokens: 24, chunkedPrefill: true },
  ...{ blockTokens: 16, blocks: 8, capTokens: Infinity },
};
const rates = { bytesPerSecond: 1e10, f32FlopsPerSecond: 4e10, matrixFlopsPerSecond: null };
const tables = new PriceTables(of.c, datasheetPricer(rates, null), {
  method: 'chunked',
  longest: 64,
  mostSequences: SEQUENCES,
});
const pricer = new ApartPricer(tables, SEQUENCES);

const speculation: Speculation = { draftLoops: 2, draftTokens: 4, acceptance: 0.9, source: null, seed: SEED };
const roundPricer = new ApartPricer(tables, SEQUENCES, (length) => 0.01 + 1e-5 * length);

/**
 * A machine whose probe drifts at random, and a decoder on it whose steps take `factor` times what they should.
 * @param drawn its steps are rounds, as priced by `roundPricer`
 */
function machine(
  seed: number,
  factor = 1,
  drawn?: Speculation,
): { engine: SequenceEngine; rules: Parameters<typeof serve>[4] } {
  const of = Array.from({ length: SEQUENCES }, () => ({ request: 0, made: 0 }));
  const random = randomOf(seed);
  const cached = new Array<number>(SEQUENCES).fill(0);
  // Each run of the probe is that before a call and after the one before it.
  let [last, drift] = [1, 1];
  const slowed = (seconds: number, exponent: number): number => seconds * drift ** exponent;
  const engine: SequenceEngine = {
    sequences: SEQUENCES,
    contextTokens: 64,
    ...(drawn ? { draft: drawn } : {}),
    extend: (sequence, tokens, ends) => {
      if (ends) of[sequence]!.made++;
      const price = pricer.chunkSeconds(tokens.length, cached[sequence]!, ends);
      cached[sequence]! += tokens.length;
      const seconds = slowed(CHUNK.seconds + CHUNK.scale * price, EXPONENTS.chunk);
      return Promise.resolve({ token: ends ? 1 : null, seconds });
    },
    step: (tokens, joins) => {
      const batch = new MixedBatch(pricer.knots, 0);
      for (const length of cached.filter((_, i) => joins(i))) batch.add(length);
      const made = tokens.map((_, i) => {
        if (!joins(i)) return [];
        const own = new Array<number>(1 + (drawn ? acceptedOf(drawn, of[i]!.request, of[i]!.made) : 0)).fill(1);
        of[i]!.made += own.length;
        cached[i]! += own.length;
        return own;
      });
      const seconds = slowed(factor * STEP * (drawn ? roundPricer : pricer).stepSeconds(batch), EXPONENTS.step);
      return Promise.resolve({ tokens: made, seconds });
    },
    forget: (sequence, request, made) => {
      cached[sequence] = 0;
      of[sequence] = { request, made };
    },
  };
  const run = (): Promise<number> => {
    const ran = last;
    last = random.whole(70, 160) / 100;
    drift = Math.sqrt(ran * last);
    return Promise.resolve(ran);
  };
  return { engine, rules: { watch: { run, between: (a, b) => Math.sqrt(a * b) }, stopped: () => false } };
}

function batchOf(length: number): MixedBatch {
  const batch = new MixedBatch(tables.knots, 0);
  for (let i = 0; i < SEQUENCES; i++) batch.add(length);
  return batch;
}

describe(`prices and schedule apart (LLA_SIM_SEED=${SEED})`, () => {
  test('a rehearsal finds what its steps and chunks cost, and a replay has no error', async () => {
    const rehearsed = machine(SEED);
    const others = requestsOf(of, 160, SEED + 1, null);
    const { ran } = await serve(rehearsed.engine, options, others, NO_CORRECTION, rehearsed.rules);
    const rehearsal = { ...fitRehearsal(ran, pricer), ran };
    const { correction, exponents } = rehearsal;
    // Its own prices are those of its iterations.
    const ratios = ratiosOf(ran, exponents, pricer.correctedBy(correction));
    expect(Math.min(...ratios)).toBeGreaterThan(0.7);
    expect(Math.max(...ratios)).toBeLessThan(1.4);
    expect(exponents.step).toBeCloseTo(EXPONENTS.step, 1);
    expect(exponents.chunk).toBeCloseTo(EXPONENTS.chunk, 1);
    expect(correction.step / STEP).toBeCloseTo(1, 1);
    expect(correction.chunk.scale / CHUNK.scale).toBeCloseTo(1, 1);

    // Steps that are a fifth slower than in the rehearsal.
    const { engine, rules } = machine(SEED + 2, 1.2);
    const requests = requestsOf(of, 40, SEED, 5);
    const done = await serve(engine, options, requests, exponents, rules);
    expect(done.ran.some(({ lengths, chunks }) => lengths.length > 0 && chunks.length > 0)).toBe(true);
    const { prices, replay, iterations } = rowOf(of, 0.8, options, { requests, ...done }, pricer, rehearsal);
    expect(prices.steps.priced / prices.steps.measured).toBeCloseTo(1 / 1.2, 1);
    expect(prices.steps.calibrated / prices.steps.measured).toBeCloseTo(1 / 1.2 / STEP, 1);
    expect(prices.chunks.priced / prices.chunks.measured).toBeCloseTo(1, 1);
    expect(replay.iterations).toBe(iterations.measured);
    expect(replay.meanTpotSeconds.simulated).toBeCloseTo(replay.meanTpotSeconds.measured, 9);
    expect(replay.p90E2elSeconds.simulated).toBeCloseTo(replay.p90E2elSeconds.measured, 9);
    expect(replay).toMatchObject({ inverted: 0 });
    expect(prices.steps.count).toBe(done.ran.filter(({ lengths }) => lengths.length > 0).length);
  });

  test('rounds of speculation have the simulated iterations, and a rehearsal finds what they cost', async () => {
    const how = { ...options, speculation };
    const rehearsed = machine(SEED, 1, speculation);
    const others = requestsOf(of, 160, SEED + 1, null);
    const { ran } = await serve(rehearsed.engine, how, others, NO_CORRECTION, rehearsed.rules);
    const rehearsal = { ...fitRehearsal(ran, roundPricer), ran };
    expect(rehearsal.correction.step / STEP).toBeCloseTo(1, 1);
    const { engine, rules } = machine(SEED + 2, 1, speculation);
    const requests = requestsOf(of, 40, SEED, null);
    const done = await serve(engine, how, requests, rehearsal.exponents, rules);
    const row = rowOf(of, null, how, { requests, ...done }, roundPricer, rehearsal);
    const tokens = done.served.reduce((sum, one) => sum + one.tokens.length, 0);
    expect(row.iterations.measured).toBe(row.iterations.simulated);
    expect(row.tokensPerIteration.measured).toBeCloseTo(tokens / done.ran.length, 9);
    expect(row.replay.iterations).toBe(done.ran.length);
    expect(row.replay.meanTpotSeconds.simulated).toBeCloseTo(row.replay.meanTpotSeconds.measured, 9);
    expect(row.replay).toMatchObject({ inverted: 0 });
    expect(row.preemptions.measured).toBe(row.preemptions.simulated);
  });

  test('has prices of its own operations: a round costs more than a step, and no more than its rows one by one', () => {
    const step = pricer.stepSeconds(batchOf(30));
    const round = roundPrice(of.c, datasheetPricer(rates, null), SEQUENCES, speculation)(30);
    // Drafts of half of the loops, and five rows in place of one.
    expect(round).toBeGreaterThan((speculation.draftTokens / 2 + 1) * step);
    expect(round).toBeLessThan((speculation.draftTokens + 1.05 * (speculation.draftTokens + 1)) * step);
  });

  test('prices that are a little off leave the order of a few pairs open', () => {
    let [decided, all] = [0, 0];
    for (let seed = SEED; seed < SEED + 5; seed++) {
      const capacity = capacityOf(options, pricer, requestsOf(of, 32, seed, null));
      const requests = requestsOf(of, 32, seed, 0.8 * capacity);
      const endsBy = (by: IterationPricer) => simulate(options, by, requests).ends;
      const served = endsBy(pricer).map((t) => ({ ...t, tokens: new Array<number>(t.outputTokens).fill(0) }));
      const others = Array.from({ length: 32 }, (_, i) => endsBy(disturbed(pricer, 0.15, [0.8, 1, 1.2], i)));
      decided += compare(served, endsBy(pricer), others).pairs;
      all += compare(served, endsBy(pricer)).pairs;
    }
    expect(decided).toBeLessThan(all);
    expect(decided).toBeGreaterThan(0.9 * all);
  });
});

describe('within a budget', () => {
  /** A decoder whose every call takes seconds of a clock that only it moves. */
  function timed(callSeconds: number, budgetSeconds: number) {
    let at = 0;
    const { engine: own, rules } = machine(SEED);
    const engine: SequenceEngine = {
      ...own,
      extend: (...args) => {
        at += callSeconds;
        return own.extend(...args);
      },
      step: (...args) => {
        at += callSeconds;
        return own.step(...args);
      },
    };
    const budget = new Budget(budgetSeconds, () => at);
    return { budget, serveWith: (cases = 1) => serveCase(engine, of, pricer, { ...rules, seed: SEED, budget }, cases) };
  }

  test('there are as many requests as end in time, never too few, and what is left out has its reason', async () => {
    for (const [callSeconds, runs] of [
      [0.01, [128, 48]],
      [0.05, 'fewer'],
      [0.12, 'few'],
      [0.6, []],
      [10, []],
    ] as const) {
      const { budget, serveWith } = timed(callSeconds, 90);
      const { rows, notRun, rehearsals } = await serveWith();
      const requests = rows.map((row) => row.requests);
      const where = `${callSeconds} s a call, seed ${SEED}: ${requests.join(', ')}`;
      // What has begun ends: an iteration is a step and a chunk of every sequence at most.
      expect(budget.spent, where).toBeLessThanOrEqual(1.2 * 90 + (SEQUENCES + 1) * callSeconds);
      expect(rows.length + notRun.length, where).toBe(2);
      if (runs === 'fewer') {
        expect(requests.length, where).toBe(2);
        expect(requests[0], where).toBeLessThan(128);
      } else if (runs === 'few') {
        // One, and the fewest requests of a second where the first left time for them.
        expect(requests[0], where).toBeLessThan(128);
        expect([[], [16]], where).toContainEqual(requests.slice(1));
      } else expect(requests, where).toEqual(runs);
      for (const count of requests) expect(count, where).toBeGreaterThanOrEqual(16);
      for (const row of rows) expect(row.iterations.measured).toBeGreaterThan(row.requests / SEQUENCES);
      for (const { reason } of notRun) expect(reason).toBe('the rest of the time budget was too short');
      expect(rehearsals.length === 0, where).toBe(callSeconds === 10);
    }
  });

  test('a case leaves time for those after it, unless they would have too few requests', () => {
    let at = 0;
    const budget = new Budget(100, () => at);
    budget.expect('serving decoder', 5);
    budget.expect('least serving run', 20);
    expect(caseSeconds(budget, 3)).toBe(30);
    at = 40;
    expect(caseSeconds(budget, 3)).toBe(27.5);
    at = 80;
    expect(caseSeconds(budget, 2)).toBe(20);
    at = 120;
    expect(caseSeconds(budget, 2)).toBe(0);
  });
});
