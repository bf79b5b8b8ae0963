/** What is called sure holds for other draws of the same traffic. */
import { expect, it } from 'vitest';
import { candidateOf } from '../../src/plan/ask/candidates.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { settle } from '../../src/serving/answer.js';
import { Service } from '../../src/serving/candidate.js';
import { findRate } from '../../src/serving/find-rate.js';
import { Load, Misses } from '../../src/serving/misses.js';
import { whole } from '../../src/serving/trial.js';
import { randomOf, SEED } from '../gpu/random.js';

const random = randomOf(SEED);
const uniform = (): number => random.whole(0, 1e6) / 1e6;

it(`the share that misses at most is seldom below the true one, in bursts too (seed ${SEED})`, () => {
  const requests = 1400;
  for (const burst of [1, 20]) {
    let wrong = 0;
    for (let run = 0; run < 200; run++) {
      const misses = new Misses(requests);
      let missing = false;
      for (let i = 0; i < requests; i++) {
        if (i % burst === 0) missing = uniform() < 0.05;
        misses.add(i, missing);
      }
      if (misses.atMost < 0.05) wrong++;
    }
    // 2.5 % of 200 are expected, a little more where bursts are few; 95 % bounds of one whole run would be wrong in 60.
    expect(wrong, `bursts of ${burst}`).toBeLessThan(24);
  }
});

it('nothing is sure of few requests, and a warm-up does not count', () => {
  const few = new Misses(40);
  for (let i = 0; i < 40; i++) few.add(i, false);
  expect(few.share).toBe(0);
  expect(few.atMost).toBeGreaterThan(0.05);
  const many = new Misses(700);
  for (let i = 0; i < 700; i++) many.add(i, i < 100);
  expect(many.share).toBe(0);
  expect(many.atMost).toBeLessThan(0.01);
  const grows = new Misses(7000);
  for (let i = 0; i < 7000; i++) grows.add(i, i >= 6000 && i < 6050);
  // One part has 5 %: more than 1 % may miss in the long run, though fewer did.
  expect(grows.share).toBeLessThan(0.01);
  expect(grows.atMost).toBeGreaterThan(0.01);
});

it('requests that come evenly and alike leave no room for other draws, random ones some', () => {
  const [even, drawn] = [new Load(700), new Load(700)];
  let time = 0;
  for (let i = 0; i < 700; i++) {
    even.add(i, i, 100, 10);
    drawn.add(i, (time -= Math.log(1 - uniform())), 100, 10);
  }
  expect(even.margin).toBeLessThan(0.01);
  expect(drawn.margin).toBeGreaterThan(0.01);
});

it(`rates that are called sure are met by other draws (seed ${SEED})`, { timeout: 120_000 }, async () => {
  const scenario = { device: 'a100-80', codec: ['full'] };
  const sources = await readSources(scenario);
  const drawOf = () => {
    const workload = { promptTokens: 512, outputTokens: 64, seed: random.whole(1, 1e6) };
    const { setting, plan } = settle({ ...scenario, workload, percentile: 95 }, sources, { skipBad: false });
    const row = plan.plans[0]!;
    return { setting, service: new Service(setting, candidateOf(setting.request, row.id)!, row) };
  };
  const misses = (rate: number): boolean => {
    const { setting, service } = drawOf();
    const { metrics } = service.run('high', setting.workload.source(rate, whole(setting, service)), () => false);
    return metrics.misses.share! > 0.05;
  };
  // One search may be unlucky, since it saw one draw; hardly ever half of them.
  const [searches, draws] = [8, 3];
  const missed = { found: 0, above: 0 };
  for (let run = 0; run < searches; run++) {
    const { setting, service } = drawOf();
    const { requestsPerSecond: found } = (await findRate(service, setting, () => Promise.resolve(false)))!;
    expect(found.low).toBeGreaterThan(0);
    for (let draw = 0; draw < draws; draw++) {
      if (misses(found.low)) missed.found++;
      if (misses(1.3 * found.low)) missed.above++;
    }
  }
  const all = searches * draws;
  expect(missed.found, 'of the rates that were found').toBeLessThan(all * 0.3);
  // Nor are they far below what draws meet.
  expect(missed.above, 'of rates 30 % above').toBeGreaterThan(all * 0.55);
});
