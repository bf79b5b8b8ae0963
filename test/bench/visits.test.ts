/** The order of a calibration's visits and its correction for drift, on a machine whose clock is a formula. */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { DRIFT_RETRIED, isBeyond } from '../../src/bench/calibrate/repetitions.js';
import { randomFrom } from '../../src/numbers/random.js';
import { mean, median } from '../../src/numbers/statistics.js';
import { samplesOf, UNFINISHED, Visits, type OpenPoint, type Track } from '../../src/bench/calibrate/visits.js';
import type { Pricer } from '../../src/cost/latency.js';
import { GpuError } from '../../kernels/host/errors.js';
import { calibrationPricer } from '../../src/library.js';
import type { KernelName } from '../../kernels/registry.js';
import { calibrationSchema, sampleSchema, type Calibration, type Sample } from '../../src/schema/calibration.js';
import { randomOf, SEED as seed } from '../gpu/random.js';
import { trackOf } from './made-up.js';
import {
  correctedSeconds,
  Drift,
  driftExponentOf,
  rawCalibration,
  readCalibration,
  readSample,
  slowdownOf,
  typicalSeconds,
} from '../../src/schema/drift.js';

const PROBE_SECONDS = 0.01;
const POINT_BYTES = 10;
const truth = (width: number): number => 1e-3 * width;

/** A point of an earlier session. */
const sampleOf = (width: number, seconds: number[]): Sample => ({
  ...{ variant: 'f32', shape: { rows: 1, width }, tuning: {}, readBytes: 1, writeBytes: 1, flops: 1 },
  ...{ seconds, relativeError: 0 },
});

interface World {
  /** Times of everything over the quiet machine's, at a moment. */
  load?: (at: number) => number;
  budgetSeconds?: number;
  points?: number;
  /** Noise of single runs. */
  noise?: number;
  /** `held`: bytes of the points that are open. */
  fail?: (width: number, held: number) => GpuError | null;
  openBytes?: number;
  /** How much steps hang on a width. */
  share?: (width: number) => number;
  /** Measured in an earlier session. */
  resumed?: Sample[];
  /** Samples that are taken for wrong at the end. */
  outliers?: (samples: readonly Sample[]) => number[];
  /** Every state that is saved; `ended`: repetitions so far. */
  onSave?: (entry: Track['entry'], must: boolean, ended: number) => void;
  mostFailures?: number;
  /** That putting a point on the device takes, and a repetition. */
  openSeconds?: number;
  turnSeconds?: number;
  /** How often the machine was left by a moment. */
  pauses?: (at: number) => number;
  driftRetried?: number;
}

/** A calibration in a world; `starts`: when which width was measured. */
async function calibrateIn({
  load = () => 1,
  budgetSeconds = 20,
  points = 1000,
  noise = 0.01,
  fail = () => null,
  openBytes = 100 * POINT_BYTES,
  share = () => 0,
  resumed = [],
  outliers = () => [],
  onSave = () => undefined,
  mostFailures = Infinity,
  openSeconds = 0.05,
  turnSeconds = 0.02,
  pauses = () => 0,
  driftRetried = DRIFT_RETRIED.usual,
}: World) {
  const random = randomFrom(seed);
  const jitter = (): number => 1 + noise * (random() - 0.5);
  const shapes = Array.from({ length: points }, (_, i) => ({ shape: { rows: 1, width: i + 1 }, share: share(i + 1) }));
  const track = trackOf('swiglu', 'f32', shapes);
  for (const sample of resumed) {
    track.entry.samples.push(sample);
    track.resumed.push({ sample, share: share(sample.shape['width'] as number) });
  }
  const drift = new Drift();
  const starts: { width: number; at: number; known: boolean }[] = [];
  /** Widths in the order of their repetitions. */
  const turns: number[] = [];
  let held = 0;
  let at = 0;
  const probe = (): Promise<number> => {
    const seconds = PROBE_SECONDS * load(at) * jitter();
    at += seconds;
    drift.record(seconds);
    return Promise.resolve(seconds);
  };
  const open = (_: Track, shape: { readonly width?: number }, known: Sample | null): Promise<OpenPoint> => {
    const width = shape.width ?? 0;
    starts.push({ width, at, known: known !== null });
    at += openSeconds * jitter();
    const problem = fail(width, held);
    if (problem) return Promise.reject(problem);
    held += POINT_BYTES;
    const time = (): ReturnType<OpenPoint['time']> => {
      turns.push(width);
      const each = truth(width) * load(at) * jitter();
      at += turnSeconds;
      return Promise.resolve({ each, calls: 1, total: turnSeconds });
    };
    return Promise.resolve({
      sample: { ...sampleOf(width, []), calls: [], probes: [] },
      bytes: POINT_BYTES,
      time,
      free: () => {
        held -= POINT_BYTES;
      },
    });
  };
  const visits = new Visits([track], drift, {
    now: () => at,
    budgetSeconds,
    secondsPerVisit: 0.1,
    openBytes,
    stopped: () => false,
    mostFailures,
    pauses: () => pauses(at),
    driftRetried,
    open,
    probe,
    read: (sample) => readSample(sample, { submitSeconds: 0, drift }),
    choose: ([t]) => (t && t.candidates.length > 0 ? { track: t, index: 0 } : undefined),
    visited: () => undefined,
    save: (must) => onSave(track.entry, must, turns.length),
    outliers: (_, samples) => outliers(samples),
  });
  for (let i = 0; i < 7; i++) await probe();
  await visits.run();
  /** As they are read. */
  const samples = track.entry.samples.map((sample) => readSample(sample, { submitSeconds: 0, drift }));
  return { track, samples, drift, starts, turns, held, end: at };
}

const errorOf = (samples: readonly Sample[], times: (s: Sample) => readonly number[]): number =>
  Math.sqrt(
    samples.reduce((sum, s) => sum + Math.log(typicalSeconds(times(s)) / truth(s.shape['width'] as number)) ** 2, 0) /
      samples.length,
  );

describe(`drift (LLA_SIM_SEED=${seed})`, () => {
  // A loaded start, then phases of 12 s at 1.15 and 1.6 times the quiet machine's times.
  const phases = (at: number): number => (at < 25 ? 1.3 : ([1.15, 1.6, 1, 1][Math.floor(at / 12) % 4] as number));

  test('correction takes most of it off, and is not the identity or its inverse', async () => {
    const { samples } = await calibrateIn({ load: phases, budgetSeconds: 120, points: 200 });
    const raw = errorOf(samples, (s) => s.seconds);
    const corrected = errorOf(samples, correctedSeconds);
    const inverse = errorOf(samples, (s) => s.seconds.map((t, i) => t * (s.drift?.[i] as number)));
    expect(samples.length).toBeGreaterThan(50);
    expect(raw).toBeGreaterThan(0.05);
    expect(corrected).toBeLessThan(0.4 * raw);
    expect(inverse).toBeGreaterThan(raw);
  });

  test('times stay raw, and every repetition has its runs of the probe', async () => {
    const { track, drift } = await calibrateIn({ points: 5, noise: 0 });
    for (const sample of track.entry.samples) {
      expect(sample.probes).toHaveLength(sample.seconds.length);
      for (const run of sample.probes as number[]) expect(drift.seconds[run + 1]).toBeCloseTo(PROBE_SECONDS, 12);
      expect(median(sample.seconds)).toBeCloseTo(truth(sample.shape['width'] as number), 12);
      expect(sampleSchema.parse(sample)).toEqual(sample);
    }
    expect(sampleSchema.safeParse({ ...track.entry.samples[0], probes: [1] }).success).toBe(false);
    expect(sampleSchema.safeParse({ ...track.entry.samples[0], calls: [1] }).success).toBe(false);
  });

  test('up to 5 % is the probe’s own noise: recorded, not corrected', () => {
    const slow = [1 / slowdownOf(1.06), 1 / slowdownOf(0.5)];
    expect(correctedSeconds({ seconds: [1, 1, 1], drift: [1.04, 1.06, 0.5] })).toEqual([1, ...slow]);
    expect(correctedSeconds({ seconds: [1, 2] })).toEqual([1, 2]);
  });

  test('by the power of the probe that a kernel’s own times follow, 0.7 as long as they are few', () => {
    const r = randomOf(seed);
    const exponent = r.whole(20, 110) / 100;
    const sample = (): { seconds: number[]; drift: number[] } => {
      const [own, drift] = [r.whole(1, 99) / 1e3, Array.from({ length: 9 }, () => r.whole(80, 160) / 100)];
      return { drift, seconds: drift.map((d) => own * d ** exponent * (r.whole(95, 105) / 100)) };
    };
    expect(driftExponentOf(Array.from({ length: 200 }, sample))).toBeCloseTo(exponent, 1);
    expect(driftExponentOf([{ seconds: [1, 2, 3] }, { seconds: [1, 2], drift: [1, 4] }])).toBe(0.7);
    // What runs the other way is noise.
    const samples = Array.from({ length: 50 }, sample);
    expect(driftExponentOf(samples.map((s) => ({ ...s, drift: s.drift.map((d) => 1 / d) })))).toBe(0);
    const slow = 1 / slowdownOf(1.25, 0.4);
    expect(correctedSeconds({ seconds: [1, 1, 1], drift: [1, 1.25, 1.25] }, 0.4)).toEqual([1, slow, slow]);
  });

  test('times that drifted far count only where there are few others', () => {
    const slow = 1 / slowdownOf(1.25);
    expect(correctedSeconds({ seconds: [1, 1, 1, 1.1], drift: [1, 1.04, 1.25, 2] })).toEqual([1, 1, slow]);
    expect(correctedSeconds({ seconds: [1, 1, 1.1], drift: [1, 1.04, 2] })).toEqual([1, 1, 1.1 / slowdownOf(2)]);
  });

  test('a repetition in a slow phase does not count as one of those that a visit wants', async () => {
    // Five seconds of forty everything takes twice as long: longer than the turns of a visit last.
    const { samples } = await calibrateIn({
      load: (at) => (at > 10 && at % 40 < 5 ? 2 : 1),
      budgetSeconds: 80,
    });
    for (const { seconds, shape } of samples) {
      const width = shape['width'] as number;
      expect(seconds.filter((t) => t < 1.5 * truth(width)).length, `width ${width}`).toBeGreaterThanOrEqual(3);
    }
    expect(errorOf(samples, correctedSeconds)).toBeLessThan(0.02);
  });

  test('a machine that stays slow is measured all the same, within bounds', async () => {
    const { samples, drift, end } = await calibrateIn({
      load: (at) => (at < 20 ? 1 : 1.9),
      budgetSeconds: 60,
    });
    expect(samples.filter((s) => median(s.drift as number[]) > 1.8).length).toBeGreaterThan(5);
    expect(errorOf(samples, correctedSeconds)).toBeLessThan(0.1);
    expect(drift.describe()?.highDrift).toBeGreaterThan(1.8);
    expect(end).toBeLessThan(63);
  });

  test('slow repetitions count where the clock follows the probe further out', async () => {
    const world = { load: (at: number) => (at < 20 ? 1 : 1.4), budgetSeconds: 60 };
    const usual = await calibrateIn(world);
    const further = await calibrateIn({ ...world, driftRetried: DRIFT_RETRIED.processor });
    expect(further.samples.length).toBeGreaterThan(usual.samples.length);
  });

  test('a typical time minds neither one repetition of many nor the order', () => {
    expect(typicalSeconds([2, 8])).toBeCloseTo(4, 12);
    expect(typicalSeconds([1e9, 1, 1, 1, 4, 1e-9, 4, 4, 4, 2])).toBeCloseTo(2 ** (9 / 8), 12);
    expect(typicalSeconds([3])).toBeCloseTo(3, 12);
  });
});

describe('the order of visits', () => {
  test('every point is visited twice, far apart, and checked only the first time', async () => {
    const { starts } = await calibrateIn({ budgetSeconds: 60 });
    const widths = [...new Set(starts.map((s) => s.width))];
    const twice = widths.filter((w) => starts.filter((s) => s.width === w).length >= 2);
    expect(twice.length).toBeGreaterThan(0.6 * widths.length);
    const gaps = twice.map((w) => {
      const [first, second] = starts.filter((s) => s.width === w);
      expect([first?.known, second?.known]).toEqual([false, true]);
      return (second?.at as number) - (first?.at as number);
    });
    expect(Math.min(...gaps)).toBeGreaterThan(60 / 4);
  });

  test('points take turns, so that no phase of seconds meets all repetitions of one', async () => {
    const { turns, held } = await calibrateIn({ budgetSeconds: 60 });
    const neighbours = turns.filter((width, i) => width === turns[i - 1]).length;
    expect(neighbours / turns.length).toBeLessThan(0.02);
    expect(held).toBe(0);
    // One at a time where the memory holds one.
    const tight = await calibrateIn({ openBytes: 1 });
    expect(tight.turns.slice(0, 4)).toEqual([1, 1, 1, 1]);
  });

  test('what does not fit beside others is tried alone', async () => {
    const { track } = await calibrateIn({
      points: 6,
      fail: (w, held) => (w === 3 && held > 0 ? new GpuError('out-of-memory', 'full') : null),
    });
    expect(track.entry.gaps).toEqual([]);
    expect(samplesOf(track).map((s) => s.shape['width'])).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test('what is left of the time goes to the points measured worst', async () => {
    const { track, end } = await calibrateIn({ budgetSeconds: 30, points: 3 });
    expect(end).toBeGreaterThan(28.5);
    for (const sample of samplesOf(track)) expect(sample.seconds.length).toBeGreaterThan(8);
  });

  test('a point begins only where it ends in time, with all that is open', async () => {
    const r = randomOf(seed);
    for (let i = 0; i < 50; i++) {
      const [openSeconds, turnSeconds] = [r.whole(1, 40) / 10, r.whole(1, 10) / 10];
      const budgetSeconds = r.whole(30, 120);
      const world = { budgetSeconds, openSeconds, turnSeconds };
      const { end, track } = await calibrateIn({ ...world, noise: 0.2 });
      const which = `${budgetSeconds} s, ${openSeconds} a point, ${turnSeconds} a repetition`;
      expect(end, which).toBeLessThan(1.2 * budgetSeconds);
      expect(end, which).toBeGreaterThan(0.6 * budgetSeconds);
      for (const { seconds } of samplesOf(track)) expect(seconds.length, which).toBeGreaterThanOrEqual(3);
    }
  });

  test('repetitions that agree end a visit; those that differ go on', async () => {
    const count = async (noise: number): Promise<number> => {
      const { turns, starts } = await calibrateIn({ points: 20, noise });
      return turns.length / starts.length;
    };
    const [quiet, noisy] = [await count(0.02), await count(0.2)];
    expect(quiet).toBeCloseTo(4, 0);
    // The time of a visit allows one more.
    expect(noisy).toBeGreaterThan(quiet + 0.5);
  });

  test('and to those that steps hang on, those of an earlier session, too', async () => {
    // Repetitions of one point may agree by chance, and end its visits.
    const HEAVY = [3, 4, 6, 201, 202, 203];
    const times = (width: number) => [0.9, 1, 1.1].map((t) => t * truth(width));
    const resumed = [201, 202, 203, 204, 205, 206, 207, 208].map((width) => sampleOf(width, times(width)));
    const { track } = await calibrateIn({
      budgetSeconds: 100,
      points: 100,
      share: (width) => (HEAVY.includes(width) ? 1 : 0),
      resumed,
    });
    const count = (width: number): number =>
      (samplesOf(track).find((s) => s.shape['width'] === width) as Sample).seconds.length;
    // A light point that was measured badly is visited again, too.
    for (const [heavy, light] of [
      [HEAVY.slice(0, 3), [5, 7, 10, 20, 30]],
      [HEAVY.slice(3), [204, 205, 206, 207, 208]],
    ] as const)
      expect(mean(heavy.map(count)), `${heavy.join()} against ${light.join()}`).toBeGreaterThan(
        2 * median(light.map(count)),
      );
    expect(samplesOf(track)).toHaveLength(108);
  });

  test('what cannot be measured is a gap with its reason; a lost device ends it', async () => {
    const failing = (error: GpuError) => calibrateIn({ points: 6, fail: (w) => (w === 3 ? error : null) });
    const some = await failing(new GpuError('unsupported', 'too large'));
    const gap = { variant: 'f32', shape: { rows: 1, width: 3 }, reason: 'unsupported: too large' };
    expect(some.track.entry.gaps).toEqual([gap]);
    expect(some.track.entry.samples).toHaveLength(5);
    const lost = await failing(new GpuError('lost', 'gone'));
    expect(lost.starts).toHaveLength(3);
    expect(lost.track.entry.samples).toHaveLength(2);
  });
});

describe(`what is saved (LLA_SIM_SEED=${seed})`, () => {
  const world = { load: (at: number) => (at % 7 < 2 ? 1.5 : 1), budgetSeconds: 8, points: 40 };
  const repetitionsOf = (entry: Track['entry']): number => entry.samples.reduce((sum, s) => sum + s.seconds.length, 0);

  test('can be read again in every state, and holds every repetition that has ended', async () => {
    let states = 0;
    await calibrateIn({
      ...world,
      onSave: (entry, _, ended) => {
        states++;
        for (const sample of entry.samples) sampleSchema.parse(sample);
        expect(repetitionsOf(entry)).toBe(ended);
      },
    });
    expect(states).toBeGreaterThan(100);
  });

  test('names the point that is being prepared, for as long as that lasts', async () => {
    let marks = 0;
    const { track } = await calibrateIn({
      ...world,
      onSave: (entry, must) => {
        expect(entry.gaps.map((g) => g.reason)).toEqual(must ? [UNFINISHED] : []);
        if (must) marks++;
      },
    });
    expect(marks).toBe(track.entry.samples.length);
    expect(track.entry.gaps).toEqual([]);
  });

  test('keeps a point that is taken for wrong until it has been measured anew', async () => {
    const first = (await calibrateIn({ ...world, points: 5 })).track.entry.samples;
    const before = structuredClone(first);
    let least = Infinity;
    const { track } = await calibrateIn({
      ...world,
      points: 0,
      resumed: first,
      outliers: () => [0],
      onSave: (entry) => (least = Math.min(least, ...entry.samples.map((s) => s.seconds.length))),
    });
    expect(least).toBeGreaterThanOrEqual(3);
    expect(track.entry.samples[0]?.seconds).not.toEqual(before[0]?.seconds);
  });
});

describe(`going on with a session that was killed (LLA_SIM_SEED=${seed})`, () => {
  const half = (width: number): Sample => ({ ...sampleOf(width, [truth(width)]), calls: [null], probes: [null] });

  test('points with fewer repetitions than they need come first', async () => {
    const resumed = [half(101), half(102)];
    const { starts, track } = await calibrateIn({ budgetSeconds: 3, points: 30, resumed });
    expect(starts.slice(0, 3).map((s) => s.width)).toEqual([101, 102, 1]);
    expect(track.entry.samples.every((s) => s.seconds.length >= 3)).toBe(true);
  });

  test('times without a run of the probe count as undisturbed', async () => {
    const world = { budgetSeconds: 1, points: 0, noise: 0 };
    const [sample] = (await calibrateIn({ ...world, resumed: [half(101)] })).samples as [Sample];
    expect(sample.seconds.length).toBeGreaterThanOrEqual(3);
    for (const drift of sample.drift as number[]) expect(drift).toBeCloseTo(1, 9);
  });

  test('a point of one repetition is visited again where there is time', async () => {
    const resumed = Array.from({ length: 20 }, (_, i) => half(101 + i));
    const { starts } = await calibrateIn({ budgetSeconds: 30, points: 0, resumed });
    expect(new Set(starts.map((s) => s.width)).size).toBe(20);
  });
});

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
