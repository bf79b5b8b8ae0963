/**
 * What holds in every run, whatever the policies: each request ends once, blocks that are taken are given back, the
 * cache is never fuller than it is, Little's law.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { streamOf } from '../../src/serving/workload/draws.js';
import { run, type RunResult } from '../../src/serving/engine.js';
import { waitingShares } from '../../src/serving/figures.js';
import type { Ended } from '../../src/serving/metrics.js';
import type { ServerOptions } from '../../src/serving/scheduler/options.js';
import { SERVER_SETTINGS } from '../../src/schema/serving.js';
import { SEED } from '../gpu/random.js';
import { given, pricerOf, SERVER, type GivenRequest } from './harness.js';

/** Requests at random, some far apart, some at once; with sessions or hash ids where blocks are shared. */
function requestsOf(seed: number, count: number, sharing: boolean): GivenRequest[] {
  const uniform = streamOf(seed, 3);
  let time = 0;
  return Array.from({ length: count }, (_, i) => {
    if (uniform() < 0.7) time += 0.03 * uniform();
    const promptTokens = 1 + Math.floor(uniform() * (uniform() < 0.2 ? 900 : 90));
    const family = Math.floor(uniform() * 4);
    const hashes = Array.from({ length: Math.floor(promptTokens / 16) }, (_, k) =>
      k < 6 ? family * 1000 + k : (i + 10) * 1000 + k,
    );
    return {
      time,
      promptTokens,
      outputTokens: 1 + Math.floor(uniform() * 120),
      hashes: sharing ? hashes : null,
    };
  });
}

const price = pricerOf((batch) => {
  const { chunks } = batch;
  const size = batch.paused ? 0 : batch.size;
  return 1e-3 * (1 + 0.02 * size + 0.01 * chunks.total) + 1e-7 * size * batch.meanLength;
});

const server = fc.record({
  maxNumSeqs: fc.constantFrom(1, 3, 16, 64),
  maxNumBatchedTokens: fc.constantFrom(64, 100, 512),
  chunkedPrefill: fc.boolean(),
  promptsFirst: fc.boolean(),
  batchWait: fc.constantFrom(null, { iterations: 3, tokens: 50 }, { iterations: 20, tokens: 64 }),
  blocks: fc.constantFrom(70, 90, 200, 1000),
  blockTokens: fc.constantFrom(16, 32),
  sequenceBlocks: fc.constantFrom(0, 0, 1, 3),
  capTokens: fc.constantFrom(Infinity, Infinity, 64, 256),
  policy: fc.constantFrom(...SERVER_SETTINGS.policy.choices),
  router: fc.constantFrom(...SERVER_SETTINGS.router.choices),
  replicas: fc.constantFrom(1, 1, 3),
  reserveFullPrompt: fc.boolean(),
  reserveAnswer: fc.boolean(),
  answerShare: fc.constantFrom(null, null, { initial: 0.7, least: 0.1, steps: 8, mostTokens: 12, ahead: 20 }),
  split: fc.boolean(),
  sharing: fc.boolean(),
  seed: fc.nat(1e6),
});
type Drawn = typeof server extends fc.Arbitrary<infer T> ? T : never;

function optionsOf(d: Drawn): ServerOptions {
  return {
    ...SERVER,
    ...d,
    unitTokens: d.blockTokens,
    prefixCaching: d.sharing && d.capTokens === Infinity,
    disaggregation: d.split
      ? { prefillReplicas: 2, bytesPerToken: 1e5, capTokens: d.capTokens, linkBytesPerSecond: 1e9 }
      : null,
  };
}

function runOf(d: Drawn, count = 60): { result: RunResult; ended: Ended[]; requests: GivenRequest[] } {
  const requests = requestsOf(d.seed, count, d.sharing);
  const ended: Ended[] = [];
  const result = run({
    server: optionsOf(d),
    source: given(requests),
    pricer: price,
    onEnd: (e) => ended.push(e),
  });
  return { result, ended, requests };
}

describe('every run', () => {
  it('ends each request once, gives all blocks back, and obeys Little', () => {
    let preempted = 0;
    let hits = 0;
    fc.assert(
      fc.property(server, (d) => {
        const { result, ended, requests } = runOf(d);
        const { metrics: m } = result;
        preempted += m.preemptions;
        hits += m.hitTokens;
        expect(result.finished).toBe(true);
        expect(m.completed + m.rejected).toBe(requests.length);
        expect(new Set(ended.map((e) => e.number)).size).toBe(m.completed);
        expect(result.blocksInUse).toBe(0);
        expect(m.mostBlocks).toBeLessThanOrEqual(d.blocks);
        expect(m.mostSequences).toBeLessThanOrEqual(d.maxNumSeqs);
        // Every output token but each request's first follows another.
        expect(m.itl.count).toBe(m.outputTokens - m.completed);
        expect(m.itl.total).toBeCloseTo(
          ended.reduce((sum, e) => sum + e.e2elSeconds - e.ttftSeconds, 0),
          6,
        );
        expect(m.systemSeconds).toBeCloseTo(m.e2el.total, 6);
        for (const e of ended) {
          expect(e.queueSeconds).toBeGreaterThanOrEqual(0);
          expect(e.ttftSeconds).toBeGreaterThan(e.queueSeconds);
          expect(e.e2elSeconds).toBeGreaterThanOrEqual(e.ttftSeconds);
        }
      }),
      { seed: SEED, numRuns: 150 },
    );
    // The scenarios reach what they are about.
    expect(preempted).toBeGreaterThan(5);
    expect(hits).toBeGreaterThan(1000);
  });

  it('gives the same numbers again', () => {
    fc.assert(
      fc.property(server, (d) => {
        expect(runOf(d).ended).toEqual(runOf(d).ended);
      }),
      { seed: SEED, numRuns: 15 },
    );
  });
});

it('requests that come at once to a server of one sequence wait for that alone', () => {
  const requests = Array.from({ length: 5 }, () => ({ time: 0, promptTokens: 8, outputTokens: 20 }));
  const { metrics } = run({ server: { ...SERVER, maxNumSeqs: 1 }, source: given(requests), pricer: price });
  const shares = waitingShares(metrics);
  // But for the iterations in which another one ends.
  expect(shares['max-num-seqs']).toBeGreaterThan(0.95);
  expect(shares['max-num-seqs'] + shares.iteration).toBeCloseTo(1, 9);
});
