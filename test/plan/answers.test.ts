/** Targets, marks, the Pareto front and the recommendation. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { markPareto } from '../../src/plan/decide/representatives.js';
import type { Interval } from '../../src/cost/evidence.js';
import { hasSolution } from '../../src/plan/plan.js';
import { atContext } from '../../src/plan/evaluate/targets.js';
import type { Plan, PlanReport } from '../../src/plan/types.js';
import type { QualityFigure } from '../../src/quality/figure.js';
import type { Scenario } from '../../src/schema/settings.js';
import { words } from '../cli/program.js';
import { planOwn as planOf, row } from './requests.js';

const LLA4: Scenario = { codec: ['lla'], ratio: [4], path: ['reconstruct'] };
const objectives = (p: Plan): number[] => [
  p.maxBatch.exact,
  (p.atTarget ?? p.decode).tokensPerSecond?.estimate ?? 0,
  p.qualityKept?.share ?? 0,
];
const UNFIT = ['destroys-generation', 'prefill-does-not-fit', 'unfaithful-post-hoc', 'no-memory-saved'];
/** Plans that hold nothing, and those that nobody would take, are on no front and beat nobody. */
const buyable = (p: Plan): boolean =>
  p.maxBatch.exact >= 1 && !p.beside && !p.marks.some((m) => UNFIT.includes(m.code));
/** By the definition: nobody is at least as good everywhere and better somewhere. */
const dominated = (p: Plan, all: readonly Plan[]): boolean =>
  all.some(
    (q) =>
      buyable(q) &&
      objectives(q).every((v, i) => v >= (objectives(p)[i] as number)) &&
      objectives(q).some((v, i) => v > (objectives(p)[i] as number)),
  );

describe('figures that speak for a context', () => {
  const at = (contextTokens?: number) =>
    ({ metric: 'passkey', value: 1, source: 'Table x', ...(contextTokens ? { contextTokens } : {}) }) as QualityFigure;
  it('are those without one, and cells up to the first that is long enough', () => {
    const [any, short, longer, longest] = [at(), at(4096), at(16_384), at(65_536)];
    expect(atContext([any], 8192)).toEqual([any]);
    expect(atContext([short, longer, longest], 8192)).toEqual([short, longer]);
    expect(atContext([short, longer, longest], 16_384)).toEqual([short, longer]);
  });
  it('are none where every cell is shorter', () => {
    expect(atContext([at(4096), at(16_384)], 65_536)).toEqual([]);
  });
});

/** What a report promises whatever was asked. */
function expectConsistent(s: Scenario, report: PlanReport): void {
  const kept = new Set(report.plans.map((p) => p.id));
  expect(kept.size).toBe(report.plans.length);
  for (const r of report.removed) {
    expect(kept.has(r.id)).toBe(false);
    expect(r.reason).not.toBe('');
  }
  for (const p of report.plans) {
    for (const m of report.settings.targets.minimums) {
      const published = p.quality.filter(
        (f) => f.metric === m.metric && (m.table === undefined || f.source.toLowerCase().includes(m.table)),
      );
      // A cell of another context does not count, but for the first that is at least as long.
      const next = Math.min(
        ...published.map((f) => f.contextTokens ?? report.contextTokens).filter((t) => t >= report.contextTokens),
      );
      const figures = published.filter((f) => (f.contextTokens ?? 0) <= next && next < Infinity);
      expect(figures.length, `${p.id} meets --min without a figure`).toBeGreaterThan(0);
      for (const f of figures) expect(f.higherIsBetter ? f.value >= m.value : f.value <= m.value).toBe(true);
    }
    const { retrievalTokens, secondsPerToken } = report.settings.targets;
    if (retrievalTokens !== null) expect(p.reliableRetrieval?.tokens ?? 0).toBeGreaterThanOrEqual(retrievalTokens);
    if (secondsPerToken !== null) {
      expect(p.atTarget?.secondsPerStep?.estimate).toBeLessThanOrEqual(secondsPerToken);
      expect(p.chances.tpot).toBeGreaterThanOrEqual(report.settings.confidence - 1e-6);
      expect(p.atTarget?.batch).toBeLessThanOrEqual(p.maxBatch.exact);
    }
    if (s.batch !== undefined) expect(p.maxBatch.exact).toBeGreaterThanOrEqual(Number(s.batch));
    expect(p.memory.totalBytes).toBeLessThanOrEqual(report.device.vramBytes + (p.maxBatch.exact < 1 ? Infinity : 1));
    expect(p.pareto && (dominated(p, report.plans) || !buyable(p))).toBe(false);
    if (!p.pareto && buyable(p))
      expect(
        dominated(p, report.plans) ||
          report.plans.some((q) => q.pareto && String(objectives(q)) === String(objectives(p))),
      ).toBe(true);
  }
  const { answer } = report;
  for (const choice of [answer.deploy, answer.upside, ...answer.alternatives]) {
    if (!choice) continue;
    const p = row(report, choice.planId);
    expect(p.maxBatch.exact).toBeGreaterThanOrEqual(1);
    expect(p.marks.map((m) => m.code)).not.toContain('destroys-generation');
    expect(p.marks.map((m) => m.code)).not.toContain('prefill-does-not-fit');
    expect(p.qualityKept?.share).toBeGreaterThanOrEqual(report.settings.keep);
    expect(choice.qualityLost.every((score) => score.share >= report.settings.keep)).toBe(true);
  }
  if (answer.deploy) expect(row(report, answer.deploy.planId).servedBy).not.toBeNull();
  for (const choice of [answer.fallback, answer.fails]) if (choice) row(report, choice.planId);
  if (answer.fails) expect(row(report, answer.fails.planId).qualityKept?.share).toBeLessThan(report.settings.keep);
  expect(answer.deploy === null).toBe(answer.reason !== null);
}

describe('any question', () => {
  const scenario: fc.Arbitrary<Scenario> = fc
    .record(
      {
        model: fc.constantFrom('ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b', 'nanbeige4.2-3b'),
        device: fc.constantFrom('h200', 'h100', 'a100-40', 'rtx-4090', 'mi300x', 'm4-max'),
        context: fc.constantFrom('512', '4k', '32k', '256k'),
        min: fc.constantFrom<Record<string, number>>(
          { gsm8k: 0.5 },
          { gsm8k: 0.75 },
          { 'gsm8k@isocache': 0.7 },
          { passkey: 0.9 },
          { 'train-kl': 0.2 },
          { mmlu: 0.1, gsm8k: 0.1 },
        ),
        retrieval: fc.constantFrom('8k', '32k', '64k'),
        tpot: fc.constantFrom('5ms', '50ms', '300ms', '5s'),
        batch: fc.constantFrom(1, 8, 100),
        usdPerHour: fc.constantFrom(1, 3.5),
        eviction: fc.constantFrom(['none'], ['none', 'streaming:4+256'], ['h2o:128+132']),
        cacheType: fc.constantFrom('f16', 'int8'),
        prefill: fc.constantFrom('one-shot', 'accumulated'),
      },
      { requiredKeys: ['model', 'device', 'context'] },
    )
    .map((s) => s as Scenario);
  it('is answered consistently: targets met, Pareto front true, recommendation admissible', async () => {
    await fc.assert(
      fc.asyncProperty(scenario, async (s) => expectConsistent(s, await planOf(s))),
      { numRuns: 25 },
    );
  });
});

describe('the Pareto front', () => {
  it('agrees with brute force on random plans', () => {
    const value = fc.integer({ min: 0, max: 6 });
    fc.assert(
      fc.property(fc.array(fc.tuple(value, value, value, fc.boolean()), { maxLength: 25 }), (tuples) => {
        const plans = tuples.map(
          ([exact, speed, share, ruined], i) =>
            ({
              id: String(i),
              maxBatch: { exact, onGrid: exact },
              atTarget: null,
              decode: { tokensPerSecond: { estimate: speed, low: speed, high: speed } },
              qualityKept: { share },
              marks: ruined ? [{ code: 'destroys-generation', message: '' }] : [],
            }) as unknown as Plan,
        );
        const marked = markPareto(plans);
        marked.forEach((p, i) => {
          const twinBefore = marked
            .slice(0, i)
            .some((q) => buyable(q) && String(objectives(q)) === String(objectives(p)));
          expect(p.pareto).toBe(buyable(p) && !dominated(p, plans) && !twinBefore);
        });
      }),
      { numRuns: 500 },
    );
  });
});

describe('marks', () => {
  it('an lla-2d codec larger than the model is marked with the figure, not refused', async () => {
    const report = await planOf({ ...LLA4, model: 'ouro-2.6b', codec: ['lla-2d'] });
    expect(row(report, 'lla-2d-4x/reconstruct').marks).toContainEqual({
      code: 'codec-outweighs-model',
      message: expect.stringMatching(/3\.22 B.*2\.67 B/) as unknown as string,
    });
  });
  it('fast saves no memory; post-hoc absorbed is unfaithful; final-loop destroys generation', async () => {
    const report = await planOf({ codec: ['lla', 'final-loop'] });
    const codes = (id: string) => row(report, id).marks.map((m) => m.code);
    expect(codes('lla-4x/fast')).toContain('no-memory-saved');
    expect(codes('lla-4x/absorbed')).toContain('unfaithful-post-hoc');
    expect(codes('final-loop/full')).toContain('destroys-generation');
    expect(codes('lla-4x/reconstruct')).not.toContain('unfaithful-post-hoc');
  });
  it('Huginn at 16× as lla-2d exists and does not fit beside the weights', async () => {
    const report = await planOf({ ...LLA4, model: 'huginn-3.5b', device: 'rtx-4090', codec: ['lla-2d'], ratio: [16] });
    expect(report.plans[0]?.limitedBy).toBe('codec-parameters');
    expect(hasSolution(report)).toBe(false);
  });
});

describe('candidates', () => {
  it('plans every codec and path by default', async () => {
    const report = await planOf({});
    expect(new Set(report.plans.map((p) => p.codec.kind))).toEqual(
      new Set(words('full lla lla-2d mla-head cla kv-quant residual-quant final-loop hla flashloop')),
    );
    expect(new Set(report.plans.filter((p) => p.codec.kind === 'lla').map((p) => `${p.path} ${p.variant}`))).toEqual(
      new Set(['reconstruct fused', 'reconstruct materialised', 'absorbed null', 'block-absorbed null', 'fast null']),
    );
  });
  it('block-absorbed goes with policies that name their tokens, not with a bare budget', async () => {
    const of = { codec: ['lla'], ratio: [4], path: ['block-absorbed', 'reconstruct'], context: '8k' } as const;
    const named = await planOf({ ...of, eviction: ['streaming:4+1020', 'h2o:512+512'] });
    expect(named.refused).toEqual([]);
    expect(row(named, 'lla-4x/block-absorbed/h2o:512+512').maxBatch.exact).toBeGreaterThan(0);
    const bare = await planOf({ ...of, budget: '1024' });
    expect(bare.refused.map(({ id }) => id)).toEqual(['lla-4x/block-absorbed/budget:1024']);
  });
  it('an ordinary transformer (T = 1) has no final-loop, and plans', async () => {
    await expect(planOf({ codec: ['final-loop'], model: 'nanbeige4.2-3b', ratio: [3] })).rejects.toThrow(UserError);
  });
  it.each([
    [{ ranks: ['600/100'] }, /600 exceeds T·d = 512/],
    [{ codec: ['lla'], path: ['full'] }, /no path full/],
    [{ codec: ['kv-quant'], ratio: [3] }, /nominal ratios/],
    [{ codec: ['cla'], ratio: [5] }, /divides the 24/],
    [{ codec: ['kv-quant'], cacheType: 'int8' }, /does not stack/],
    [{ ropeDim: 0 }, /rotary branch/],
    [{ ropeDim: 7 }, /even/],
    [{ gpus: 3 }, /divide the 16/],
    [{ pageTokens: 48 }, /multiple of 32/],
    [{ model: 'ouro' }, /unknown model/],
    [{ device: 'h2000' }, /unknown device/],
  ] as [Scenario, RegExp][])('%j is refused', async (s, reason) => {
    await expect(planOf(s)).rejects.toThrow(reason);
    await expect(planOf(s)).rejects.toThrow(UserError);
  });
  it('each plan of a report has an id of its own, also when a list names a thing twice', async () => {
    for (const s of [
      { eviction: ['none', 'none'] },
      { eviction: ['streaming:4+256', 'streaming:4+256'] },
      { codec: ['full', 'full', 'lla', 'lla'], ratio: [4, 4.0001] },
      { path: ['reconstruct', 'reconstruct'] },
    ] as Scenario[]) {
      const ids = (await planOf(s)).plans.map((p) => p.id);
      expect(new Set(ids).size, JSON.stringify(s)).toBe(ids.length);
    }
  });
});

describe('evidence and intervals', () => {
  it("a stack's prices have intervals and are monotonic in the context", async () => {
    let last = 0;
    for (const context of ['1k', '8k', '64k', '512k']) {
      const p = (await planOf({ codec: ['full'], batch: 1, context, vram: '10TB', device: 'h200' })).plans[0] as Plan;
      const s = p.decode.secondsPerStep as { estimate: number; low: number; high: number };
      expect(['interpolated', 'extrapolated', 'attainable']).toContain(p.decode.evidence);
      expect(s.estimate).toBeGreaterThan(Math.max(p.decode.floor!.memory, p.decode.floor!.compute));
      expect(s.low).toBeLessThan(s.estimate);
      expect(s.estimate).toBeLessThan(s.high);
      expect(s.estimate).toBeGreaterThan(last);
      last = s.estimate;
    }
  });
  it('batch 1 at 4k on an H200 cannot be faster than its floor of 2.8 ms', async () => {
    const p = (await planOf({ codec: ['full'], batch: 1, context: 4096 })).plans[0] as Plan;
    expect(p.decode.secondsPerStep?.low).toBeGreaterThan(0.0028);
    expect(p.decode.floor?.memory).toBeGreaterThan(0.0027);
    expect(p.decode.floor?.memory).toBeLessThan(0.0032);
  });
  it('a group size is a whole number of words at any bit width', async () => {
    for (const groupSize of [8, 48, 100])
      await expect(planOf({ codec: ['kv-quant'], groupSize })).rejects.toThrow(UserError);
    const speed = async (groupSize: number) =>
      row(await planOf({ codec: ['kv-quant'], ratio: [8], batch: 32, groupSize }), 'kv-quant-2bit/full');
    const [fine, coarse] = [await speed(32), await speed(128)];
    expect(fine.memory.kvBytesPerToken).toBeGreaterThan(coarse.memory.kvBytesPerToken);
    expect(fine.decode.secondsPerStep?.low).toBeGreaterThan(coarse.decode.secondsPerStep?.low as number);
  });

  it('a prompt is cut where the server cuts it, and far outside its tables no time is wider than by law', async () => {
    const seconds = async (s: Scenario): Promise<Interval> =>
      (await planOf({ device: 'h200', codec: ['full'], ...s })).plans[0]!.prefill.secondsPerPrompt!;
    const time = async (context: number, server = {}): Promise<number> => (await seconds({ context, server })).estimate;
    expect((await time(2049)) / (await time(2048))).toBeLessThan(1.02);
    expect(await time(8192, { maxNumBatchedTokens: 1024, maxNumSeqs: 64 })).toBeGreaterThan(await time(8192));
    const { low, high } = await seconds({ device: 'b300', stack: 'sglang', cacheType: 'fp8', context: '128k' });
    expect(high / low).toBeLessThan(8);
  });

  it('what holds nothing shows what one sequence would need', async () => {
    const p = row(await planOf({ vram: '80GB', device: 'h100', context: '512k', codec: ['full'] }), 'full/full');
    expect(p.maxBatch.exact).toBe(0);
    expect(p.decode.batch).toBe(0);
    expect(p.memory.totalBytes).toBe(
      p.memory.weightsBytes + p.memory.reservedBytes + p.memory.workspaceBytes + p.memory.kvBytesPerSequence,
    );
    expect(p.memory.totalBytes).toBeGreaterThan(p.memory.usableBytes + p.memory.reservedBytes);
  });

  it('says where more GPUs than a bridge joins exchange over PCI Express', async () => {
    const notes = async (gpus: number) =>
      (await planOf({ device: 'h100-pcie', gpus, codec: ['full'] })).notes.join(' ');
    expect(await notes(2)).not.toContain('PCI Express');
    expect(await notes(4)).toContain(
      'at most 2 NVIDIA H100 PCIe 80GB are joined directly: exchanges between 4 are priced at 64 GB/s of PCI Express',
    );
  });

  it('a memory size that no device has is planned without times', async () => {
    const p = (await planOf({ vram: '7GB', codec: ['lla'], ratio: [21.33], path: ['reconstruct'] })).plans[0] as Plan;
    expect(p.maxBatch.exact).toBeGreaterThan(0);
    expect(p.decode).toMatchObject({ secondsPerStep: null, tokensPerSecond: null, evidence: null });
  });
});
