/**
 * Queues whose waiting times are known: with one token a request and one request at a time, a replica is a server with
 * given service times. Estimates lie within confidence intervals of independent runs.
 */
import { describe, expect, it } from 'vitest';
import { Outlook } from '../../src/serving/scheduler/outlook.js';
import { STATE, type Requests } from '../../src/serving/scheduler/requests.js';
import { exponential, gamma, streamOf, type Uniform } from '../../src/serving/workload/draws.js';
import { run } from '../../src/serving/engine.js';
import type { ReplicaOptions, ServerOptions } from '../../src/serving/scheduler/options.js';
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

/** First tokens and ends of requests where every iteration takes a second. */
function served(requests: readonly GivenRequest[], more: Partial<ServerOptions> = {}): [number, number][] {
  const seen = new Map<number, [number, number]>();
  run({
    server: { ...SERVER, ...more },
    source: given(requests),
    pricer: pricerOf(() => 1),
    onEnd: ({ number, arrival, ttftSeconds, e2elSeconds }) =>
      seen.set(number, [arrival + ttftSeconds, arrival + e2elSeconds]),
  });
  return requests.map((_, i) => seen.get(i)!);
}

describe('room for answers', () => {
  const share = { initial: 0.5, least: 0.25, steps: 10, mostTokens: 4096, ahead: 1 };
  /** Of blocks of 16 tokens an answer needs a little more than two beside its prompt. */
  const at = (time: number, outputTokens = 33): GivenRequest => ({ time, promptTokens: 16, outputTokens });
  const servedIn = (blocks: number, requests: readonly GivenRequest[], more = {}): [number, number][] =>
    served(requests, { blocks, answerShare: { ...share, ...more } });

  it('is kept in part of those that decode, whole of those that begin', () => {
    // The first has two blocks and keeps 32 · 0.475 / 16; each of the others needs 1 + 33 / 16.
    expect(servedIn(6, [at(0), at(0.5)])[1]).toEqual([34, 66]);
    expect(servedIn(7, [at(0), at(0.5)])[1]).toEqual([2, 34]);
    expect(servedIn(9, [at(0), at(0.5), at(0.5)])[2]![0]).toBe(34);
    expect(servedIn(10, [at(0), at(0.5), at(0.5)])[2]![0]).toBe(2);
    // Of a long answer no more counts than the most.
    expect(servedIn(7, [at(0, 90), at(0.5)])[1]![0]).toBe(91);
    expect(servedIn(7, [at(0, 90), at(0.5)], { mostTokens: 33 })[1]![0]).toBe(2);
  });

  it('is asked for again only when one has left', () => {
    // After twenty steps there is room for the second one. It was refused before, and is not looked at.
    const falls = { least: 0.05, steps: 5 };
    expect(servedIn(9, [at(0, 100), at(19.5, 65)], falls)[1]![0]).toBe(21);
    expect(servedIn(9, [at(0, 100), at(0.5, 65)], falls)[1]![0]).toBe(101);
  });

  it('is made for the next steps where a sequence gives way, but for the last one', () => {
    const none = { initial: 0, least: 0, mostTokens: 0 };
    const requests = [at(0), at(0.5), at(0.5)];
    expect(servedIn(7, requests, none)[1]).toEqual([2, 34]);
    // The third gives way for a step of the second, which gives way for the steps after it.
    expect(servedIn(7, requests, { ...none, ahead: 40 }).slice(0, 2)).toEqual([
      [1, 33],
      [2, 35],
    ]);
  });
});

it('room for answers is estimated anew by those that stay', () => {
  const requests = { output: [100, 300], state: [STATE.decode, STATE.decode] } as unknown as Requests;
  const options = { prefillOnly: false, blockTokens: 10 } as ReplicaOptions;
  const schedule = { options, requests, running: [0, 1], written: (slot: number) => [40, 60][slot]! };
  const outlook = new Outlook({ initial: 0.5, least: 0.1, steps: 4, mostTokens: 200, ahead: 20 }, schedule);
  const kept = (): number => outlook.kept() / (60 / 10 + 200 / 10);
  expect(kept()).toBeCloseTo(0.5);
  outlook.step(false);
  expect(kept()).toBeCloseTo(0.4);
  outlook.step(true);
  expect(kept()).toBeCloseTo((40 + 60 + 2 * 20) / 401);
  for (let i = 0; i < 9; i++) outlook.step(false);
  expect(kept()).toBeCloseTo(0.1);
  outlook.rest();
  expect(kept()).toBeCloseTo(0.5);
});

describe('asynchronous scheduling', () => {
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

  it('sees it no sooner among more requests than a store begins with', () => {
    const many = (count: number) => [
      ...Array.from({ length: count }, () => ({ time: 0, promptTokens: 1, outputTokens: 6 })),
      { time: 1.5, promptTokens: 1, outputTokens: 1 },
    ];
    for (const count of [1, 64, 100]) expect(served(many(count), { ...on, maxNumSeqs: 128 })[count]).toEqual([4, 4]);
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
