/** The serving loop without a GPU: its schedule is the simulation's, request by request. */
import { describe, expect, test } from 'vitest';
import { drive, type TimedRequest } from '../../src/decoder/serving/drive.js';
import { ServingLoop, type LoopOptions, type SequenceEngine } from '../../src/decoder/serving/loop.js';
import { run } from '../../src/serving/engine.js';
import type { Ended } from '../../src/serving/metrics.js';
import { given, pricerOf, SERVER } from '../serving/harness.js';
import { randomOf, SEED } from '../gpu/random.js';

const CAP = 24;
const KNOTS_WITH_CAP = Float64Array.from([1, 16, CAP, 64]);

const stepSeconds = (lengths: number, n: number): number => (n === 0 ? 0 : 1 + 0.1 * n + 0.01 * lengths);
const chunkSeconds = (tokens: number, before: number): number => 0.5 + 0.05 * tokens + 0.001 * tokens * before;

/** Sequences that only count. The token after a text is the sum of its tokens, modulo 997. */
function counting(sequences: number, contextTokens: number): SequenceEngine {
  const texts = Array.from({ length: sequences }, (): number[] => []);
  const next = (text: readonly number[]): number => text.reduce((a, b) => a + b, 0) % 997;
  return {
    sequences,
    contextTokens,
    extend: (sequence, tokens, ends) => {
      const text = texts[sequence]!;
      const seconds = chunkSeconds(tokens.length, text.length);
      text.push(...tokens);
      return Promise.resolve({ token: ends ? next(text) : null, seconds });
    },
    step: (tokens, joins) => {
      const joining = texts.filter((_, i) => joins(i));
      const seconds = stepSeconds(
        joining.reduce((sum, text) => sum + text.length, 0),
        joining.length,
      );
      texts.forEach((text, i) => {
        if (joins(i)) text.push(tokens[i]!);
      });
      return Promise.resolve({ tokens: texts.map(next), seconds });
    },
    forget: (sequence) => void (texts[sequence]!.length = 0),
  };
}

const OPTIONS: LoopOptions = {
  maxNumBatchedTokens: 32,
  chunkedPrefill: true,
  blockTokens: 4,
  blocks: 30,
  capTokens: Infinity,
};

describe(`the serving loop (LLA_SIM_SEED=${SEED})`, () => {
  test('ends every request when the simulation does, with as many preemptions', async () => {
    const random = randomOf(SEED);
    let preemptions = 0;
    for (let scenario = 0; scenario < 40; scenario++) {
      const sequences = random.whole(1, 6);
      const options: LoopOptions = {
        maxNumBatchedTokens: random.whole(sequences, 40),
        chunkedPrefill: random.pick([true, false]),
        blockTokens: random.pick([1, 4, 16]),
        blocks: 0,
        capTokens: random.pick([Infinity, CAP]),
      };
      const blocks = Math.ceil(60 / options.blockTokens) + random.whole(0, 20);
      let time = 0;
      const requests: TimedRequest[] = Array.from({ length: 25 }, (_, id) => ({
        id,
        time: (time += random.whole(0, 9000) / 1000 + 1e-4),
        prompt: Array.from({ length: random.whole(1, 30) }, () => random.whole(0, 999)),
        maxTokens: random.whole(1, 30),
      }));
      const served = await drive(new ServingLoop(counting(sequences, 64), { ...options, blocks }), requests);
      const ends: Ended[] = [];
      run({
        server: { ...SERVER, ...options, blocks, unitTokens: options.blockTokens, maxNumSeqs: sequences },
        source: given(
          requests.map((r) => ({ time: r.time, promptTokens: r.prompt.length, outputTokens: r.maxTokens })),
        ),
        pricer: pricerOf(({ size, meanLength, chunks }) => {
          let seconds = stepSeconds(size * meanLength, size);
          for (let i = 0; i < chunks.count; i++) seconds += chunkSeconds(chunks.tokens[i]!, chunks.before[i]!);
          return seconds;
        }, KNOTS_WITH_CAP),
        onEnd: (ended) => ends.push({ ...ended }),
      });
      expect(served.length, `scenario ${scenario}`).toBe(requests.length);
      for (const end of ends) {
        const own = served.find(({ id }) => id === end.number)!;
        expect(own.lastToken - own.arrival, `scenario ${scenario}, request ${end.number}`).toBeCloseTo(
          end.e2elSeconds,
          6,
        );
        expect(own.firstToken - own.arrival).toBeCloseTo(end.ttftSeconds, 6);
        expect(own.preemptions, `scenario ${scenario}, request ${end.number}`).toBe(end.preemptions);
        preemptions += own.preemptions;
      }
    }
    expect(preemptions).toBeGreaterThan(20);
  });

  test('gives the tokens that a request alone has, preempted or not; ends early; is cancelled', async () => {
    const random = randomOf(SEED + 1);
    const requests: TimedRequest[] = Array.from({ length: 20 }, (_, id) => ({
      id,
      time: 0,
      prompt: Array.from({ length: random.whole(1, 40) }, () => random.whole(0, 999)),
      maxTokens: random.whole(1, 40),
    }));
    const served = await drive(new ServingLoop(counting(5, 128), OPTIONS), requests);
    expect(served.some(({ preemptions }) => preemptions > 0)).toBe(true);
    for (const { id, tokens } of served) {
      const { prompt, maxTokens } = requests[id]!;
      const text = [...prompt];
      for (let i = 0; i < maxTokens; i++) text.push(text.reduce((a, b) => a + b, 0) % 997);
      expect(tokens, `request ${id}`).toEqual(text.slice(prompt.length));
    }
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
});
