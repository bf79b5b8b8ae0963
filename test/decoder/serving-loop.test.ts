/** The serving loop without a GPU: its tokens, whatever its schedule (test/serving/scheduler.test.ts) does. */
import { describe, expect, test } from 'vitest';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import { decoderEngine } from '../../src/decoder/gpu/serving-engine.js';
import { drive, type TimedRequest } from '../../src/decoder/serving/drive.js';
import { ServingLoop, type LoopOptions, type SequenceEngine } from '../../src/decoder/serving/loop.js';
import { acceptedOf, type Speculation } from '../../src/serving/speculation.js';
import { simulate } from '../../src/validate/serving-requests.js';
import { randomOf, SEED, type Random } from '../gpu/random.js';

/**
 * Sequences that only count. The token after a text is the sum of its tokens, modulo 997.
 * @param speculation of which as many proposals are right as the simulation draws
 */
function counting(sequences: number, contextTokens: number, speculation?: Speculation): SequenceEngine {
  const of = Array.from({ length: sequences }, () => ({ request: 0, made: 0 }));
  const texts = Array.from({ length: sequences }, (): number[] => []);
  const next = (text: readonly number[]): number => text.reduce((a, b) => a + b, 0) % 997;
  return {
    sequences,
    contextTokens,
    ...(speculation ? { draft: speculation } : {}),
    extend: (sequence, tokens, ends) => {
      const text = texts[sequence]!;
      if (ends) of[sequence]!.made++;
      text.push(...tokens);
      return Promise.resolve({ token: ends ? next(text) : null, seconds: 0 });
    },
    step: (tokens, joins) => {
      const round = (text: number[], i: number): number[] => {
        const { request, made } = of[i]!;
        const own: number[] = [];
        const accepted = speculation ? acceptedOf(speculation, request, made) : 0;
        for (let last = tokens[i]!; own.length <= accepted; last = own.at(-1)!) {
          text.push(last);
          own.push(next(text));
        }
        of[i]!.made += own.length;
        return own;
      };
      return Promise.resolve({ tokens: texts.map((text, i) => (joins(i) ? round(text, i) : [])), seconds: 0 });
    },
    forget: (sequence, request, made) => {
      texts[sequence]!.length = 0;
      of[sequence] = { request, made };
    },
  };
}

const OPTIONS: LoopOptions = {
  maxNumBatchedTokens: 32,
  chunkedPrefill: true,
  blockTokens: 4,
  blocks: 30,
  capTokens: Infinity,
};

/** So many requests that come one after the other. */
function requestsOf(random: Random, count: number): TimedRequest[] {
  let time = 0;
  return Array.from({ length: count }, (_, id) => ({
    id,
    // Exact in binary, so that some come at the very end of an iteration.
    time: (time += random.whole(0, 200) / 64),
    prompt: Array.from({ length: random.whole(1, 40) }, () => random.whole(0, 999)),
    maxTokens: random.whole(1, 40),
  }));
}

describe(`the serving loop (LLA_SIM_SEED=${SEED})`, () => {
  test('gives the tokens that a request alone has, preempted or not; ends early; is cancelled', async () => {
    let preempted = 0;
    for (let n = 1; n <= 8; n++) {
      const random = randomOf(SEED + n);
      const requests: TimedRequest[] = Array.from({ length: 20 }, (_, id) => ({
        id,
        time: 0,
        prompt: Array.from({ length: random.whole(1, 40) }, () => random.whole(0, 999)),
        maxTokens: random.whole(1, 40),
      }));
      const options = {
        ...OPTIONS,
        chunkedPrefill: random.pick([true, false]),
        capTokens: random.pick([Infinity, 24]),
      };
      const blocks = Math.ceil(Math.min(80, options.capTokens) / options.blockTokens) + random.whole(0, 8);
      const served = await drive(new ServingLoop(counting(5, 128), { ...options, blocks }), requests, () => 1);
      expect(served).toHaveLength(requests.length);
      preempted += served.filter(({ preemptions }) => preemptions > 0).length;
      for (const { id, tokens } of served) {
        const { prompt, maxTokens } = requests[id]!;
        const text = [...prompt];
        for (let i = 0; i < maxTokens; i++) text.push(text.reduce((a, b) => a + b, 0) % 997);
        expect(tokens, `request ${id}`).toEqual(text.slice(prompt.length));
      }
    }
    expect(preempted, `seed ${SEED}`).toBeGreaterThan(0);
    const loop = new ServingLoop(counting(1, 128), OPTIONS);
    loop.submit({ id: 1, prompt: [5], maxTokens: 9, endTokens: [5, 10] });
    loop.submit({ id: 2, prompt: [7], maxTokens: 9 });
    expect((await loop.step())?.tokens).toEqual([{ id: 1, token: 5, ended: true }]);
    expect((await loop.step())?.tokens).toEqual([{ id: 2, token: 7, ended: false }]);
    expect(() => loop.submit({ id: 2, prompt: [1], maxTokens: 1 })).toThrow('being served already');
    expect(() => loop.submit({ id: 3, prompt: [1], maxTokens: 500 })).toThrow('more than the cache holds');
    expect(loop.cancel(2)).toBe(true);
    expect(loop.cancel(2)).toBe(false);
    expect(await loop.step()).toBeNull();
    loop.submit({ id: 2, prompt: [7], maxTokens: 1 });
    expect((await loop.step())?.tokens).toEqual([{ id: 2, token: 7, ended: true }]);
  });

  test('speculates: the same tokens, in the iterations that are simulated with the same acceptances', async () => {
    let [preempted, fewer] = [0, 0];
    for (let i = 0; i < 20; i++) {
      const random = randomOf(SEED + i);
      const speculation: Speculation = {
        draftLoops: 1,
        draftTokens: random.whole(1, 6),
        acceptance: random.whole(0, 100) / 100,
        source: null,
        seed: SEED,
      };
      const requests = requestsOf(random, 30);
      const options = { ...OPTIONS, chunkedPrefill: random.pick([true, false]), blocks: 20 + random.whole(0, 15) };
      const serve = async (own?: Speculation) => {
        let iterations = 0;
        const served = await drive(new ServingLoop(counting(5, 86, own), options), requests, () => {
          iterations++;
          return 1;
        });
        return { iterations, served };
      };
      const plain = await serve();
      const { iterations, served } = await serve(speculation);
      const texts = (of: typeof served) => new Map(of.map(({ id, tokens }) => [id, tokens]));
      expect(texts(served), `seed ${SEED + i}`).toEqual(texts(plain.served));
      const pricer = { knots: Float64Array.of(1), seconds: () => 1 };
      const simulated = simulate({ ...options, sequences: 5, speculation }, pricer, requests);
      expect(iterations, `seed ${SEED + i}`).toBe(simulated.iterations);
      for (const { tokens, ...own } of served) {
        const same = simulated.ends.find(({ id }) => id === own.id)!;
        expect(same, `seed ${SEED + i}`).toMatchObject({ id: own.id, preemptions: own.preemptions });
        expect(same.outputTokens).toBe(tokens.length);
        expect(same.firstToken).toBeCloseTo(own.firstToken, 6);
        expect(same.lastToken).toBeCloseTo(own.lastToken, 6);
        preempted += own.preemptions;
      }
      fewer += Number(iterations < plain.iterations);
    }
    expect(preempted, `seed ${SEED}`).toBeGreaterThan(0);
    expect(fewer, `seed ${SEED}`).toBeGreaterThan(0);
  });

  test('ends a round at the end of an answer', async () => {
    const all: Speculation = { draftLoops: 1, draftTokens: 4, acceptance: 1, source: null, seed: SEED };
    const loop = new ServingLoop(counting(1, 64, all), OPTIONS);
    // 5 5 10 20 40 80
    loop.submit({ id: 1, prompt: [5], maxTokens: 4, endTokens: [20] });
    loop.submit({ id: 2, prompt: [7], maxTokens: 3 });
    const steps: number[][] = [];
    for (let step = await loop.step(); step; step = await loop.step())
      steps.push(step.tokens.map(({ token }) => token));
    expect(steps).toEqual([[5], [10, 20], [7], [14, 28]]);
    expect(() => loop.submit({ id: 3, prompt: [1], maxTokens: 61 })).toThrow('more than the cache holds');
  });
});

test('a round of the decoder takes its draft and its verification, and asks which token it begins with', async () => {
  const accepted = (request: number, token: number): number => 100 * request + token;
  const of: (number | undefined)[] = [];
  const decoder = {
    lengths: [0],
    forget: () => {},
    extend: () => Promise.resolve({ token: 1, seconds: 0 }),
    speculate: (_: unknown, __: unknown, accept?: (sequence: number) => number) => {
      of.push(accept?.(0));
      return Promise.resolve({ tokens: [[1, 2]], draftSeconds: 1, verifySeconds: 2 });
    },
  } as unknown as GpuDecoder;
  const engine = decoderEngine(decoder, 64, { draftLoops: 1, draftTokens: 3 }, accepted);
  engine.forget(0, 5, 7);
  await engine.extend(0, [3], false);
  await engine.extend(0, [4], true);
  const rounds = [await engine.step([4], () => true), await engine.step([2], () => true)];
  expect(rounds).toEqual(Array(2).fill({ tokens: [[1, 2]], seconds: 3 }));
  expect(of).toEqual([508, 510]);
});
