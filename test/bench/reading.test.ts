/** Reading a calibration: what drift and outliers do to the times that are read. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { DRIFT_RETRIED, isBeyond } from '../../src/bench/calibrate/repetitions.js';
import type { Pricer } from '../../src/cost/latency.js';
import { GpuError } from '../../kernels/host/errors.js';
import { calibrationPricer } from '../../src/library.js';
import type { KernelName } from '../../kernels/registry.js';
import { calibrationSchema, type Calibration, type Sample } from '../../src/schema/calibration.js';
import { randomOf, SEED as seed } from '../gpu/random.js';
import { Drift, rawCalibration, readCalibration } from '../../src/schema/drift.js';

import { calibrateIn, truth } from './worlds.js';

const CARRIED = JSON.parse(
  readFileSync(new URL('../../calibrations/mesa-llvmpipe.json', import.meta.url), 'utf8'),
) as Calibration;
const samplesIn = (c: Calibration): Sample[] => c.kernels.flatMap((k) => k.samples);

describe(`reading (LLA_SIM_SEED=${seed})`, () => {
  const r = randomOf(seed);
  const parsed = (): Calibration => calibrationSchema.parse(structuredClone(CARRIED));

  test('a file of version 1 keeps its times and drifts; a repetition without its drift is cut', () => {
    const file = parsed();
    expect(readCalibration(file)).toEqual(file);
    const torn = samplesIn(file)[0] as Sample;
    const before = [...torn.seconds];
    torn.seconds.push(1);
    expect((samplesIn(readCalibration(file))[0] as Sample).seconds).toEqual(before);
    torn.drift = [];
    expect(samplesIn(readCalibration(file))).toHaveLength(samplesIn(file).length - 1);
  });

  test('in the form of today it has the same times, and drifts that differ by one factor', () => {
    const [old, raw] = [readCalibration(parsed()), rawCalibration(parsed())];
    expect(calibrationSchema.parse(raw)).toEqual(raw);
    const today = readCalibration(raw);
    expect(samplesIn(today).map((s) => s.seconds)).toEqual(samplesIn(old).map((s) => s.seconds));
    const factor = today.probe!.referenceSeconds / old.probe!.referenceSeconds;
    samplesIn(today).forEach((s, i) =>
      s.drift!.forEach((drift, j) => expect(drift * factor).toBeCloseTo(samplesIn(old)[i]!.drift![j]!, 9)),
    );
  });

  test('the cost of submitting is taken off where the clock counts it', () => {
    const raw = rawCalibration(parsed());
    const sample = samplesIn(raw)[0] as Sample;
    const [calls, submitSeconds] = [r.whole(1, 50), r.whole(1, 9) / 1e4];
    sample.calls![0] = calls;
    sample.seconds[0] = 1;
    const overheads = { ...raw.overheads, submitSeconds };
    const first = (kind: Calibration['clock']['kind']): number =>
      samplesIn(readCalibration({ ...raw, overheads, clock: { ...raw.clock, kind } }))[0]!.seconds[0]!;
    expect(first('wall')).toBeCloseTo(1 - submitSeconds / calls, 12);
    expect(first('processor')).toBe(1);
  });

  test('the library prices by a stored file as by a file that was read', () => {
    const raw = rawCalibration(parsed());
    const options = { stale: new Set<string>(), link: null, source: 'a test' };
    const [stored, read] = [raw, readCalibration(raw)].map((c) => calibrationPricer(c, options)) as [Pricer, Pricer];
    for (const { kernel, samples } of raw.kernels)
      for (const { variant, shape } of samples.slice(0, 2)) {
        const call = { kernel: kernel as KernelName, variant, shape };
        expect(stored.price(call)).toEqual(read.price(call));
      }
    expect(stored.price({ kernel: 'swiglu', variant: 'f32', shape: { rows: 3, width: 700 } }).evidence).not.toBe(
      'roofline',
    );
  });

  test('a run of the probe that the file lacks is refused', () => {
    const raw = rawCalibration(parsed());
    raw.probeSeconds!.length = 3;
    expect(calibrationSchema.safeParse(raw).success).toBe(false);
  });
});

test('a kernel that fails at its first shapes is left alone where that is asked for', async () => {
  const fail = (): GpuError => new GpuError('unsupported', 'no such thing');
  const world = { points: 9, fail };
  const { track, starts } = await calibrateIn({ ...world, mostFailures: 2 });
  expect(starts.length).toBe(2);
  expect(track.candidates).toEqual([]);
  expect(track.entry.gaps.at(-1)?.reason).toBe('unsupported: no such thing (and 7 more shapes of swiglu f32 likewise)');
  expect((await calibrateIn(world)).starts.length).toBe(9);
  // One that was measured before is tried on.
  const late = (width: number): GpuError | null => (width > 2 ? fail() : null);
  expect((await calibrateIn({ ...world, fail: late, mostFailures: 2 })).track.entry.gaps.length).toBeGreaterThan(2);
});

test('repetitions beside which the page was left do not count', async () => {
  // Left between the fifth and the eighth second, where everything takes ten times as long.
  const away = (at: number): boolean => at > 5 && at < 8;
  const { track } = await calibrateIn({
    load: (at) => (away(at) ? 10 : 1),
    points: 20,
    pauses: (at) => (away(at) ? Math.floor(at * 1000) : 5000),
  });
  for (const sample of track.entry.samples)
    for (const time of sample.seconds) expect(time / truth(sample.shape['width']!)).toBeLessThan(2);
  expect(track.entry.samples.length).toBeGreaterThan(10);
});

test('the reference is that of the fastest runs, whenever they came', () => {
  const drift = new Drift();
  for (let i = 0; i < 400; i++) drift.record(i % 10 === 0 ? 5 : 3);
  expect(drift.relative(3)).toBe(1);
  for (let i = 0; i < 100; i++) drift.record(i % 25 === 0 ? 0.5 : 1);
  expect(drift.relative(3)).toBe(3);
  expect(drift.describe()).toEqual({ referenceSeconds: 1, runs: 500, lowDrift: 0.5, highDrift: 5 });
});

test('a file of before drift, transfers and tuning is read as it was', () => {
  const added = ['drift', 'flag', 'probe', 'upload', 'readback', 'reasons'];
  const without = (key: string, value: unknown): unknown => (added.includes(key) ? undefined : value);
  const older = JSON.parse(JSON.stringify(CARRIED), without) as unknown;
  const parsed = readCalibration(calibrationSchema.parse(older));
  expect(JSON.parse(JSON.stringify(parsed))).toEqual(older);
  expect(samplesIn(parsed).length).toBeGreaterThan(0);
});

test('a machine that is faster than its probe was drifts as one that is slower does', () => {
  for (const fraction of Object.values(DRIFT_RETRIED))
    for (const [by, beyond] of [
      [1 + 1.01 * fraction, true],
      [1 + 0.99 * fraction, false],
    ] as const)
      expect([isBeyond(by, fraction), isBeyond(1 / by, fraction)], `${by}`).toEqual([beyond, beyond]);
});
