/** Rounds of proposals: how many are accepted, what a round costs, and that every request still gets its tokens. */
import { expect, test } from 'vitest';
import { MixedBatch } from '../../src/serving/scheduler/batch.js';
import type { LoopPricer } from '../../src/serving/price/loop-price.js';
import { run } from '../../src/serving/engine.js';
import type { Ended } from '../../src/serving/metrics.js';
import { roundSeconds, whereItPays } from '../../src/serving/price/loop-price.js';
import {
  acceptanceOf,
  acceptedOf,
  publishedAcceptance,
  tokensPerRound,
  type Speculation,
} from '../../src/serving/speculation.js';
import { randomOf, SEED, type Random } from '../gpu/random.js';
import { given, KNOTS, PLAIN_DEPTH, pricerOf, SERVER, type GivenRequest } from './harness.js';

const LOOPS = 4;

const speculationOf = (random: Random): Speculation => ({
  draftLoops: random.whole(1, LOOPS - 1),
  draftTokens: random.whole(1, 8),
  acceptance: random.whole(0, 1000) / 1000,
  source: null,
  seed: SEED,
});

/** A pass takes a second, 10 ms a row, and 1 ms for each reading of 100 cached tokens. */
const passOf = (rows: number, readings: number, length: number): number => 1 + 0.01 * rows + 1e-5 * readings * length;
const pricerWith = (readsTogether: boolean): LoopPricer => ({
  knots: KNOTS,
  readsTogether,
  pass: (batch: MixedBatch, rowsEach = 1) => passOf(batch.size * rowsEach, batch.size, batch.meanLength),
  outside: (begun, _tokens, ended) => 0.1 * begun + 0.2 * ended,
  prompts: (batch) => 0.001 * batch.chunks.total,
});

test('a share of accepted proposals is the acceptance that it comes from', () => {
  const random = randomOf(SEED);
  for (let i = 0; i < 200; i++) {
    const { acceptance, draftTokens } = speculationOf(random);
    const share = (tokensPerRound({ acceptance, draftTokens }) - 1) / draftTokens;
    expect(acceptanceOf(share, draftTokens), `seed ${SEED}`).toBeCloseTo(acceptance, 6);
  }
  const published = publishedAcceptance('ouro-1.4b', 2)!;
  expect(published.low).toBeLessThan(published.estimate);
  expect(published.estimate).toBeLessThan(published.high);
  expect(publishedAcceptance('ouro-1.4b', 3)).toBeNull();
  expect(publishedAcceptance(null, 2)).toBeNull();
});

test('so many are accepted on average', () => {
  const random = randomOf(SEED);
  for (let i = 0; i < 10; i++) {
    const s = speculationOf(random);
    let sum = 0;
    for (let n = 0; n < 4000; n++) sum += acceptedOf(s, n, i);
    // Five deviations of a mean of 4,000.
    expect(Math.abs(sum / 4000 + 1 - tokensPerRound(s)), `seed ${SEED}`).toBeLessThan(
      (5 * s.draftTokens) / 2 / 4000 ** 0.5,
    );
  }
});

/** So many sequences of 100 tokens. */
function batchOf(sequences: number): MixedBatch {
  const batch = new MixedBatch(KNOTS, 1);
  for (let i = 0; i < sequences; i++) batch.add(100);
  return batch;
}

/** The same, one request at a time, by a loop over its rounds. */
function alone(
  s: Speculation,
  readsTogether: boolean,
  number: number,
  { promptTokens, outputTokens }: GivenRequest,
): number {
  const { draftLoops: d, draftTokens } = s;
  let seconds = 0.001 * promptTokens;
  // The prompt gives the first token, and the cache holds all but the last.
  for (let emitted = 1; emitted < outputTokens;) {
    const length = promptTokens + emitted - 1;
    const k = Math.min(draftTokens, outputTokens - emitted - 1);
    const drafts = d * (k + 1) * passOf(1, 1, length);
    const verified = (LOOPS - d) * passOf(k + 1, readsTogether ? 1 : k + 1, length);
    const outside = k * 0.3 + 0.1 + 0.2 * (k + 1);
    seconds += drafts + verified + outside;
    emitted += 1 + acceptedOf(s, number, emitted);
  }
  return seconds;
}

const requestsOf = (random: Random): GivenRequest[] => {
  let time = 0;
  return Array.from({ length: 30 }, () => ({
    time: (time += 1e5 * random.whole(1, 9)),
    promptTokens: random.pick([1, 20, 60]),
    outputTokens: random.pick([1, 7, 40]),
  }));
};

/** @returns the ends of requests, in the order of their numbers */
function served(s: Speculation, pricer: LoopPricer, requests: readonly GivenRequest[]): Ended[] {
  const ended: Ended[] = [];
  const of = { probabilities: [0, 0, 0, 1], batching: 'loops', skippedKv: 'copy', ...PLAIN_DEPTH } as const;
  run({
    server: SERVER,
    source: given(requests),
    pricer: pricerOf(() => NaN),
    depth: { of, pricer, weightOf: () => NaN, inTurns: true, speculation: s },
    onEnd: (e) => ended.push({ ...e }),
  });
  return ended.sort((a, b) => a.number - b.number);
}

test('a request alone takes the time of its rounds', () => {
  for (let i = 0; i < 20; i++) {
    const random = randomOf(SEED + i);
    const s = speculationOf(random);
    const together = random.whole(0, 1) === 1;
    const requests = requestsOf(random);
    const ended = served(s, pricerWith(together), requests);
    expect(ended).toHaveLength(requests.length);
    for (const [n, e] of ended.entries())
      expect(e.e2elSeconds, `seed ${SEED + i}, request ${n}`).toBeCloseTo(alone(s, together, n, requests[n]!), 6);
  }
});

test('it pays from the acceptance, and up to the batch, where a round takes as long as its tokens one by one', () => {
  const random = randomOf(SEED);
  for (let i = 0; i < 20; i++) {
    const s = { ...speculationOf(random), acceptance: 0.8 + (0.2 * random.whole(0, 1000)) / 1000 };
    const pricer = pricerWith(true);
    const pays = whereItPays(s, LOOPS, pricer, { length: 100, sequences: 3, mostSequences: 500 });
    const gains = (n: number, acceptance: number): boolean => {
      const batch = batchOf(n);
      const step = LOOPS * pricer.pass(batch) + pricer.outside(n, 0, n, 0);
      return roundSeconds(s, LOOPS, pricer, batch, () => batch) < tokensPerRound({ ...s, acceptance }) * step;
    };
    if (pays.paysFromAcceptance === null) expect(gains(3, 1), `seed ${SEED}`).toBe(false);
    else {
      expect(gains(3, Math.min(1, pays.paysFromAcceptance + 0.002)), `seed ${SEED}`).toBe(true);
      if (pays.paysFromAcceptance > 0) expect(gains(3, pays.paysFromAcceptance - 0.002), `seed ${SEED}`).toBe(false);
    }
    const { paysUpToSequences: most } = pays;
    if (most > 0) expect(gains(most, s.acceptance), `seed ${SEED}`).toBe(true);
    if (most < 500) expect(gains(most + 1, s.acceptance), `seed ${SEED}`).toBe(false);
  }
});
