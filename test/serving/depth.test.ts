/** Tokens that leave early: against the schedule that counts, and what a model must give. */
import { describe, expect, test } from 'vitest';
import type { MixedBatch } from '../../src/serving/scheduler/batch.js';
import { recordedShares } from '../../src/plan/ask/depth-trace.js';
import { allLoops, DepthDraws, type Depth } from '../../src/serving/depth.js';
import { meanLoops } from '../../src/stacks/runtime-pricer.js';
import type { LoopPricer } from '../../src/serving/price/loop-price.js';
import { run, type RunResult } from '../../src/serving/engine.js';
import type { Ended } from '../../src/serving/metrics.js';
import type { ServerOptions } from '../../src/serving/scheduler/options.js';
import { randomOf, SEED, type Random } from '../gpu/random.js';
import { given, KNOTS, PLAIN_DEPTH, pricerOf, SERVER, type GivenRequest } from './harness.js';

const LOOPS = 4;

/** Seconds of a pass over these cached lengths and prompt tokens, and what comes beside it. */
const passSeconds = (lengths: readonly number[], promptTokens: number): number =>
  1e-3 * (1 + 0.03 * lengths.length + 0.01 * promptTokens) + 1e-7 * lengths.reduce((a, b) => a + b, 0);
const outsideSeconds = (begun: number, promptTokens: number, ended: number): number =>
  1e-4 * (1 + 0.1 * begun + 0.05 * promptTokens + 0.2 * ended);
const SPLIT = { prefillReplicas: 2, bytesPerToken: 1e5, capTokens: Infinity, linkBytesPerSecond: 1e9 };
const weightOf = (loops: number): number => (1 + loops) / (1 + LOOPS);

const lengthsOf = ({ size, meanLength }: MixedBatch): number[] => new Array<number>(size).fill(meanLength);
const LOOP_PRICER: LoopPricer = {
  knots: KNOTS,
  pass: (batch) => passSeconds(lengthsOf(batch), batch.chunks.total),
  outside: outsideSeconds,
  prompts: () => NaN,
  readsTogether: true,
};
const TOGETHER = { weightOf, inTurns: false, speculation: null } as const;

const requestsOf = (random: Random): GivenRequest[] => {
  let time = 0;
  return Array.from({ length: 40 }, () => ({
    time: (time += random.whole(0, 9000) * 1e-6 + 1e-7),
    promptTokens: random.whole(1, 60),
    outputTokens: random.whole(1, 40),
  }));
};

const serverOf = (random: Random): ServerOptions => {
  const maxNumSeqs = random.whole(1, 9);
  const blockTokens = random.pick([1, 4, 16]);
  const sequenceBlocks = random.pick([0, 0, 2]);
  return {
    ...SERVER,
    maxNumSeqs,
    maxNumBatchedTokens: random.whole(Math.max(8, maxNumSeqs), 80),
    blockTokens,
    unitTokens: blockTokens,
    sequenceBlocks,
    blocks: Math.ceil(100 / blockTokens) + sequenceBlocks + random.whole(0, 12),
  };
};

function ends(server: ServerOptions, requests: readonly GivenRequest[], depth: Depth | null): [Ended[], RunResult] {
  const all: Ended[] = [];
  const result = run({
    server,
    source: given(requests),
    pricer: pricerOf((batch) => {
      const { size, chunks } = batch;
      const passes = LOOPS * passSeconds(lengthsOf(batch), chunks.total);
      return passes + outsideSeconds(size, chunks.total, size + chunks.ending);
    }),
    ...(depth ? { depth: { of: depth, pricer: LOOP_PRICER, ...TOGETHER } } : {}),
    onEnd: (ended) => all.push({ ...ended }),
  });
  return [all.sort((a, b) => a.number - b.number), result];
}

const depthOf = (probabilities: readonly number[], of: Partial<Depth>): Depth => ({
  probabilities,
  batching: 'loops',
  skippedKv: 'recompute',
  ...PLAIN_DEPTH,
  ...of,
});

describe(`tokens that leave early (LLA_SIM_SEED=${SEED})`, () => {
  test('where none does, batching by steps is the replica without depth', () => {
    const random = randomOf(SEED);
    let preemptions = 0;
    for (let scenario = 0; scenario < 30; scenario++) {
      const policy = random.pick(['fcfs', 'shortest-prompt'] as const);
      const server = {
        ...serverOf(random),
        policy,
        chunkedPrefill: random.pick([true, false]),
        disaggregation: random.pick([null, SPLIT]),
      };
      const requests = requestsOf(random);
      const [plain] = ends(server, requests, null);
      const [deep, { blocksInUse }] = ends(server, requests, depthOf([0, 0, 0, 1], { batching: 'steps' }));
      expect(deep.length).toBe(plain.length);
      expect(blocksInUse).toBe(0);
      for (const [i, end] of deep.entries()) {
        expect(end.e2elSeconds, `scenario ${scenario}, request ${i}`).toBeCloseTo(plain[i]!.e2elSeconds, 9);
        expect(end.ttftSeconds).toBeCloseTo(plain[i]!.ttftSeconds, 9);
        expect(end.preemptions).toBe(plain[i]!.preemptions);
        preemptions += end.preemptions;
      }
    }
    expect(preemptions).toBeGreaterThan(20);
  });

  test('the replica that decodes gives the first token, after the transfer', () => {
    const random = randomOf(SEED + 2);
    for (let scenario = 0; scenario < 20; scenario++) {
      const server = { ...serverOf(random), disaggregation: SPLIT };
      const requests = requestsOf(random);
      const depth = random.pick([null, depthOf([0.25, 0.25, 0.25, 0.25], { skippedKv: 'copy' })]);
      const [all, { blocksInUse }] = ends(server, requests, depth);
      expect(blocksInUse).toBe(0);
      for (const [i, end] of all.entries()) {
        const transfer = (requests[end.number]!.promptTokens * SPLIT.bytesPerToken) / SPLIT.linkBytesPerSecond;
        const what = `seed ${SEED}, scenario ${scenario}, request ${i}`;
        expect(end.ttftSeconds, what).toBeGreaterThan(transfer + end.queueSeconds);
      }
    }
  });

  test('depths are drawn with the given shares, by request and token alone', () => {
    const probabilities = [0.1, 0.2, 0.3, 0.4];
    const draws = new DepthDraws({ probabilities }, SEED);
    const counts = [0, 0, 0, 0];
    for (let request = 0; request < 100; request++)
      for (let token = 0; token < 100; token++) counts[draws.of(request, token) - 1]!++;
    for (const [i, p] of probabilities.entries()) expect(Math.abs(counts[i]! / 1e4 - p)).toBeLessThan(0.025);
    expect(meanLoops(probabilities)).toBeCloseTo(3, 12);
    expect(meanLoops(allLoops(LOOPS).probabilities)).toBe(LOOPS);
  });

  test('recorded depths are taken answer by answer, and begin again where an answer or the file is shorter', () => {
    const random = randomOf(SEED + 3);
    const recorded = Array.from({ length: random.whole(1, 5) }, () =>
      Uint8Array.from({ length: random.whole(1, 9) }, () => random.whole(1, LOOPS)),
    );
    const draws = new DepthDraws({ probabilities: recordedShares(recorded, LOOPS), recorded }, SEED);
    for (let request = 0; request < 12; request++) {
      const answer = recorded[request % recorded.length]!;
      for (let token = 0; token < 20; token++)
        expect(draws.of(request, token), `seed ${SEED}`).toBe(answer[token % answer.length]);
    }
    const all = recorded.flatMap((answer) => [...answer]);
    expect(meanLoops(recordedShares(recorded, LOOPS))).toBeCloseTo(all.reduce((a, b) => a + b, 0) / all.length, 9);
  });
});

test('prompts and tokens in turns: at most one batch of chunks between two passes; skipped loops are told', () => {
  for (let i = 0; i < 30; i++) {
    const random = randomOf(SEED + i);
    const requests = requestsOf(random);
    const server = serverOf(random);
    const depth = depthOf([0.1, 0.4, 0.3, 0.2], { skippedKv: 'copy' });
    let [skippedLoops, chunksInARow, promptTokens] = [0, 0, 0];
    const pricer: LoopPricer = {
      knots: KNOTS,
      readsTogether: true,
      pass: (batch) => {
        expect(batch.chunks.total, `seed ${SEED}`).toBe(0);
        expect(batch.size, `seed ${SEED}`).toBeGreaterThan(0);
        chunksInARow = 0;
        return passSeconds(lengthsOf(batch), 0);
      },
      outside: (begun, tokens, ended, skipped) => {
        skippedLoops += skipped;
        return outsideSeconds(begun, tokens, ended);
      },
      prompts: (batch) => {
        expect(batch.size, `seed ${SEED}`).toBe(0);
        expect(batch.chunks.total, `seed ${SEED}`).toBeLessThanOrEqual(server.maxNumBatchedTokens);
        promptTokens += batch.chunks.total;
        // Where nothing decodes yet, chunks follow each other.
        if (decoding > 0) expect(++chunksInARow, `seed ${SEED}`).toBeLessThanOrEqual(1);
        return LOOPS * passSeconds([], batch.chunks.total);
      },
    };
    let decoding = 0;
    const watched: LoopPricer = { ...pricer, pass: (batch) => ((decoding = batch.size), pricer.pass(batch)) };
    const result = run({
      server,
      source: given(requests),
      pricer: pricerOf(() => 1),
      depth: { of: depth, pricer: watched, ...TOGETHER, inTurns: true },
      onEnd: () => (decoding = 0),
    });
    expect(result.finished && result.blocksInUse === 0, `seed ${SEED}`).toBe(true);
    if (result.metrics.preemptions > 0) continue;
    expect(promptTokens, `seed ${SEED}`).toBe(requests.reduce((sum, r) => sum + r.promptTokens, 0));
    const draws = new DepthDraws(depth, SEED);
    let left = 0;
    // The first token comes from the prompt.
    requests.forEach(({ outputTokens }, n) => {
      for (let token = 1; token < outputTokens; token++) left += LOOPS - draws.of(n, token);
    });
    expect(skippedLoops, `seed ${SEED}`).toBe(left);
  }
});
