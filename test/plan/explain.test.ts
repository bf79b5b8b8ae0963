/** Why a row takes its time: what is told must come to the prices that a plan is made of. */
import { describe, expect, it } from 'vitest';
import { explainStep, widthOf } from '../../src/cost/explain.js';
import { EVIDENCE, type Interval } from '../../src/cost/evidence.js';
import { priceStep, type SchedulePrice } from '../../src/cost/latency.js';
import { calibrationPricer, elsewhere } from '../../src/cost/pricers.js';
import { UserError } from '../../src/errors.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { candidateOf } from '../../src/plan/ask/candidates.js';
import { configurationOf } from '../../src/plan/evaluate/evaluate.js';
import { explainRow } from '../../src/plan/evaluate/explain.js';
import { makePlan } from '../../src/plan/plan.js';
import { representatives } from '../../src/plan/decide/representatives.js';
import { randomFrom } from '../../src/numbers/random.js';
import { explainText } from '../../src/report/text/explain-text.js';
import type { Scenario } from '../../src/schema/settings.js';
import type { KernelCall } from '../../kernels/registry.js';
import { SEED } from '../gpu/random.js';

const random = randomFrom(SEED);
const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
const CALIBRATION = 'calibrations/mesa-llvmpipe.json';

async function planned(scenario: Scenario) {
  const { request, refused } = prepare(scenario, await readSources(scenario, null));
  return { request, report: makePlan(request, refused, { everyRow: false }) };
}

describe(`explanations (LLA_SIM_SEED=${SEED})`, () => {
  it('come to the price, its width, and the whole of the squared width', async () => {
    const scenarios: Scenario[] = [
      ...Array.from({ length: 4 }, () => ({
        device: pick(['h200', 'h100', 'b200', 'a100-80', 'l40s', 'mi300x', 'rtx-4090']),
        model: pick(['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b']),
        context: pick([1000, 4096, 50_000]),
      })),
      { device: 'h100', stack: 'trtllm', context: pick([300, 3000]) },
      { device: pick(['h100-pcie', 'a100-40', 'gh200']), context: pick([300, 4096]) },
      { calibration: CALIBRATION, vram: '24GB', context: pick([300, 3000]) },
    ];
    let [tables, fitted, floors] = [0, 0, 0];
    for (const scenario of scenarios) {
      const { request, report } = await planned(scenario);
      for (const p of representatives(report.plans).filter((row) => row.knee)) {
        const e = explainRow(request, report, p.id);
        expect(e.secondsPerStep, p.id).toEqual(p.knee!.secondsPerStep);
        if (e.floor) {
          // Kernels are narrower than whole servers, which set the ends.
          expect(e.floor.kernels.low).toBeGreaterThanOrEqual(e.secondsPerStep.low);
          expect(e.floor.kernels.high).toBeLessThanOrEqual(e.secondsPerStep.high);
          floors++;
        }
        const shares = e.contributions.map((c) => c.shareOfWidth);
        expect(shares.reduce((sum, share) => sum + share, e.shareOfOthers)).toBeCloseTo(1, 6);
        expect(shares).toEqual([...shares].sort((a, b) => b - a));
        for (const line of explainText(e, { width: 80 }).split('\n')) expect(line.length).toBeLessThanOrEqual(80);
        for (const { call } of e.contributions) {
          if (!call) continue;
          const { estimate, high } = request.pricer!.price(call);
          expect(call.seconds.estimate).toBe(estimate);
          expect(widthOf(call.leftOut), JSON.stringify(call)).toBeCloseTo(Math.log(high / estimate), 6);
          expect(call.law.parts.every((part) => part.seconds >= 0)).toBe(true);
          const most = call.law.parts.reduce((sum, part) => sum + part.seconds, 0);
          expect(call.law.seconds).toBeLessThanOrEqual(most * (1 + 1e-9));
          if (call.data) tables++;
          if (call.leftOut.some(({ what }) => what.includes('measured shapes of all kernels, left out'))) fitted++;
        }
      }
    }
    expect(tables).toBeGreaterThan(0);
    expect(fitted).toBeGreaterThan(0);
    expect(floors).toBeGreaterThan(0);
  });

  it('explain an exchange by its law or table, and what a host may add', async () => {
    for (const device of ['mi300x', 'rtx-4090', 'l40s', 'rtx-pro-6000', 'a800', 'h800']) {
      const { request, report } = await planned({ device, gpus: 2, model: 'ouro-1.4b', context: 1000, batch: 1 });
      const e = explainRow(request, report, 'full');
      const { exchange } = e.contributions.find(({ kernel }) => kernel === 'collective')!;
      const { kind, bytesEach, gpus, seconds, leftOut } = exchange!;
      const { estimate, high } = request.pricer!.collective(kind, bytesEach, gpus)!;
      expect(seconds.estimate).toBe(estimate);
      expect(widthOf(leftOut), device).toBeCloseTo(Math.log(high / estimate), 6);
      expect(explainText(e, { width: 200 })).toContain('all-reduce of 2048 values over 2 GPUs\n');
    }
  });

  it('tell a sum of a table and a gather of a law apart', async () => {
    const model = 'ledger/models/qwen3-32b.json';
    const { request, report } = await planned({ device: 'rtx-pro-6000', gpus: 8, model, batch: 100, context: 1000 });
    const found = explainRow(request, report, 'full').contributions.filter(({ kernel }) => kernel === 'collective');
    expect(found.map(({ exchange }) => exchange!.kind).sort()).toEqual(['all-gather', 'all-reduce']);
    for (const { by, exchange } of found)
      expect(request.pricer!.collective(exchange!.kind, exchange!.bytesEach, exchange!.gpus)!.by).toBe(by);
  });

  it('keep the width of a runtime’s host, of its kernels and of whole servers apart', async () => {
    for (const device of ['b300', 'h800-pcie', 'rtx-5090']) {
      const scenario: Scenario = { device, stack: 'vllm-rlt', model: 'ouro-1.4b', context: pick([500, 4096, 30_000]) };
      const { request } = await planned(scenario);
      const { pricer } = request;
      const row = candidateOf(request, 'full/full')!;
      const c = configurationOf(request, row);
      const exactly = <P extends Interval>(price: P): P => ({ ...price, low: price.estimate, high: price.estimate });
      const batch = Math.ceil(random() * 64);
      const step = priceStep(c, pricer!, batch, request.contextTokens);
      const sure = { ...pricer!, price: (call: KernelCall) => exactly(pricer!.price(call)) };
      const ofSureKernels = priceStep(c, sure, batch, request.contextTokens);
      const server = (of: SchedulePrice): Interval => of.byKernel.find(({ kernel }) => kernel === 'step-overhead')!;
      // What makes kernels unsure is no part of the server's own width.
      expect(server(step)).toEqual(server(ofSureKernels));
      const e = explainStep(c, pricer!, batch, request.contextTokens);
      const weak = EVIDENCE.slice(EVIDENCE.indexOf(step.evidence)).map((word) => step.evidenceShare[word]);
      expect(e.weakest.share).toBeCloseTo(weak.reduce((sum, one) => sum + one));
      expect(e.contributions.reduce((sum, one) => sum + one.shareOfWidth, e.shareOfOthers)).toBeCloseTo(1, 6);
      // What the host hides makes no step unsure: a kernel carries no more than the step varies by it.
      const half = (i: Interval): number => i.high - i.estimate;
      const kernels = e.contributions.filter(({ kernel }) => kernel !== 'server' && kernel !== 'step-overhead');
      const share = kernels.reduce((sum, one) => sum + one.shareOfWidth, 0);
      expect(share).toBeLessThanOrEqual((half(step.ofKernels!) / half(step)) ** 2 * (1 + 1e-9));
    }
  });

  it('say what another machine adds', async () => {
    const { request, report } = await planned({ calibration: CALIBRATION, vram: '24GB', context: 500 });
    const content = (await readSources({ calibration: CALIBRATION, vram: '24GB', context: 500 }, null)).calibration!
      .content;
    const own = calibrationPricer(content, { stale: new Set(), link: null, source: CALIBRATION });
    const c = configurationOf(request, candidateOf(request, report.plans[0]!.id)!);
    const there = elsewhere(own);
    for (const { call } of explainStep(c, there, 2, 500).contributions) {
      if (!call) continue;
      const { estimate, high } = there.price(call);
      expect(widthOf(call.leftOut)).toBeCloseTo(Math.log(high / estimate), 6);
    }
    expect(priceStep(c, there, 2, 500).high).toBeGreaterThan(priceStep(c, own, 2, 500).high);
  });

  it('are of a path that the short table never shows, too', async () => {
    const { request, report } = await planned({ device: 'h200', context: 4096 });
    const e = explainRow(request, report, 'lla-21.33x/absorbed');
    expect(e.batch).toBeGreaterThan(1);
    const all = makePlan(request).plans.find((p) => p.id === e.planId)!;
    expect(e.secondsPerStep).toEqual(all.knee!.secondsPerStep);
  });

  it('are refused for rows that are not there, or take no time', async () => {
    const { request, report } = await planned({ device: 'h200', context: 4096 });
    expect(() => explainRow(request, report, 'no-such-row')).toThrow(UserError);
    const unknown = await planned({ vram: '3GB', context: 4096, model: 'ouro-2.6b' });
    expect(() => explainRow(unknown.request, unknown.report, 'full')).toThrow(UserError);
  });
});
