/** Measuring in turn, with a device whose clock is a formula. */
import { describe, expect, test } from 'vitest';
import { LEAST_ROUNDS, measurePair, type Pair, type PairRules } from '../../src/bench/regression/compare.js';
import { verdictOf } from '../../src/bench/regression/statistics.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Runner } from '../../src/bench/timing.js';
import type { BoundStep } from '../../src/gpu/index.js';
import { nameOf, stepNamed } from './made-up.js';

const pair = (copies = 1): Pair => {
  const side = (name: string): BoundStep[][] => Array.from({ length: copies }, (_, i) => [stepNamed(`${name}${i}`)]);
  return { before: side('b'), now: side('n') };
};

/** A machine with its own clock: `seconds` says what one call of a side takes at a moment. */
function machine(seconds: (side: 'b' | 'n', at: number) => number): Runner & { at: number; runs: string[][] } {
  const self = {
    at: 0,
    runs: [] as string[][],
    run: (steps: readonly BoundStep[]) => {
      self.runs.push(steps.map(nameOf));
      let deviceSeconds = 0;
      for (const s of steps) deviceSeconds += seconds(nameOf(s)[0] as 'b' | 'n', self.at + deviceSeconds);
      self.at += deviceSeconds;
      return Promise.resolve({ wallSeconds: 9, deviceSeconds });
    },
  };
  return self;
}

const rules = (m: { at: number }, change: Partial<PairRules> = {}): PairRules => ({
  clock: 'gpu-timestamp',
  submitSeconds: 0,
  batchSeconds: 0.01,
  threshold: 0.05,
  seconds: 5,
  seed: 1,
  clockNow: () => m.at,
  ...change,
});

describe('without noise', () => {
  test('the ratio is exact, and the fewest rounds are enough', async () => {
    const m = machine((side) => (side === 'n' ? 1.15e-3 : 1e-3));
    const { ratio, rounds } = await measurePair(m, pair(), rules(m));
    expect(rounds).toHaveLength(LEAST_ROUNDS);
    for (const end of [ratio.low, ratio.estimate, ratio.high]) expect(end).toBeCloseTo(1.15, 10);
  });

  test('a linear drift cancels', async () => {
    const m = machine((_, at) => 1e-3 * (1 + 0.5 * at));
    const { ratio } = await measurePair(m, pair(), rules(m));
    expect(ratio.estimate).toBeCloseTo(1, 4);
  });

  test('wall time is used without timestamps, free of the cost of submitting', async () => {
    const runner: Runner = {
      run: (steps) =>
        Promise.resolve({
          wallSeconds: 0.5 + steps.length * (nameOf(steps[0] as BoundStep).startsWith('n') ? 0.02 : 0.01),
          deviceSeconds: null,
        }),
    };
    const { ratio } = await measurePair(runner, pair(), rules({ at: 0 }, { submitSeconds: 0.5 }));
    expect(ratio.estimate).toBeCloseTo(2, 9);
  });
});

describe('the order', () => {
  test('a round is b n n b or n b b n, both occur, and copies go round through both', async () => {
    const m = machine(() => 0.02);
    await measurePair(m, pair(3), rules(m));
    const turns = m.runs.map((r) => r[0] as string).slice(2);
    const sides = turns.map((name) => name[0]).join('');
    expect(new Set(sides.match(/.{4}/g))).toEqual(new Set(['bnnb', 'nbbn']));
    expect(m.runs.map((r) => r[0]?.[1]).join('')).toMatch(/^(012)+0?1?$/);
  });

  test('both sides make the same number of calls, enough for a batch of the slower one', async () => {
    const m = machine((side) => (side === 'n' ? 2e-3 : 1e-3));
    const { callsPerBatch } = await measurePair(m, pair(2), rules(m));
    expect(callsPerBatch).toBe(6);
    expect(new Set(m.runs.slice(4).map((r) => r.length))).toEqual(new Set([6]));
  });
});

describe('the end', () => {
  test('noise asks for more rounds, until the time is spent', async () => {
    const random = randomFrom(5);
    const m = machine(() => 0.01 * (1 + random()));
    const noisy = await measurePair(m, pair(), rules(m, { seconds: 30 }));
    expect(noisy.rounds.length).toBeGreaterThan(LEAST_ROUNDS);
    const short = machine(() => 0.01 * (1 + random()));
    const { rounds } = await measurePair(short, pair(), rules(short, { seconds: 0 }));
    expect(rounds).toHaveLength(LEAST_ROUNDS);
  });

  test('a ratio at the threshold is measured until the time is spent, and stays unclear', async () => {
    const random = randomFrom(6);
    const m = machine((side) => (side === 'n' ? 1.05 : 1) * 0.01 * (1 + 0.1 * random()));
    const { ratio } = await measurePair(m, pair(), rules(m, { seconds: 20 }));
    expect(m.at).toBeGreaterThan(19.8);
    expect(verdictOf(ratio, 0.05)).toBe('unclear');
  });
});

/** Phases of another process: for 50 to 500 ms all is slower by up to half; single turns are hit by far more. */
function phases(seed: number, slowdown: number): Runner & { at: number; runs: string[][] } {
  const random = randomFrom(seed);
  let [until, load] = [0, 1];
  return machine((side, at) => {
    if (at >= until) [until, load] = [at + 0.05 + 0.45 * random(), 1 + 0.5 * random()];
    return 0.01 * load * (random() < 0.05 ? 3 : 1) * (1 + 0.04 * random()) * (side === 'n' ? slowdown : 1);
  });
}

test('on a simulated noisy machine 15 % are found in every run, and nothing where there is nothing', async () => {
  const verdicts = async (slowdown: number): Promise<string[]> => {
    const all: string[] = [];
    for (let seed = 1; seed <= 40; seed++) {
      const m = phases(seed, slowdown);
      all.push(verdictOf((await measurePair(m, pair(), rules(m, { seed }))).ratio, 0.05));
    }
    return all;
  };
  expect((await verdicts(1.15)).filter((v) => v === 'slower').length).toBeGreaterThanOrEqual(39);
  expect((await verdicts(1)).filter((v) => v === 'slower')).toEqual([]);
});
