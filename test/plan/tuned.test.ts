/** Times of a calibration beside what tuned kernels reach: a slow kernel is not a slow codec. */
import { describe, expect, it } from 'vitest';
import { findDevice } from '../../src/devices/find.js';
import { benchTable } from '../../src/bench/regression/print.js';
import type { BenchReport } from '../../src/bench/regression/report.js';
import { answer, prepare, pricesOn, type Sources } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { loadCalibration } from '../../src/plan/ask/calibrations.js';
import { tunedSources } from '../../src/plan/ask/stacks.js';
import { kernelPoints, rooflineOf } from '../../src/report/pictures/kernel-roofline.js';
import { planTable } from '../../src/report/text/plan-table.js';
import type { Scenario } from '../../src/schema/settings.js';
import { median } from '../../src/numbers/statistics.js';

const scenario: Scenario = { device: 'h200', codec: ['full', 'lla'], ratio: [4], batch: 8 };

/** The carried calibration, as if it had been measured on an H200. */
async function calibrated(): Promise<Sources> {
  const { gpu: _, ...sources } = await readSources(scenario);
  const { file, calibration } = await loadCalibration('calibrations/mesa-llvmpipe.json');
  const device = { ...calibration.device, description: 'NVIDIA H200', software: false, limits: {} };
  return {
    ...sources,
    gpu: null,
    stack: 'lla-sim',
    calibration: { file, content: { ...calibration, device }, stale: [] },
    attainable: tunedSources(findDevice('h200')),
  };
}

describe('--stack lla-sim', () => {
  it('shows the attainable time beside the measured one: that of --stack attainable without a server', async () => {
    const report = answer(scenario, await calibrated());
    const sources = await readSources({ ...scenario, stack: 'attainable' });
    const attainable = answer({ ...scenario, stack: 'attainable' }, sources);
    const { secondsPerStep, secondsPerSequence } = sources.gpu!.server;
    expect(secondsPerStep.estimate).toBeGreaterThan(0);
    for (const p of report.plans) {
      const other = attainable.plans.find((q) => q.id === p.id)!;
      const server = secondsPerStep.estimate + other.decode.batch * secondsPerSequence.estimate;
      expect(p.decode.attainable!.estimate, p.id).toBeCloseTo(other.decode.secondsPerStep!.estimate - server, 9);
      expect(p.knee?.attainable, p.id).toEqual(p.decode.attainable);
      // A processor's kernels are no H200's.
      expect(p.decode.secondsPerStep!.estimate).toBeGreaterThan(10 * p.decode.attainable!.estimate);
    }
    const text = planTable(report, { colour: false, width: 200, all: true, notes: true });
    expect(text).toMatch(/ms\/token +tuned /);
    expect(text).toContain('no fault of the codec');
  });

  it('no other plan has it, and its table no such column', async () => {
    const report = answer(scenario, await readSources(scenario));
    expect(report.plans.every((p) => p.decode.attainable === undefined)).toBe(true);
    expect(planTable(report, { colour: false, width: 200, all: true })).not.toMatch(/ms\/token +tuned /);
    expect(prepare(scenario, await readSources({ vram: '77GB' })).request.attainable).toBeUndefined();
  });
});

describe('the picture of kernels', () => {
  it('has the rate of tuned kernels at the same calls, and its median share; none where nothing is known', async () => {
    const { calibration, attainable } = await calibrated();
    const pricer = pricesOn(findDevice('h200'), attainable!);
    const kernels = kernelPoints(calibration!, pricer);
    const attend = kernels.find((k) => k.kernel === 'attend')!;
    expect(attend.tuned.length).toBe(attend.points.length);
    const shares = attend.points.map(({ y }, i) => y / attend.tuned[i]!.y);
    expect(attend.attainableShare).toBeCloseTo(median(shares), 12);
    // A processor's kernels are no H200's.
    expect(attend.attainableShare).toBeLessThan(0.1);
    // What a neighbour's kernel does has no rate of its own.
    expect(kernels.find((k) => k.kernel === 'append')?.tuned ?? []).toEqual([]);
    expect(rooflineOf(calibration!, pricer)!.summary).toMatch(
      /what tuned kernels reach on this GPU: .*attend [\d.]+ %/,
    );
    expect(rooflineOf(calibration!)!.summary).not.toContain('tuned');
  });
});

describe('bench --roofline', () => {
  const timed = (attainableShare: number | null) => ({
    state: 'timed' as const,
    kernel: 'attend' as const,
    variant: 'f16',
    shape: {},
    seconds: [1],
    medianSeconds: 1,
    relativeError: 0,
    rates: {
      bytesPerSecond: 1,
      flopsPerSecond: 1,
      readShare: 1,
      f32Share: 1,
      rooflineShare: 1,
      boundBy: 'read' as const,
    },
    shares: { read: null, copy: null, f32: null, f16: null, matrix: null },
    attainableShare,
  });
  const report = (share: number | null): BenchReport =>
    ({
      device: { description: 'NVIDIA H200', software: false },
      ceilings: {
        ...{ readBytesPerSecond: 1e12, copyBytesPerSecond: 1e12, f32FlopsPerSecond: 1e12 },
        ...{ f16FlopsPerSecond: null, matrixFlopsPerSecond: null },
      },
      results: [timed(share)],
      ...{ paths: [], notes: [], against: null, clock: 'wall', regressed: false },
    }) as unknown as BenchReport;

  it('prints the share of the attainable rate where there is one, and no column where there is none', () => {
    expect(benchTable(report(0.31))).toMatch(/% tuned[\s\S]* 31 %/);
    expect(benchTable(report(null))).not.toContain('% tuned');
  });

  it('a tuned kernel takes less than 3 times the bytes at full bandwidth, and more than none', () => {
    const spec = findDevice('h200');
    const shape = { sequences: 8, kvHeads: 16, group: 1, context: 8192, keyWidth: 128, valueWidth: 128 };
    const call = {
      kernel: 'attend' as const,
      variant: 'f16',
      shape: { ...shape, branchWidth: 0, branchHeads: 0, groupSize: 0, splits: 8 },
    };
    const seconds = pricesOn(spec, tunedSources(spec)).price(call).estimate;
    const floor = (8 * 16 * 8192 * 128 * 4) / spec.memoryBytesPerSecond;
    expect(seconds / floor).toBeGreaterThan(1);
    expect(seconds / floor).toBeLessThan(3);
  });
});
