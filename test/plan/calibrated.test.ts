/** Plans priced from the carried calibration of a software adapter: the whole way from samples to a step's interval. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { digestSamples } from '../../src/cost/fit/fit.js';
import { ask } from '../../src/plan/ask/on-disk.js';
import { calibrationSchema } from '../../src/schema/calibration.js';
import { kernelHash } from '../../kernels/source.js';
import { TERMS_VERSION, type KernelName } from '../../kernels/registry.js';

const FILE = 'calibrations/mesa-llvmpipe.json';
const calibration = calibrationSchema.parse(JSON.parse(readFileSync(FILE, 'utf8')));

describe('the carried calibration', () => {
  it.each(calibration.kernels.map((k) => [k.kernel, k] as const))(
    '%s has predictors that belong to its samples',
    (kernel, k) => {
      expect(Object.keys(k.predictors).sort()).toEqual([...new Set(k.samples.map((s) => s.variant))].sort());
      for (const [variant, p] of Object.entries(k.predictors))
        expect(p.samplesDigest).toBe(digestSamples(kernel as KernelName, variant, k.samples));
    },
  );

  it('holds no wrong result: every point was checked against float64 before it was timed', () => {
    // What `rebuild` writes is rounded to halves; everything else is f32.
    for (const k of calibration.kernels)
      for (const s of k.samples) expect(s.relativeError, k.kernel).toBeLessThan(k.kernel === 'rebuild' ? 5e-4 : 2e-5);
  });
});

/** Kernels whose source or terms have changed since they were measured. */
const stale = calibration.kernels
  .filter(
    (k) =>
      k.sourceHash !== kernelHash(k.kernel as KernelName) ||
      Object.values(k.predictors).some((p) => p.modelVersion !== TERMS_VERSION),
  )
  .map((k) => k.kernel);

describe('a plan priced from it', () => {
  const scenario = {
    calibration: FILE,
    context: 1024,
    batch: 4,
    codec: ['full', 'lla'],
    ratio: [4, 21.33],
    path: ['full', 'reconstruct', 'block-absorbed', 'absorbed'],
  };

  it('rests on measurements, or says which kernels have changed since, with ordered intervals', async () => {
    const report = await ask(scenario);
    const notes = report.notes.join(' ');
    if (stale.length > 0) expect(notes).toContain(`stale for ${stale.join(', ')}`);
    else expect(notes).not.toContain('stale');
    expect(report.plans.length).toBe(7);
    for (const p of report.plans) {
      const s = p.decode.secondsPerStep;
      // The evidence of a step, and better evidence, cover at least 90 % of its time; roofline only where a kernel has
      // changed.
      const share = p.decode.evidenceShare!;
      if (stale.length === 0) expect(share.roofline, p.id).toBe(0);
      expect(share.roofline > 0.1 ? ['roofline'] : ['measured', 'interpolated', 'extrapolated'], p.id).toContain(
        p.decode.evidence,
      );
      // What is left of the calibration still counts: its submission cost, and kernels that have not changed.
      expect(share.measured).toBeGreaterThan(0);
      expect(s!.low).toBeLessThan(s!.estimate);
      expect(s!.estimate).toBeLessThan(s!.high);
    }
    expect(report.notes.join(' ')).toContain('say nothing about a GPU');
    expect(report.device.calibration?.software).toBe(true);
  });

  it('never prices a GPU', async () => {
    await expect(ask({ ...scenario, device: 'h200' })).rejects.toThrow('cannot price');
    const report = await ask({ vram: '141GB' });
    expect(report.device.calibration).toBeNull();
    expect(report.plans.every((p) => !Object.hasOwn(p.decode.pricedBy!, 'lla-sim'))).toBe(true);
  });
});
