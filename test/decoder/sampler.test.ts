/** Sampling against its distribution. */
import { describe, expect, it } from 'vitest';
import { checkSampling, GREEDY, sample, uniform } from '../../src/decoder/sampler.js';
import { drawToken } from '../../kernels/sample/reference.js';
import { SEED } from '../gpu/random.js';

const logits = [0, Math.log(4), -Infinity, Math.log(3), Math.log(2)]; // probabilities .1 .4 0 .3 .2
const DRAWS = 20_000;

const frequencies = (temperature: number, topP: number): number[] => {
  const counts = logits.map(() => 0);
  for (let i = 0; i < DRAWS; i++) {
    const token = sample(logits, { temperature, topP, seed: SEED }, i);
    counts[token] = counts[token]! + 1;
  }
  return counts.map((n) => n / DRAWS);
};

const expectNear = (found: number[], expected: number[]): void =>
  expected.forEach((p, i) =>
    expect(Math.abs(found[i]! - p), `token ${i}, seed ${SEED}`).toBeLessThan(
      5 * Math.sqrt((p * (1 - p)) / DRAWS) + 1e-12,
    ),
  );

describe('sample', () => {
  it('greedily takes the largest, the first of equals', () => {
    expect(sample(logits, GREEDY, 0)).toBe(1);
    expect(sample([3, 7, 7], GREEDY, 9)).toBe(1);
    expect(sample(Float32Array.from([-5]), GREEDY, 0)).toBe(0);
  });

  it('draws with the probabilities of the temperature', () => {
    expectNear(frequencies(1, 1), [0.1, 0.4, 0, 0.3, 0.2]);
    const squares = [1, 16, 0, 9, 4].map((x) => x / 30);
    expectNear(frequencies(0.5, 1), squares);
    expectNear(frequencies(1e-3, 1), [0, 1, 0, 0, 0]);
  });

  it('draws from the smallest nucleus that reaches top-p', () => {
    expectNear(frequencies(1, 0.39), [0, 1, 0, 0, 0]);
    expectNear(frequencies(1, 0.41), [0, 4 / 7, 0, 3 / 7, 0]);
    expectNear(frequencies(1, 0.69), [0, 4 / 7, 0, 3 / 7, 0]);
    expectNear(frequencies(1, 0.71), [0, 4 / 9, 0, 3 / 9, 2 / 9]);
    expectNear(frequencies(1, 0.95), [0.1, 0.4, 0, 0.3, 0.2]);
  });

  it('repeats with the seed, and differs with it and with the draw', () => {
    const run = (seed: number): string =>
      Array.from({ length: 50 }, (_, i) => sample(logits, { temperature: 1, topP: 1, seed }, i)).join();
    expect(run(SEED)).toBe(run(SEED));
    expect(run(SEED)).not.toBe(run(SEED + 1));
    const draws = Array.from({ length: 4000 }, (_, i) => uniform(SEED, 3, i));
    expect(new Set(draws).size).toBeGreaterThan(3990);
    expect(Math.abs(draws.reduce((a, b) => a + b, 0) / 4000 - 0.5)).toBeLessThan(0.025);
    expect(draws.every((u) => u >= 0 && u < 1)).toBe(true);
  });

  it('takes tokens as likely as the last of the nucleus in, in any vocabulary', () => {
    const flat = new Float64Array(5000).fill(2);
    const seen = Array.from({ length: 500 }, (_, i) => sample(flat, { temperature: 1, topP: 0.5, seed: SEED }, i));
    expect(new Set(seen).size).toBeGreaterThan(400);
    const steep = flat.map((_, token) => -token);
    expect(
      Math.max(...Array.from({ length: 500 }, (_, i) => sample(steep, { temperature: 1, topP: 0.8, seed: SEED }, i))),
    ).toBe(1);
  });

  it('draws what the kernel is specified to draw', () => {
    const random = Float64Array.from({ length: 300 }, (_, i) => 3 * Math.sin(i * i + SEED));
    for (const [temperature, topP] of [
      [1, 0.9],
      [0.3, 0.5],
      [2, 1],
    ] as const) {
      for (let draw = 0; draw < 200; draw++) {
        const settings = { temperature, topP, seed: SEED };
        expect(sample(random, settings, draw, 7)).toBe(drawToken(random, settings, 7, draw));
      }
    }
  });

  it('refuses logits that mean a fault, and settings out of range', () => {
    expect(() => sample([1, NaN], GREEDY, 0)).toThrow('the logit of token 1 is NaN');
    expect(() => sample([Infinity], GREEDY, 0)).toThrow('is Infinity');
    expect(() => sample([-Infinity], GREEDY, 0)).toThrow('no token can be sampled');
    expect(() => sample([], GREEDY, 0)).toThrow('no token can be sampled');
    for (const bad of [
      { temperature: -1 },
      { temperature: NaN },
      { temperature: 101 },
      { topP: 0 },
      { topP: 1.1 },
      { topP: NaN },
    ])
      expect(() => checkSampling({ ...GREEDY, ...bad })).toThrow(/temperature must|top-p must/);
  });
});
