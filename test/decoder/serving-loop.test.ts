/** The serving loop without a GPU: its tokens, whatever its schedule (test/serving/scheduler.test.ts) does. */
import { describe, expect, test } from 'vitest';
import { drive, type TimedRequest } from '../../src/decoder/serving/drive.js';
import { ServingLoop, type LoopOptions, type SequenceEngine } from '../../src/decoder/serving/loop.js';
import { randomOf, SEED } from '../gpu/random.js';

/** Sequences that only count. The token after a text is the sum of its tokens, modulo 997. */
function counting(sequences: number, contextTokens: number): SequenceEngine {
  const texts = Array.from({ length: sequences }, (): number[] => []);
  const next = (text: readonly number[]): number => text.reduce((a, b) => a + b, 0) % 997;
  return {
    sequences,
    contextTokens,
    extend: (sequence, tokens, ends) => {
      const text = texts[sequence]!;
      text.push(...tokens);
      return Promise.resolve({ token: ends ? next(text) : null, seconds: 0 });
    },
    step: (tokens, joins) => {
      texts.forEach((text, i) => {
        if (joins(i)) text.push(tokens[i]!);
      });
      return Promise.resolve({ tokens: texts.map(next), seconds: 0 });
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
  test('gives the tokens that a request alone has, preempted or not; ends early; is cancelled', async () => {
    const random = randomOf(SEED + 1);
    const requests: TimedRequest[] = Array.from({ length: 20 }, (_, id) => ({
      id,
      time: 0,
      prompt: Array.from({ length: random.whole(1, 40) }, () => random.whole(0, 999)),
      maxTokens: random.whole(1, 40),
    }));
    const options = { ...OPTIONS, chunkedPrefill: random.pick([true, false]), capTokens: random.pick([Infinity, 24]) };
    const blocks = Math.ceil(Math.min(80, options.capTokens) / options.blockTokens) + random.whole(0, 8);
    const served = await drive(new ServingLoop(counting(5, 128), { ...options, blocks }), requests);
    expect(served).toHaveLength(requests.length);
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
