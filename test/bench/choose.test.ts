/** Which point a calibration measures next: what it tells is what the model's variance falls by. */
import { expect, test } from 'vitest';
import { mostTelling, nextPoint } from '../../src/bench/calibrate/choose.js';
import type { Track } from '../../src/bench/calibrate/visits.js';
import { CONSTANTS } from '../../src/cost/constants.js';
import { Calls, scalesOf } from '../../src/cost/predictor.js';
import { Process } from '../../src/cost/process.js';
import type { Sample } from '../../src/schema/calibration.js';
import type { Shape } from '../../kernels/spec.js';
import { SEED, randomOf } from '../gpu/random.js';
import { trackOf } from './made-up.js';

const REACH = { floorSeconds: 1e-5, bytesPerSecond: 1e10, operationsPerSecond: 4e10 };
const NORM = { kernel: 'rmsnorm', variant: 'norm' } as const;
const random = randomOf(SEED);
const rows = (list: readonly number[], shares: readonly number[] = []) =>
  list.map((count, i) => ({ shape: { rows: count, width: 2048 }, share: shares[i] ?? 1 }));

test(`a point tells by how much the variances of all candidates fall, by their shares (LLA_SIM_SEED=${SEED})`, () => {
  const draw = (count: number): Shape[] =>
    Array.from({ length: count }, () => ({ rows: random.whole(1, 4096), width: random.whole(64, 8192) }));
  const [measured, shapes] = [draw(3), draw(12)];
  const candidates = shapes.map((shape) => ({ shape, share: random.whole(1, 100) }));
  const { index, lowered } = mostTelling(NORM, measured, candidates, REACH);
  const all = [...measured, ...shapes];
  const calls = new Calls('rmsnorm', 'norm', REACH);
  const scales = scalesOf(all.map((shape) => calls.sharesAt(shape)));
  const variance = (at: readonly number[]): number => {
    const process = new Process(
      at.map((i) => calls.placeAt(all[i]!, scales)),
      at.map(() => 0),
      {
        effectVariances: [CONSTANTS.unmeasured.value ** 2, CONSTANTS.termPrior.value ** 2],
        signalVariance: CONSTANTS.signalPrior.value ** 2,
        noiseVariance: CONSTANTS.noisePrior.value ** 2,
        lengthScale: CONSTANTS.lengthPrior.value,
      },
    );
    const left = process.covarianceOf(shapes.map((shape) => calls.placeAt(shape, scales)));
    return candidates.reduce((sum, { share }, i) => sum + share * left[i * shapes.length + i]!, 0);
  };
  const falls = shapes.map((_, i) => variance([0, 1, 2]) - variance([0, 1, 2, 3 + i]));
  expect(lowered / Math.max(...falls)).toBeCloseTo(1, 6);
  expect(falls[index]! / Math.max(...falls)).toBeCloseTo(1, 6);
});

test('it lies amid the shares, and not where one was measured', () => {
  const pick = (measured: number[], shares: number[] = []): number => {
    const shapes = rows(measured).map(({ shape }) => shape);
    return mostTelling(NORM, shapes, rows([1, 3, 7, 15, 1023], shares), REACH).index;
  };
  expect(pick([], [0, 0, 0, 0, 1])).toBe(4);
  expect(pick([7])).not.toBe(2);
  expect(pick([6, 8], [1, 1, 1, 1, 1])).toBe(4);
  expect(pick([6, 1023], [1, 0, 0, 0, 1])).toBe(0);
  // Of which no share is known at all, one is measured nevertheless.
  expect(pick([], [0, 0, 0, 0, 0])).toBeGreaterThanOrEqual(0);
});

const normsOf = (variant: string, share: number): Track =>
  trackOf('rmsnorm', variant, rows([1, 16, 256], [share, share, share]));

test('of kernels the one that lowers steps’ variance most for its time; after others’ first point', () => {
  const [heavy, light] = [normsOf('norm', 10), normsOf('add', 1)];
  const tracks = [light, heavy];
  const measure = (track: Track, index: number, seconds: number): void => {
    const [candidate] = track.candidates.splice(index, 1);
    track.entry.samples.push({ variant: track.variant, shape: candidate!.shape } as unknown as Sample);
    track.visitSeconds.push(seconds);
  };
  const first = nextPoint(tracks, REACH)!;
  expect(first.track).toBe(heavy);
  measure(heavy, first.index, 1);
  expect(nextPoint(tracks, REACH)?.track).toBe(light);
  // The same where a visit of the other takes a thousand times as long.
  light.visitSeconds.push(1000);
  expect(nextPoint(tracks, REACH)?.track).toBe(heavy);
  // What was tried in vain is not tried again beside.
  light.visitSeconds.splice(0);
  light.entry.gaps.push({ variant: 'add', shape: light.candidates[1]!.shape, reason: 'x' });
  light.candidates.splice(1, 1);
  expect(nextPoint(tracks, REACH)?.track).toBe(heavy);
  expect(nextPoint([{ ...light, candidates: [] }], REACH)).toBeUndefined();
});
