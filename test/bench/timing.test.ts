/** Timing with a device whose clock is a formula: what a sample is. */
import { expect, test } from 'vitest';
import { batchTimers, callsPerBatch, type BatchTimer, type Runner, type TimingRules } from '../../src/bench/timing.js';
import type { BoundStep } from '../../src/gpu/index.js';
import { nameOf, stepNamed } from './made-up.js';

/** Every call takes `each` seconds, every submission `submit` more. */
function fakeRunner(each: number, submit: number): Runner & { batches: string[][] } {
  const batches: string[][] = [];
  return {
    batches,
    run: (steps) => {
      batches.push(steps.map(nameOf));
      return Promise.resolve({ wallSeconds: submit + steps.length * each, deviceSeconds: steps.length * each * 2 });
    },
  };
}

const rules = { clock: 'wall', submitSeconds: 1e-4, batchSeconds: 0.01 } as const;

const batchTimer = async (...[runner, copies, timing]: Parameters<typeof samples>): Promise<BatchTimer> =>
  (await batchTimers(runner, [copies], timing)).timers[0] as BatchTimer;

/** Seconds a call in five samples. */
async function samples(
  runner: Runner,
  copies: readonly (readonly BoundStep[])[],
  timing: TimingRules,
): Promise<number[]> {
  const time = await batchTimer(runner, copies, timing);
  const seconds: number[] = [];
  for (let i = 0; i < 5; i++) seconds.push((await time()).each);
  return seconds;
}

test.each([
  ['free of the cost of submitting', 'wall', 1e-5],
  ['that of timestamps where the clock says so', 'gpu-timestamp', 2e-5],
] as const)('time per call is %s', async (_, clock, each) => {
  const seconds = await samples(fakeRunner(1e-5, 1e-4), [[stepNamed('a')]], { ...rules, clock });
  for (const s of seconds) expect(s).toBeCloseTo(each, 12);
});

test('copies take turns, within a batch and across samples of slow calls', async () => {
  const copies = ['a', 'b', 'c'].map((name) => [stepNamed(name)]);
  const cheap = fakeRunner(1e-3, 0);
  await samples(cheap, copies, { ...rules, submitSeconds: 0 });
  expect(cheap.batches.at(-1)).toHaveLength(12);
  expect(cheap.batches.flat().slice(0, 7)).toEqual(['a', 'b', 'c', 'a', 'b', 'c', 'a']);
  const slow = fakeRunner(1, 0);
  await samples(slow, copies, { ...rules, submitSeconds: 0 });
  expect(slow.batches.map((b) => b.join())).toEqual(['a', 'b', 'c', 'a', 'b', 'c']);
});

test('a sample says how long its submission took', async () => {
  const time = await batchTimer(fakeRunner(1e-3, 1e-4), [[stepNamed('a')]], rules);
  const { each, total } = await time();
  expect(total / each).toBeCloseTo(10, 6);
});

test('a time below the overhead does not become nothing', async () => {
  for (const s of await samples(fakeRunner(0, 0), [[stepNamed('a')]], rules)) expect(s).toBeGreaterThan(0);
});

test('batches fill the wanted time in whole rotations', () => {
  expect(callsPerBatch(1e-3, 4, 0.01)).toBe(12);
  expect(callsPerBatch(0.5, 4, 0.01)).toBe(1);
  expect(callsPerBatch(0, 1, 0.01)).toBe(4096);
});
