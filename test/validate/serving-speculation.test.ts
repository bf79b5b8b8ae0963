/** A speculating run on a decoder that only counts: its times are the prices, changed in a way that is known. */
import { describe, expect, test } from 'vitest';
import { Budget } from '../../src/io/budget.js';
import { datasheetPricer } from '../../src/cost/pricers.js';
import { priceStep } from '../../src/cost/latency.js';
import { servingGrid, servingModel } from '../../src/validate/grid.js';
import { outsideTolerance, speculationCheck } from '../../src/validate/report.js';
import {
  SPECULATION_TOLERANCE,
  speculateFor,
  speculationPrices,
  type RoundEngine,
  type SpeculatedPart,
} from '../../src/validate/serving-speculation.js';
import { randomOf, SEED } from '../gpu/random.js';

const of = servingGrid({ geometry: servingModel(true, null), software: true, bindingBytes: 2 ** 27 })[0]!;
const DRAFT = { draftLoops: 2, draftTokens: 4 };
const rates = { bytesPerSecond: 1e10, f32FlopsPerSecond: 4e10, matrixFlopsPerSecond: null };
const pricer = datasheetPricer(rates, null);
const price = speculationPrices(of.c, pricer, of.sequences, DRAFT);

/** Factors of the parts while the first runs rehearse, and after so many rounds. */
function engine(factor: (part: SpeculatedPart, round: number) => number): RoundEngine {
  const lengths = new Array<number>(of.sequences).fill(0);
  let rounds = 0;
  const took = (part: SpeculatedPart): number => factor(part, rounds) * price(part, lengths);
  return {
    lengths,
    extend: (sequence, tokens) => {
      lengths[sequence] = tokens.length;
      return Promise.resolve({ token: 1, seconds: 0 });
    },
    forget: (sequence) => void (lengths[sequence] = 0),
    speculate: (tokens, joins = () => true, accept = () => 0) => {
      const [draftSeconds, verifySeconds] = [took('draft'), took('verify')];
      rounds++;
      const made = tokens.map((_, i) => (joins(i) ? new Array<number>(accept(i) + 1).fill(2) : []));
      made.forEach((own, i) => (lengths[i] = lengths[i]! + own.length));
      return Promise.resolve({ tokens: made, proposed: made, draftSeconds, verifySeconds });
    },
    step: (tokens) => Promise.resolve({ tokens: Uint32Array.from(tokens), seconds: took('step') }),
  };
}

const rules = (seconds = 1e9) => {
  const random = randomOf(SEED);
  const run = (): Promise<number> => Promise.resolve(random.whole(90, 110) / 100);
  return {
    seed: SEED,
    watch: { run, between: () => 1 },
    stopped: () => false,
    budget: new Budget(seconds, () => 0),
  };
};

describe(`a run that speculates (LLA_SIM_SEED=${SEED})`, () => {
  test('is predicted by what its rehearsal took, part by part, whatever the calibration says', async () => {
    const factors = { draft: 1.7, verify: 0.6, step: 1.2 };
    const run = (await speculateFor(
      engine((part) => factors[part]),
      of,
      price,
      rules(),
    ))!;
    for (const part of ['draft', 'verify', 'step'] as const) {
      expect(run.parts[part].measured / run.parts[part].calibrated).toBeCloseTo(factors[part], 9);
      expect(run.parts[part].priced / run.parts[part].measured).toBeCloseTo(1, 9);
    }
    expect(run.speedUp.predicted).toBeCloseTo(run.speedUp.measured, 9);
    expect(run.tokensPerRound.measured).toBeCloseTo(run.tokens / run.rounds, 12);
    // Drawn as the simulation draws: about as many tokens as its formula has.
    expect(Math.abs(run.tokensPerRound.measured / run.tokensPerRound.expected - 1)).toBeLessThan(0.4);
    expect(speculationCheck(run, true)).toMatchObject({ status: 'holds', name: 'serving-speculation' });
  });

  test('whose rounds become slower than in the rehearsal is outside the tolerance', async () => {
    const slower = 1 + 3 * SPECULATION_TOLERANCE;
    const steady = await speculateFor(
      engine(() => 1),
      of,
      price,
      rules(),
    );
    const rounds = steady!.total.count;
    const found = await speculateFor(
      engine((part, round) => (part === 'verify' && round > rounds ? slower : 1)),
      of,
      price,
      rules(),
    );
    const check = speculationCheck(found, true);
    expect(check.status).toBe('failed');
    expect(outsideTolerance([check])).toBe(true);
    expect(speculationCheck(null, true).status).toBe('not-checked');
  });

  test('is told where there is no time for more than one run', async () => {
    const found = await speculateFor(
      engine(() => 1),
      of,
      price,
      rules(0),
    );
    // The least that can be compared is made all the same.
    expect(found?.calls.length).toBeGreaterThan(0);
    const none = await speculateFor(
      engine(() => 1),
      of,
      price,
      { ...rules(), stopped: () => true },
    );
    expect(none).toBeNull();
  });

  test(
    'has prices of its own operations: drafts cost less than steps, verification no more than its ' + 'rows one by one',
    () => {
      const lengths = new Array<number>(of.sequences).fill(30);
      const step = price('step', lengths);
      expect(step).toBeCloseTo(priceStep(of.c, pricer, of.sequences, 30).estimate, 12);
      const drafts = price('draft', lengths) / DRAFT.draftTokens;
      expect(drafts).toBeLessThan(step);
      // Half of the loops, and the head.
      expect(drafts).toBeGreaterThan(step / 2);
      expect(price('verify', lengths)).toBeGreaterThan(step);
      // Where arithmetic is the limit, rows cost what they cost one by one.
      expect(price('verify', lengths)).toBeLessThan(1.05 * (DRAFT.draftTokens + 1) * step);
    },
  );
});
