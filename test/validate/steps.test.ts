/** Steps measured beside predictions: the figures that a validation reports, on a tiny model with made-up prices. */
import '../gpu/timed.js';
import { expect, test } from 'vitest';
import { datasheetPricer } from '../../src/cost/pricers.js';
import type { KernelCall } from '../../kernels/registry.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule } from '../../src/schedule/schedule.js';
import { Budget } from '../../src/io/budget.js';
import { ticking } from '../bench/ticking.js';
import type { Calibrated } from '../../src/validate/calibrated.js';
import { DriftWatch } from '../../src/validate/controls.js';
import { validationModel } from '../../src/bench/calibrate/lists.js';
import { candidateOf, configurationFor, promptGrid, stepGrid } from '../../src/validate/grid.js';
import { SMALL_OURO } from '../../src/validate/memory/geometries.js';
import type { DecoderCase } from '../../src/validate/decoding.js';
import { checkSteps, groupsOf } from '../../src/validate/latency.js';
import { checkLongContext, longestContext } from '../../src/validate/long-context.js';
import { checkPrompts, type PromptCase } from '../../src/validate/prefill.js';
import { kernelSummaries } from '../../src/validate/report.js';
import type { Device } from '../../src/gpu/index.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';

const RATES = { bytesPerSecond: 10e9, f32FlopsPerSecond: 50e9, matrixFlopsPerSecond: null };
/** A calibration that has measured nothing but matrix products. */
const CALIBRATED = {
  file: 'made up',
  stale: [],
  pricer: datasheetPricer(RATES, null),
  driftExponent: () => 0.7,
  isMeasured: (call: KernelCall) => call.kernel === 'matmul',
  calibration: { overheads: { submitSeconds: 1e-5, dispatchSeconds: 1e-6 } },
} as unknown as Calibrated;

const cases = (path: 'full' | 'reconstruct', batch: number, contextTokens: number): DecoderCase => {
  const codec = path === 'full' ? ({ kind: 'full', ratio: null } as const) : ({ kind: 'lla', ratio: 2 } as const);
  const candidate = candidateOf(SMALL_OURO, { ...codec, path })!;
  return { id: path, c: configurationFor(SMALL_OURO, candidate, Infinity), batch, contextTokens };
};

test('decoders are grouped so that those of a group fit together', () => {
  const all = [cases('full', 1, 64), cases('full', 2, 64), cases('reconstruct', 1, 96), cases('full', 1, 128)];
  expect(groupsOf(all, Infinity).map((g) => g.length)).toEqual([4]);
  expect(groupsOf(all, 0).map((g) => g.length)).toEqual([1, 1, 1, 1]);
  expect(groupsOf(all, Infinity).flat()).toEqual(all);
});

test('the grid has every path, both evictions, and contexts that steps of a few rounds do not leave', () => {
  for (const software of [true, false]) {
    const geometry = validationModel(software, null);
    const drawn = () => stepGrid({ geometry, software, quick: false, seed: SEED, bindingBytes: 2 ** 27 });
    const grid = drawn();
    expect(new Set(grid.map(({ c }) => `${c.path}${c.materialised ? ' materialised' : ''}`)).size).toBe(6);
    expect(new Set(grid.map(({ c }) => c.eviction?.policy ?? 'none')).size).toBe(3);
    expect(new Set(grid.map(({ c }) => c.codec.kind)).size).toBeGreaterThanOrEqual(5);
    expect(grid.filter((s) => s.contextTokens % 32 !== 0 || s.contextTokens < 64)).toEqual([]);
    expect(drawn()).toEqual(grid);
  }
});

test('prompts of the grid are whole and in chunks, of rows and of latents; quick has one', () => {
  for (const software of [true, false]) {
    const grid = (quick: boolean): PromptCase[] =>
      promptGrid({ geometry: validationModel(software, null), software, quick, bindingBytes: 2 ** 27 });
    const kinds = grid(false).map(({ c, prompt }) => `${c.codec.kind} ${prompt.method}`);
    expect(kinds).toEqual(['full accumulated', 'full chunked', 'lla accumulated', 'lla chunked']);
    for (const { prompt } of grid(false))
      expect(prompt.method === 'chunked').toBe(prompt.chunkTokens < prompt.promptTokens);
    expect(grid(true)).toHaveLength(1);
  }
});

const ASKED = { seed: SEED, calibrated: CALIBRATED, openBytes: Infinity };

/** What runs beside a watch without control points. */
async function watched<T>(device: Device, body: (watch: DriftWatch) => Promise<T>): Promise<T> {
  const watch = await DriftWatch.open(device, CALIBRATED, [], SEED);
  try {
    return await body(watch);
  } finally {
    watch.free();
  }
}

describeGpu(`steps (LLA_SIM_SEED=${SEED})`, (device) => {
  test('are measured with all their operations, at the shapes that are priced', async () => {
    const all = [cases('full', 1, 96), cases('reconstruct', 2, 128)];
    const { steps, notRun, shapes } = await watched(device, (watch) =>
      checkSteps(device, all, { ...ASKED, watch, budget: ticking(1000), mostRounds: 4 }),
    );
    expect(notRun).toEqual([]);
    expect(steps.map((s) => s.id)).toEqual(['full', 'reconstruct']);
    steps.forEach((step, i) => {
      const { c, batch, contextTokens } = all[i] as DecoderCase;
      let calls = 0;
      forEachOp(c, schedule(c, batch, contextTokens), (_, count) => (calls += count));
      expect(step.kernels.reduce((sum, k) => sum + k.calls, 0)).toBe(calls);
      expect(step.measuredSeconds).toBeGreaterThan(0);
      expect(step.rawSeconds.length).toBeGreaterThanOrEqual(3);
      expect(step.drift).toHaveLength(step.rawSeconds.length);
      expect(step.operationsSeconds).toBeCloseTo(
        step.kernels.reduce((sum, k) => sum + k.measuredSeconds, 0),
        12,
      );
      // The kernels' own predictions add up to the step's, which has no submission where the device's clock leaves it
      // out.
      const sum = step.kernels.reduce((total, k) => total + k.predicted.estimate, 0);
      expect(step.predicted.estimate / sum).toBeCloseTo(1, device.hasTimestamps ? 9 : 0);
      expect([step.evidence, step.rooflineShare]).toEqual(['roofline', 1]);
    });
    expect(shapes.all).toBeGreaterThan(10);
    expect(shapes.unmeasured).toBeGreaterThan(0);
    expect(shapes.unmeasured).toBeLessThan(shapes.all);
    expect(kernelSummaries(steps).reduce((sum, k) => sum + k.share, 0)).toBeCloseTo(1, 9);
  });

  test('prompts are measured beside their price', async () => {
    const prompts = (['full', 'reconstruct'] as const).flatMap((path): PromptCase[] =>
      (['accumulated', 'chunked'] as const).map((method) => {
        const prompt = { method, promptTokens: 40, chunkTokens: 16 };
        return { id: path, c: cases(path, 1, 64).c, prompt };
      }),
    );
    const seen: string[] = [];
    const report = await watched(device, (watch) =>
      checkPrompts(device, prompts, {
        ...{ ...ASKED, watch, budget: ticking(1000), mostRounds: 2 },
        onCase: (done, total, id) => seen.push(`${done} of ${total} ${id}`),
      }),
    );
    expect(report.notRun).toEqual([]);
    expect(seen).toHaveLength(4);
    expect(report.rows.map(({ id, method }) => `${id} ${method}`)).toEqual(
      prompts.map(({ id, prompt }) => `${id} ${prompt.method}`),
    );
    for (const row of report.rows) {
      expect(row.measuredSeconds).toBeGreaterThan(0);
      expect(row.drift).toHaveLength(row.rawSeconds.length);
      expect(row.predicted.low).toBeLessThanOrEqual(row.predicted.high);
      expect([row.evidence, row.rooflineShare]).toEqual(['roofline', 1]);
    }
    expect(report.summary?.count).toBe(4);
    const spent = await watched(device, (watch) =>
      checkPrompts(device, prompts.slice(0, 2), { ...ASKED, watch, budget: ticking(0) }),
    );
    const reason = 'the rest of the time budget was too short';
    expect([spent.rows, spent.notRun.map((n) => n.reason)]).toEqual([[], [reason, reason]]);
    const late = await watched(device, (watch) =>
      checkSteps(device, [cases('full', 1, 96)], { ...ASKED, watch, budget: ticking(0) }),
    );
    expect([late.steps, late.notRun.map((n) => n.reason)]).toEqual([[], [reason]]);
  });

  test('have their time in every group of decoders that are open together', async () => {
    const all = [1, 2, 3, 4].map((batch) => cases('full', batch, 96));
    const { steps, notRun } = await watched(device, (watch) =>
      checkSteps(device, all, { ...ASKED, openBytes: 0, watch, budget: ticking(200) }),
    );
    expect([steps.map(({ batch }) => batch), notRun]).toEqual([[1, 2, 3, 4], []]);
  });

  test('that had no place in their group’s time have one where others took less than theirs', async () => {
    const all = [1, 2, 3, 4, 5, 6].map((batch) => cases('full', batch, 96));
    const measured = [];
    for (const mostRounds of [3, 28]) {
      const { steps, notRun } = await watched(device, (watch) =>
        checkSteps(device, all, { ...ASKED, watch, budget: ticking(45), mostRounds }),
      );
      expect(new Set([...steps, ...notRun].map((s) => ('batch' in s ? `${s.id} ${s.batch}` : s.id))).size).toBe(6);
      measured.push(steps.length);
    }
    expect(measured[0]!).toBeGreaterThan(measured[1]!);
  });

  test('a long context is the longest that the binding holds, and a million tokens are priced', async () => {
    const { c } = cases('full', 1, 64);
    // 2 KV heads x 16 x 2 bytes.
    expect(longestContext({ ...c, bindingBytes: 4096 * 64 }, Infinity)).toBe(4096);
    expect(longestContext(c, Infinity)).toBe(2 ** 20);
    const report = await watched(device, (watch) =>
      checkLongContext(...([device, 'full', { ...c, bindingBytes: 2048 * 64 }] as const), {
        ...ASKED,
        watch,
        budget: new Budget(20),
        memoryBytes: 2 ** 30,
      }),
    );
    expect([report.measured?.contextTokens, report.boundedBy]).toEqual([2048, 'memory']);
    // 2 (K and V) x 2 layers x 2 loops x 2 KV heads x 16 x 2 bytes.
    expect(report.atMillion.cacheBytes).toBe(2 ** 20 * 512);
    expect(report.atMillion.secondsPerStep.estimate).toBeGreaterThan(report.measured?.predicted.estimate as number);
  });
});
