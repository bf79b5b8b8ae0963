/** Plans of codecs whose loops read one set of rows: which are listed, what they are called, what is known of them. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import type { Plan } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';
import { planOwn as planOf, row } from './requests.js';

const idsOf = async (s: Scenario): Promise<string[]> => (await planOf(s)).plans.map((p) => p.id);

describe('candidates', () => {
  it('are the paper’s control and sharing while decoding, unless others are named', async () => {
    const shared = async (s: Scenario): Promise<string[]> =>
      (await planOf(s)).plans.flatMap((p) => (p.codec.shared === undefined ? [] : [p.id]));
    expect(await shared({})).toEqual(['final-loop/full', 'final-loop-decode/full']);
    expect(await shared({ cacheType: 'int8' })).toEqual(['final-loop@int8/full', 'final-loop-decode@int8/full']);
  });

  it('are all ways of a codec that is named', async () => {
    const ways = ['final-loop', 'final-loop-decode', 'final-loop-all', 'mean-loop-decode', 'mean-loop-all'];
    expect(await idsOf({ codec: ['final-loop', 'mean-loop'] })).toEqual(ways.map((way) => `${way}/full`));
  });

  it('are those that --shared names', async () => {
    expect(await idsOf({ codec: ['full', 'final-loop', 'mean-loop'], shared: ['decode'] })).toEqual([
      'full/full',
      'final-loop-decode/full',
      'mean-loop-decode/full',
    ]);
    expect(await idsOf({ codec: ['final-loop'], shared: ['all', 'two-pass'] })).toEqual([
      'final-loop-all/full',
      'final-loop/full',
    ]);
    expect(await idsOf({ shared: ['all'] })).toContain('final-loop-all/full');
  });

  it.each([
    [{ codec: ['mean-loop'], shared: ['two-pass'] }, /mean-loop is shared decode or all, not two-pass/],
    [{ codec: ['lla'], shared: ['decode'] }, /--shared means nothing for lla/],
    [{ codec: ['final-loop'], shared: ['once'] }, /--shared must be one of two-pass, decode, all/],
    [{ codec: ['mean-loop'], ratio: [3] }, /mean-loop has ratio T = 4/],
  ] as [Scenario, RegExp][])('%j is refused', async (s, reason) => {
    await expect(planOf(s)).rejects.toThrow(reason);
    await expect(planOf(s)).rejects.toThrow(UserError);
  });
});

describe('what is known of each way', () => {
  it('is its own: no score of one stands with another', async () => {
    const report = await planOf({ codec: ['final-loop', 'mean-loop'] });
    const of = (id: string): Plan => row(report, id);
    const gsm8k = (id: string) => of(id).quality.flatMap((f) => (f.metric === 'gsm8k' ? [f.value] : []));
    expect(gsm8k('final-loop/full')).toEqual([0]);
    expect(gsm8k('final-loop-decode/full')).toEqual([0.7885]);
    expect(gsm8k('mean-loop-decode/full')).toEqual([0.7873]);
    for (const id of ['final-loop-all/full', 'mean-loop-all/full']) expect(of(id).qualityKept).toBeNull();
    expect(of('final-loop/full').codec.shared).toBe('two-pass');
    expect(of('final-loop/full').marks.map((m) => m.code)).toContain('destroys-generation');
    expect(of('final-loop-decode/full').marks.map((m) => m.code)).toContain('contradicted-quality');
    expect(report.contradictions.map((c) => c.id)).toContain('final-loop');
  });

  it('says that prompts which share take as long as their steps', async () => {
    const report = await planOf({ device: 'h200', codec: ['final-loop'], context: 2048 });
    const seconds = (id: string): number => row(report, id).prefill.secondsPerPrompt?.estimate ?? NaN;
    expect(seconds('final-loop-all/full')).toBeGreaterThan(100 * seconds('final-loop-decode/full'));
    expect(seconds('final-loop/full')).toBeGreaterThan(1.5 * seconds('final-loop-decode/full'));
  });
});
