/** Timing with a device whose clock is a formula: what a sample is, and how many there are. */
import { expect, test } from 'vitest';
import { callsPerBatch, median, timeCalls, type Runner } from '../../src/bench/timing.js';
import type { BoundStep } from '../../src/gpu/index.js';

const stepNamed = (name: string): BoundStep => ({ name }) as unknown as BoundStep;
const nameOf = (step: BoundStep): string => (step as unknown as { name: string }).name;

/** Every call takes `each` seconds, every submission `submit` more. */
function fakeRunner(each: number, submit: number): Runner & { batches: string[][] } {
  const batches: string[][] = [];
  return {
    batches,
    run: (steps) => {
      batches.push(steps.map(nameOf));
      return Promise.resolve({ wallSeconds: submit + steps.length * each, gpuSeconds: steps.length * each * 2 });
    },
  };
}

const rules = {
  clock: 'wall',
  submitSeconds: 1e-4,
  batchSeconds: 0.01,
  minSamples: 5,
  maxSamples: 9,
  seconds: 0,
} as const;

test('time per call is free of the cost of submitting', async () => {
  const seconds = await timeCalls(fakeRunner(1e-5, 1e-4), [[stepNamed('a')]], rules);
  expect(seconds).toHaveLength(5);
  for (const s of seconds) expect(s).toBeCloseTo(1e-5, 12);
});

test('timestamps are used where the clock says so', async () => {
  const seconds = await timeCalls(fakeRunner(1e-5, 1e-4), [[stepNamed('a')]], { ...rules, clock: 'gpu-timestamp' });
  for (const s of seconds) expect(s).toBeCloseTo(2e-5, 12);
});

test('copies take turns, within a batch and across samples of slow calls', async () => {
  const copies = ['a', 'b', 'c'].map((name) => [stepNamed(name)]);
  const cheap = fakeRunner(1e-3, 0);
  await timeCalls(cheap, copies, { ...rules, submitSeconds: 0 });
  expect(cheap.batches.at(-1)).toHaveLength(12);
  expect(cheap.batches.flat().slice(0, 7)).toEqual(['a', 'b', 'c', 'a', 'b', 'c', 'a']);
  const slow = fakeRunner(1, 0);
  await timeCalls(slow, copies, { ...rules, submitSeconds: 0 });
  expect(slow.batches.map((b) => b.join())).toEqual(['a', 'b', 'c', 'a', 'b', 'c']);
});

test('more samples while there is time, up to the most', async () => {
  expect(
    await timeCalls(fakeRunner(0.01, 0), [[stepNamed('a')]], { ...rules, submitSeconds: 0, seconds: 0.065 }),
  ).toHaveLength(7);
  expect(
    await timeCalls(fakeRunner(0.01, 0), [[stepNamed('a')]], { ...rules, submitSeconds: 0, seconds: 9 }),
  ).toHaveLength(9);
});

test('a time below the overhead does not become nothing', async () => {
  for (const s of await timeCalls(fakeRunner(0, 0), [[stepNamed('a')]], rules)) expect(s).toBeGreaterThan(0);
});

test('batches fill the wanted time in whole rotations', () => {
  expect(callsPerBatch(1e-3, 4, 0.01)).toBe(12);
  expect(callsPerBatch(0.5, 4, 0.01)).toBe(1);
  expect(callsPerBatch(0, 1, 0.01)).toBe(4096);
});

test('the median of an even count lies between', () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
});
