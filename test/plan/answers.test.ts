/** Targets, marks, the Pareto front and the recommendation. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { KNEE_SHARE, KNEE_TOLERANCE, kneeOf, lastWithin } from '../../src/plan/evaluate/operating.js';
import { markPareto } from '../../src/plan/decide/representatives.js';
import { chanceWithin } from '../../src/plan/evaluate/chance.js';
import type { Interval } from '../../src/cost/evidence.js';
import { hasSolution } from '../../src/plan/plan.js';
import { atContext } from '../../src/plan/evaluate/targets.js';
import type { Plan, PlanReport } from '../../src/plan/types.js';
import type { QualityFigure } from '../../src/quality/figure.js';
import type { Scenario } from '../../src/schema/settings.js';
import { ask } from '../../src/plan/ask/on-disk.js';
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

describe('targets', () => {
  it('a plan without a figure is unknown and does not meet --min', async () => {
    const report = await planOf({ ...LLA4, path: ['reconstruct', 'absorbed'], min: { 'gsm8k@isocache': 0.75 } });
    expect(report.plans.map((p) => p.id)).toEqual(['lla-4x/reconstruct']);
    expect(report.removed).toContainEqual({
      id: 'lla-4x/absorbed',
      target: '--min gsm8k@isocache=0.75',
      reason: expect.stringContaining('unknown') as unknown as string,
    });
  });

  it('contradicting tables do not meet a target that one of them misses; naming the table chooses', async () => {
    const all = await planOf({ ...LLA4, min: { gsm8k: 0.75 } });
    expect(hasSolution(all)).toBe(false);
    expect(all.removed[0]?.reason).toMatch(/contradicted.*0\.59.*@TABLE/);
    expect(hasSolution(await planOf({ ...LLA4, min: { 'gsm8k@isocache': 0.75 } }))).toBe(true);
  });

  it('an evicted cache and a quantised latent inherit nothing', async () => {
    for (const s of [{ eviction: ['streaming:4+1020'] }, { cacheType: 'int8' }] as Scenario[]) {
      const report = await planOf({ ...LLA4, ...s });
      expect(report.plans[0]?.quality.filter((q) => q.metric === 'gsm8k')).toEqual([]);
    }
  });

  it('a target of time that removes the full cache is named as why nothing is deployed', async () => {
    const { answer, removed } = await planOf({ model: 'hrm-text-1b', device: 'l4', context: 4096, tpot: '60ms' });
    const missed = removed.find(({ id }) => id === 'full/full')!.reason;
    expect(answer.deploy).toBeNull();
    expect(answer.reason).toBe(
      `the full cache misses --tpot 60ms (${missed}) and meets the targets at --tpot 79ms, or --ctx 1024, ` +
        "or --gpus 2; of the others nothing is published about these plans' quality",
    );
  });

  it('reliable retrieval: 4× to 32k, 5.33× to 64k, 21.33× none', async () => {
    const report = await planOf({ ...LLA4, ratio: [4, 5.33, 10.67, 21.33], retrieval: '32k' });
    expect(report.plans.map((p) => [p.id, p.reliableRetrieval?.tokens])).toEqual([
      ['lla-4x/reconstruct', 32_768],
      ['lla-5.33x/reconstruct', 65_536],
    ]);
    expect(report.removed.map((r) => r.id)).toEqual(
      expect.arrayContaining(['lla-10.67x/reconstruct', 'lla-21.33x/reconstruct']),
    );
    expect(report.removed.every((r) => r.target === '--retrieval 32k')).toBe(true);
  });

  it('--tpot takes the largest batch that meets it with the confidence', async () => {
    const s: Scenario = { codec: ['lla'], ratio: [21.33], path: ['block-absorbed'], tpot: '100ms' };
    const p = (await planOf(s)).plans[0] as Plan;
    const batch = p.atTarget?.batch as number;
    expect(batch).toBeGreaterThan(0);
    expect(p.chances.tpot).toBeGreaterThanOrEqual(0.9 - 1e-6);
    const surer = (await planOf({ ...s, confidence: 0.95 })).plans[0] as Plan;
    expect(surer.atTarget?.secondsPerStep?.high).toBeLessThanOrEqual(0.1 + 1e-6);
    expect(surer.atTarget?.batch).toBeLessThan(batch);
    const { tpot: _tpot, ...open } = s;
    const next = (await planOf({ ...open, batch: batch + 1 })).plans[0] as Plan;
    const seconds = next.decode.secondsPerStep as Interval;
    expect(chanceWithin({ seconds, evidence: 'attainable' }, 0.1)).toBeLessThan(0.9);
  });

  it('--ttft takes plans whose prompt has its first token in time, at the high end', async () => {
    const question: Scenario = {
      context: '16k',
      codec: ['full', 'lla'],
      ratio: [21.33],
      path: ['full', 'block-absorbed'],
      prefill: 'chunked',
    };
    const all = await planOf(question);
    const high = (id: string): number => all.plans.find((p) => p.id === id)?.prefill.secondsPerPrompt?.high as number;
    // Latents are taken in twice.
    expect(high('lla-21.33x/block-absorbed')).toBeGreaterThan(1.5 * high('full/full'));
    const timed = await planOf({
      ...question,
      ttft: `${(high('full/full') + high('lla-21.33x/block-absorbed')) / 2}s`,
    });
    expect(timed.plans.map((p) => p.id)).toEqual(['full/full']);
    const reasons = new Map(timed.removed.map((r) => [r.id, r.reason]));
    expect(reasons.get('lla-21.33x/block-absorbed')).toMatch(
      /the first token after 16k tokens takes .* likely to meet it/,
    );
    const large = await planOf({ ...LLA4, context: '64k', prefill: 'one-shot', ttft: '1000s' });
    expect(large.removed.map((r) => r.reason)).toEqual(['unknown: it does not fit']);
  });

  it('a prompt has its time where it can be taken in whole, and the reason where not', async () => {
    const prompt = async (s: Scenario): Promise<Plan['prefill']> =>
      ((await planOf({ ...LLA4, ...s })).plans[0] as Plan).prefill;
    const { secondsPerPrompt, tokensPerSecond, evidence, notPriced } = await prompt({ context: '8k' });
    expect(notPriced).toBeNull();
    expect(['interpolated', 'extrapolated', 'attainable']).toContain(evidence);
    expect((secondsPerPrompt?.estimate as number) * (tokensPerSecond?.estimate as number)).toBeCloseTo(8192, 6);
    expect((secondsPerPrompt?.low as number) * (tokensPerSecond?.high as number)).toBeCloseTo(8192, 6);
    expect((await prompt({ context: '8k', path: ['materialised'] })).secondsPerPrompt).toEqual(secondsPerPrompt);
    // A server takes 8,192 tokens at once: of more, latents of earlier chunks are read again.
    const long = await prompt({ context: '16k' });
    expect((await prompt({ context: '16k', prefill: 'chunked' })).secondsPerPrompt).toEqual(long.secondsPerPrompt);
    const whole = await prompt({ context: '16k', server: { chunkedPrefill: 'off' } });
    expect(long.secondsPerPrompt?.estimate).toBeGreaterThan(whole.secondsPerPrompt?.estimate as number);
    // H2O scores once more.
    expect((await prompt({ context: '8k', eviction: ['h2o:256+256'] })).secondsPerPrompt?.estimate).toBeGreaterThan(
      (await prompt({ context: '8k', eviction: ['streaming:4+508'] })).secondsPerPrompt?.estimate as number,
    );
    for (const [s, reason] of [
      [{ context: '64k', prefill: 'one-shot' }, 'does not fit'],
      [{ vram: '20GB', device: undefined }, 'nothing is known'],
    ] as const) {
      const { secondsPerPrompt: none, notPriced: why } = await prompt(s as unknown as Scenario);
      expect([none, why]).toEqual([null, expect.stringContaining(reason)]);
    }
  });

  it('the search for a batch finds the last that passes, in few evaluations where time is a line', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e6 }), fc.integer({ min: 1, max: 1e6 }), (limit, most) => {
        let calls = 0;
        const excess = (b: number): number => (calls++, b - limit);
        expect(lastWithin(excess, most)).toBe(Math.min(limit, most));
        // A call an octave down to the limit, and a few.
        expect(calls).toBeLessThan(8 + Math.log2(most / Math.max(1, Math.min(limit, most))));
        // A staircase is found, too.
        expect(lastWithin((b) => (b <= limit ? -1 : 1e3), most)).toBe(Math.min(limit, most));
      }),
    );
  });

  it('finds it where a larger batch takes less time than a smaller one', () => {
    // Of a table: the first sizes take longer, and so do those of another kernel between.
    expect(lastWithin((b) => (b < 2 ? 4 : b <= 40 ? -4 : 1), 4096)).toBe(40);
    expect(lastWithin((b) => (b <= 58 ? -1 : b < 200 ? 1 : b <= 300 ? -0.5 : 3), 13_641)).toBe(300);
    expect(lastWithin((b) => (b === 37 ? -1 : 1), 37)).toBe(37);
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 12 }),
        fc.integer({ min: 1, max: 5000 }),
        fc.integer({ min: 5001, max: 9000 }),
        (power, width, most) => {
          // A power of two and what follows it are within; before it nothing is.
          const [first, last] = [2 ** power, Math.min(2 ** power + width, most)];
          const found = lastWithin((b) => (b >= first && b <= last ? -1 : 1), most);
          expect(found).toBe(last);
        },
      ),
    );
  });

  it('--tpot is met by two sequences where one takes longer', async () => {
    const s: Scenario = { model: 'ouro-2.6b', device: 'b200', codec: ['full'], weightType: 'fp8', context: '1k' };
    const two = row(await ask({ ...s, batch: 2, tpot: '19ms' }), 'full/full');
    const found = row(await ask({ ...s, tpot: '19ms' }), 'full/full');
    expect(found.knee?.batch).toBeGreaterThanOrEqual(two.knee?.batch as number);
    expect(found.chances.tpot).toBeGreaterThanOrEqual(0.9);
    // What is told of a miss is of the batch that comes closest, as are its remedies.
    const { nearest, removed } = await ask({ ...s, tpot: '10ms' });
    expect(removed[0]?.reason).toMatch(/^a batch of 4 takes/);
    expect(nearest?.text).toMatch(/closest: full cache with 4 sequences/);
    const relaxed = /--tpot ([\d.]+ms)/.exec(nearest?.text ?? '')?.[1] as string;
    expect((await ask({ ...s, tpot: relaxed })).plans.length).toBe(1);
    const even = /no row would pass even at --confidence 0.5/.test(nearest?.text ?? '') ? 0 : 1;
    const odds = await ask({ ...s, tpot: '10ms', confidence: 0.5 });
    expect(odds.plans.length).toBe(even);
  });

  it('the knee is the smallest batch with 90 % of the best throughput, to half a per cent of it', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 1e-4, max: 1, noNaN: true }),
        fc.double({ min: 1e-6, max: 1e-2, noNaN: true }),
        fc.integer({ min: 1, max: 5000 }),
        (fixed, each, most) => {
          const asked = new Set<number>();
          const rate = (b: number): number => b / (fixed + each * b);
          const knee = kneeOf((b) => (asked.add(b), fixed + each * b), most);
          expect(rate(knee)).toBeGreaterThanOrEqual(KNEE_SHARE * rate(most) * (1 - 1e-9));
          const near = KNEE_SHARE + KNEE_TOLERANCE;
          if (rate(knee) > near * rate(most) * (1 + 1e-9))
            expect(rate(knee - 1)).toBeLessThan(KNEE_SHARE * rate(most) * (1 + 1e-9));
          // Batches are whole, so a line that is straight takes a few more than two.
          expect(asked.size).toBeLessThanOrEqual(14);
        },
      ),
    );
  });

  it('the knee is that of the best throughput also where one more tile makes the largest batch slow', () => {
    for (const most of [257, 289, 400, 511]) {
      const seconds = (b: number): number => 16 + 0.09 * b + (b > 256 ? 24 : 0);
      const rate = (b: number): number => b / seconds(b);
      expect(rate(256)).toBeGreaterThan(rate(most));
      expect(rate(kneeOf(seconds, most)) / rate(256)).toBeGreaterThanOrEqual(KNEE_SHARE - 1e-9);
    }
  });

  it('--batch removes what does not hold it, and prices at it', async () => {
    const both: Scenario = { ...LLA4, codec: ['full', 'lla'] };
    const report = await planOf({ ...both, batch: 100 });
    expect(report.plans.map((p) => p.id)).toEqual(['lla-4x/reconstruct']);
    expect(report.plans[0]?.decode.batch).toBe(100);
    expect(report.removed).toEqual([{ id: 'full/full', target: '--batch 100', reason: 'at most 42 sequences fit' }]);
    expect((await planOf({ ...both, batch: 42 })).removed).toEqual([]);
  });

  it('what does not fit is removed for that alone: it takes no time that a target could be held against', async () => {
    const { removed } = await planOf({ device: 'l40s', context: '8k', batch: 20, tpot: '50ms' });
    expect(removed.filter(({ id }) => id === 'full/full')).toEqual([
      { id: 'full/full', target: '--batch 20', reason: 'at most 6 sequences fit' },
    ]);
    expect(removed.map(({ reason }) => reason).join()).not.toMatch(/cannot tell|unknown time/);
  });

  it('a price by the hour becomes one by the million tokens', async () => {
    const p = (await planOf({ codec: ['full'], usdPerHour: 3.6 })).plans[0] as Plan;
    const [rate, usd] = [p.decode.tokensPerSecond, p.decode.usdPerMillionTokens];
    expect(usd?.estimate).toBeCloseTo(1000 / (rate?.estimate as number), 9);
    expect(usd?.low).toBeCloseTo(1000 / (rate?.high as number), 9);
    const two = (await planOf({ codec: ['full'], usdPerHour: 3.6, gpus: 2 })).plans[0] as Plan;
    expect(
      (two.decode.usdPerMillionTokens?.estimate as number) * (two.decode.tokensPerSecond?.estimate as number),
    ).toBeCloseTo(2000, 6);
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
