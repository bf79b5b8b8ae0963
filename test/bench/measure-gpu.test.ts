/** Calibrating, timing against the ceilings and tuning, shortly, on the device at hand. */
import '../gpu/timed.js';
import { expect, test } from 'vitest';
import { Budget } from '../../src/io/budget.js';
import { calibrate } from '../../src/bench/calibrate/calibrate.js';
import { describeHost } from '../../src/bench/host.js';
import { ticking } from './ticking.js';
import { bench } from '../../src/bench/regression/bench.js';
import { tune } from '../../src/bench/calibrate/tune.js';
import { calibrationSchema, type Calibration } from '../../src/schema/calibration.js';
import { describeGpu } from '../gpu/device.js';
import { SEED as seed } from '../gpu/random.js';

const CALLS = [1, 4, 16].map((rows) => ({ kernel: 'swiglu', variant: 'f32', shape: { rows, width: 5632 } }) as const);
/** Short, but beyond what the ceilings take. */
const BUDGET = 5;

describeGpu(`measuring (LLA_SIM_SEED=${seed})`, (device) => {
  test('a calibration keeps raw times with their drift, says what the probe did, and passes its schema', async () => {
    const seen: number[] = [];
    const calibration = await calibrate({
      device,
      host: describeHost(),
      budgetSeconds: BUDGET,
      seed,
      kernels: ['swiglu'],
      calls: [() => CALLS, () => expect.unreachable('a list that so short a budget does without')],
      onProgress: (p) => seen.push(p.secondsLeft),
    });
    const parsed = calibrationSchema.parse(JSON.parse(JSON.stringify(calibration)));
    const samples = parsed.kernels.flatMap((k) => k.samples);
    expect(samples.length).toBeGreaterThan(0);
    for (const s of samples) expect(s.probes).toHaveLength(s.seconds.length);
    expect(parsed.probeSeconds?.length).toBeGreaterThan(samples.length);
    expect(parsed.overheads.upload?.bytesPerSecond).toBeGreaterThan(0);
    expect(seen.length).toBeGreaterThanOrEqual(samples.length);
    expect(seen[0]).toBeLessThan(BUDGET);

    // Going on with another kernel keeps the first, and the runs of the probe beside it.
    const resumed = await calibrate({
      device,
      host: describeHost(),
      budgetSeconds: 1,
      seed,
      kernels: ['rope'],
      calls: [() => [{ kernel: 'rope', variant: 'half-split', shape: { rows: 4, heads: 32, headDim: 128 } }]],
      resumeFrom: parsed,
    });
    const secondsIn = ({ kernels }: Calibration) =>
      kernels.find((k) => k.kernel === 'swiglu')?.samples.map((sample) => sample.seconds);
    expect(secondsIn(resumed)).toEqual(secondsIn(parsed));
    expect(resumed.kernels.map((k) => k.kernel).sort()).toEqual(['rope', 'swiglu']);
    const { probeSeconds: runs = [] } = parsed;
    expect(resumed.probeSeconds?.slice(0, runs.length)).toEqual(runs);
    expect(resumed.probeSeconds?.length).toBeGreaterThan(runs.length);
  });

  test('shares of the ceilings are above 0, and those of the read rate no more than a cache explains', async () => {
    const asked = { against: null, kernels: null, calls: CALLS.slice(2), threshold: 0.05, seed, all: false };
    const within = (seconds: number): ReturnType<typeof bench> =>
      bench(device, { ...asked, budget: ticking(seconds), tunedSeconds: () => 1e-9 });
    // There is time for the ceilings, and none for a call beside them.
    await expect(within(12)).rejects.toThrow('nothing was measured: overheads and ceilings took 1 of 12 s');
    const [result] = (await within(60)).results;
    if (result?.state !== 'timed') throw new Error(`not timed: ${JSON.stringify(result)}`);
    expect(result.shares.read?.estimate).toBeGreaterThan(0.001);
    expect(result.shares.read?.estimate).toBeLessThan(20);
    expect(result.shares.read?.low).toBeLessThanOrEqual(result.shares.read?.high ?? 0);
    expect(result.shares.matrix).toBeNull();
    expect(result.attainableShare).toBeCloseTo(1e-9 / result.medianSeconds, 12);
    expect(result.seconds.length).toBeGreaterThanOrEqual(4);
  });

  test('tuning measures right candidates only, and leaves a kernel without tunables alone', async () => {
    const shape = { rows: 64, splits: 8, width: 128, keyWidth: 0 };
    const calls = [{ kernel: 'attend_merge', variant: 'f32', shape } as const, ...CALLS];
    const tuned = await tune(device, { calls, clock: 'wall', submitSeconds: 0, budget: new Budget(1), seed });
    expect(Object.keys(tuned).filter((k) => k !== 'attend_merge')).toEqual([]);
  });
});
