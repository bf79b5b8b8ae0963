/** Price of a prompt's prefill: that of the operations which the decoder runs, with one interval. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { datasheetPricer, measuredPricer, predictorKey, type Predictors } from '../../src/cost/pricers.js';
import { pricePrompt, type Pricer } from '../../src/cost/latency.js';
import { expand } from '../../src/schedule/expand.js';
import { KERNELS, KERNEL_NAMES } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { runSchedule, runsOf, takenAs, type WholePrompt } from '../../src/schedule/prefill/prefill.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { configuration, HUGINN, lla, OURO } from '../contract/geometries.js';
import { SEED } from '../gpu/random.js';

const RATES = { bytesPerSecond: 4.8e12, f32FlopsPerSecond: 67e12, matrixFlopsPerSecond: 990e12 };
const LINK = {
  bytesPerSecondPerDirection: 450e9,
  perPeerBytesPerSecond: null,
  mostGpus: null,
  beyondBytesPerSecond: null,
  throughHost: false,
};
const METHODS: readonly WholePrompt[] = ['accumulated', 'chunked', 'by-layer', 'one-shot'];
const CONFIGURATIONS: readonly Partial<Configuration>[] = [
  {},
  { codec: lla(96, 160), path: 'block-absorbed' },
  { codec: lla(18, 30), path: 'absorbed' },
  { codec: lla(96, 160), path: 'fast' },
  { codec: { kind: 'kv-quant', bits: 4 } },
  { codec: { kind: 'final-loop' } },
  { codec: { kind: 'mean-loop', shared: 'all' } },
  { codec: { kind: 'mla-head', rankK: 48, rankV: 80 }, path: 'reconstruct' },
  { geometry: HUGINN },
];

/** A made-up calibration: terms in picoseconds, a tenth either way. */
const predictors: Predictors = new Map(
  KERNEL_NAMES.flatMap((kernel) =>
    KERNELS[kernel].variants.map(
      (variant) =>
        [
          predictorKey(kernel, variant),
          (shape: Shape) => {
            const seconds = 1e-12 * KERNELS[kernel].terms(shape, variant).reduce((a, b) => a + b, 0);
            return {
              estimate: seconds,
              low: 0.9 * seconds,
              high: 1.1 * seconds,
              evidence: 'interpolated',
              by: 'lla-sim',
              octavesOutside: 0,
            } as const;
          },
        ] as const,
    ),
  ),
);
const measured: Pricer = measuredPricer({
  predictors,
  rates: RATES,
  stepOverhead: { estimate: 0, low: 0, high: 0, evidence: 'measured', by: 'lla-sim' },
  link: null,
  source: 'made up',
});
const datasheet = datasheetPricer(RATES, null);

describe(`price of a prompt (LLA_SIM_SEED=${SEED})`, () => {
  it('is the sum over the operations that the decoder runs, in which kernels err as in a step', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...CONFIGURATIONS),
        fc.constantFrom(...METHODS),
        fc.integer({ min: 1, max: 70 }),
        fc.integer({ min: 1, max: 30 }),
        (of, method, promptTokens, chunkTokens) => {
          const small = { ...OURO, layers: 2, ...(of.geometry ?? {}) };
          const c = configuration({ ...of, geometry: small });
          const taken = takenAs(c, method, chunkTokens);
          const runs = runsOf(taken, 0, promptTokens);
          const byKernel = new Map<string, number>();
          for (const [i, run] of runs.entries()) {
            for (const { op } of expand(c, runSchedule(c, run, { ...taken, ends: i === runs.length - 1 }))) {
              byKernel.set(op.kernel, (byKernel.get(op.kernel) ?? 0) + measured.price(op).estimate);
            }
          }
          const price = pricePrompt(c, measured, { method, promptTokens, chunkTokens });
          const total = [...byKernel.values()].reduce((a, b) => a + b, 0);
          expect(price.estimate / total).toBeCloseTo(1, 9);
          expect((price.high - price.estimate) / (0.1 * Math.hypot(...byKernel.values()))).toBeCloseTo(1, 6);
          expect(price.evidence).toBe('interpolated');
          for (const k of price.byKernel)
            if (k.kernel !== 'step-overhead') expect(k.estimate / (byKernel.get(k.kernel) as number)).toBeCloseTo(1, 9);
        },
      ),
      { numRuns: 60, seed: SEED },
    );
  });

  it('has its interval in order, is never NaN, and grows with the prompt', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...CONFIGURATIONS),
        fc.constantFrom(...METHODS),
        fc.constantFrom(datasheet, measured),
        fc.integer({ min: 1, max: 2 ** 18 }),
        (of, method, pricer, promptTokens) => {
          const c = configuration(of);
          const at = (tokens: number) => pricePrompt(c, pricer, { method, promptTokens: tokens });
          const [one, two] = [at(promptTokens), at(2 * promptTokens)];
          for (const { low, estimate, high, evidenceShare } of [one, two]) {
            expect(low).toBeGreaterThan(0);
            expect(low).toBeLessThanOrEqual(estimate);
            expect(estimate).toBeLessThanOrEqual(high);
            expect(Number.isFinite(high)).toBe(true);
            expect(Object.values(evidenceShare).reduce((a, b) => a + b, 0)).toBeCloseTo(1, 9);
          }
          expect(two.estimate).toBeGreaterThan(one.estimate);
        },
      ),
      { numRuns: 60, seed: SEED },
    );
  });

  it('counts exchanges of every run and submissions, and says where a link is not known', () => {
    const c = configuration({ codec: lla(96, 160), path: 'reconstruct', gpus: 4 });
    const prompt = { method: 'chunked', promptTokens: 5000 } as const;
    expect(pricePrompt(c, datasheet, prompt).communicationPriced).toBe(false);
    const linked = pricePrompt(c, datasheetPricer(RATES, LINK), prompt);
    expect(linked.communicationPriced).toBe(true);
    // Two passes of three runs: the embedding and two a layer and loop; an encoder's sum is within a GPU; the logits
    // once.
    expect(linked.byKernel.find((k) => k.kernel === 'collective')?.calls).toBe(2 * 3 * (1 + 2 * 96) + 1);
    const calls = linked.byKernel
      .filter((k) => k.kernel !== 'collective' && k.kernel !== 'step-overhead')
      .reduce((sum, k) => sum + k.calls, 0);
    expect(linked.byKernel.find((k) => k.kernel === 'step-overhead')?.calls).toBe(Math.ceil(calls / 256));
  });
});
