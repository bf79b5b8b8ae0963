/** The order of a calibration's visits and its correction for drift, on a machine whose clock is a formula. */
import { describe, expect, test } from 'vitest';
import { DRIFT_RETRIED } from '../../src/bench/calibrate/repetitions.js';
import { mean, median } from '../../src/numbers/statistics.js';
import { samplesOf, UNFINISHED, type Track } from '../../src/bench/calibrate/visits.js';
import { GpuError } from '../../kernels/host/errors.js';
import { sampleSchema, type Sample } from '../../src/schema/calibration.js';
import { randomOf, SEED as seed } from '../gpu/random.js';
import { correctedSeconds, driftExponentOf, slowdownOf, typicalSeconds } from '../../src/schema/drift.js';

import { calibrateIn, errorOf, PROBE_SECONDS, sampleOf, truth } from './worlds.js';

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
