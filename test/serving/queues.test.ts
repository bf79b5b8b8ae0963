/**
 * Queues whose waiting times are known: with one token a request and one request at a time, a replica is a server with
 * given service times. Estimates lie within confidence intervals of independent runs.
 */
import { describe, expect, it } from 'vitest';
import { exponential, gamma, streamOf, type Uniform } from '../../src/serving/workload/draws.js';
import { run } from '../../src/serving/engine.js';
import type { ServerOptions } from '../../src/serving/scheduler/options.js';
import { given, pricerOf, SERVER, type GivenRequest } from './harness.js';

const RUNS = 12;
const REQUESTS = 8000;
/** Student's t for 99.9 % with 11 degrees of freedom. */
const T = 4.44;

function* poisson(rate: number, uniform: Uniform): Generator<GivenRequest> {
  let time = 0;
  for (let i = 0; i < REQUESTS; i++) {
    time += exponential(uniform) / rate;
    yield { time, promptTokens: 1, outputTokens: 1 };
  }
}

/** Mean waiting times of independent runs. */
function waits(rate: number, replicas: number, service: (uniform: Uniform) => number): number[] {
  return Array.from({ length: RUNS }, (_, seed) => {
    const serving = streamOf(seed, 7);
    const { metrics } = run({
      server: { ...SERVER, maxNumSeqs: 1, replicas, router: 'shared-queue' },
      source: given(poisson(rate, streamOf(seed, 8))),
      pricer: pricerOf(() => service(serving)),
    });
    expect(metrics.completed).toBe(REQUESTS);
    return metrics.queue.mean!;
  });
}

/** Requests that come at once, whose prompts end at once. */
function sent(prefillReplicas: number, replicas: number, router: ServerOptions['router'] = 'round-robin'): number[] {
  const ends: number[] = [];
  const disaggregation = { prefillReplicas, bytesPerToken: 10, capTokens: Infinity, linkBytesPerSecond: 100 };
  run({
    server: { ...SERVER, maxNumSeqs: 8, replicas, router, disaggregation },
    source: given(Array.from({ length: 6 }, () => ({ time: 0, promptTokens: 20, outputTokens: 2 }))),
    pricer: pricerOf(() => 1e-6),
    onEnd: ({ e2elSeconds }) => ends.push(Math.round(e2elSeconds * 1e3) / 1e3),
  });
  return ends;
}

function expectMean(values: readonly number[], wanted: number): void {
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1);
  const half = T * Math.sqrt(variance / values.length);
  expect(Math.abs(mean - wanted), `mean wait ${mean} ± ${half}, theory ${wanted}`).toBeLessThan(half);
  // The interval itself says something.
  expect(half).toBeLessThan(0.25 * wanted);
}

/** Probability that all of `c` servers are busy, at `a` = λ/μ. */
function erlangC(c: number, a: number): number {
  let sum = 0;
  let term = 1;
  for (let k = 0; k < c; k++) {
    sum += term;
    term *= a / (k + 1);
  }
  const last = term / (1 - a / c);
  return last / (sum + last);
}

describe('waiting times', () => {
  const rho = 0.7;
  it('M/M/1', () => expectMean(waits(rho, 1, exponential), rho / (1 - rho)));
  it('M/D/1', () =>
    expectMean(
      waits(rho, 1, () => 1),
      rho / (2 * (1 - rho)),
    ));
  it('M/G/1 (Pollaczek–Khinchine)', () => {
    const shape = 0.5;
    expectMean(
      waits(rho, 1, (uniform) => gamma(uniform, shape)),
      (rho * (1 + 1 / shape)) / (2 * (1 - rho)),
    );
  });
  it('M/M/c', () => {
    const c = 3;
    expectMean(waits(rho * c, c, exponential), erlangC(c, rho * c) / (c * (1 - rho)));
  });
});

describe('caches that are sent, 2 s each', () => {
  it('leave a replica, and reach one, one after another', () => {
    expect(sent(1, 1)).toEqual([2, 4, 6, 8, 10, 12]);
    // One sends.
    expect(sent(1, 3)).toEqual([2, 4, 6, 8, 10, 12]);
    // One receives.
    expect(sent(3, 1)).toEqual([2, 4, 6, 8, 10, 12]);
    expect(sent(2, 2).at(-1)).toBe(6);
    expect(sent(1, 3, 'shared-queue')).toEqual([2, 4, 6, 8, 10, 12]);
  });
});

describe('asynchronous scheduling', () => {
  /** First tokens and ends of requests where every iteration takes a second. */
  const served = (requests: readonly GivenRequest[], more: Partial<ServerOptions> = {}): [number, number][] => {
    const seen = new Map<number, [number, number]>();
    run({
      server: { ...SERVER, ...more },
      source: given(requests),
      pricer: pricerOf(() => 1),
      onEnd: ({ number, arrival, ttftSeconds, e2elSeconds }) =>
        seen.set(number, [arrival + ttftSeconds, arrival + e2elSeconds]),
    });
    return requests.map((_, i) => seen.get(i)!);
  };
  const on = { asyncScheduling: true };

  it('sees a request of a running iteration in the one after the next, and at once where it is idle', () => {
    const requests = [
      { time: 0, promptTokens: 20, outputTokens: 6 },
      { time: 1.5, promptTokens: 20, outputTokens: 1 },
    ];
    expect(served(requests)).toEqual([
      [1, 6],
      [3, 3],
    ]);
    expect(served(requests, on)).toEqual([
      [1, 6],
      [4, 4],
    ]);
    // The first ends as the second comes: nothing was scheduled after it.
    const apart = [{ time: 0, promptTokens: 20, outputTokens: 2 }, requests[1]!];
    expect(served(apart, on)).toEqual(served(apart));
    expect(served([requests[1]!], on)).toEqual([[2.5, 2.5]]);
  });

  it('gives a place that became free to a request of the iteration after the next', () => {
    const requests = [
      { time: 0, promptTokens: 20, outputTokens: 2 },
      { time: 0, promptTokens: 20, outputTokens: 9 },
      { time: 0, promptTokens: 20, outputTokens: 1 },
    ];
    // By places, and by blocks: two requests fill them.
    for (const few of [{ maxNumSeqs: 2 }, { blocks: 4, reserveFullPrompt: true }]) {
      expect(served(requests, few)[2]).toEqual([3, 3]);
      expect(served(requests, { ...few, ...on })[2]).toEqual([4, 4]);
    }
  });
});
