/** Targets: what they remove, and what a plan says of them. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KNEE_SHARE, KNEE_TOLERANCE, kneeOf, lastWithin } from '../../src/plan/evaluate/operating.js';
import { chanceWithin } from '../../src/plan/evaluate/chance.js';
import type { Interval } from '../../src/cost/evidence.js';
import { hasSolution } from '../../src/plan/plan.js';
import type { Plan } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';
import { ask } from '../../src/plan/ask/on-disk.js';
import { planOwn as planOf, row } from './requests.js';

const LLA4: Scenario = { codec: ['lla'], ratio: [4], path: ['reconstruct'] };

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
