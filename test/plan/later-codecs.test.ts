/** Codecs that came after LLA, in a plan: their scores, and what is refused in one line. */
import { expect, it } from 'vitest';
import type { Scenario } from '../../src/schema/settings.js';
import { planOf, row } from './requests.js';

it('HLA has the scores of its own setting, each with its table, and is the upside of Ouro on an H200', async () => {
  const report = await planOf({});
  const hla = row(report, 'hla-10.67x/rotated');
  expect(report.answer.upside?.planId).toBe(hla.id);
  expect(hla.qualityKept?.share).toBeCloseTo(0.477 / 0.489, 9);
  expect(hla.quality.filter((q) => q.metric === 'ruler').map((q) => [q.contextTokens, q.value])).toEqual([
    [4096, 0.887],
    [8192, 0.842],
    [16384, 0.744],
  ]);
  expect(hla.asPublished?.path).toBe('rotated');
});

it.each([
  [{ window: '0' }, 'hla-10.67x-w0/rotated', 0.66],
  [{ window: '0', ranks: ['256/256'] }, 'hla-16x-w0(256,256,256)/rotated', 0.514],
  [{ window: '64' }, 'hla-10.67x-w64/rotated', undefined],
] as [Scenario, string, number | undefined][])(
  '%j inherits nothing from another window or rank',
  async (s, id, math) => {
    const plan = row(await planOf({ codec: ['hla'], ...s }), id);
    expect(plan.quality.find((q) => q.metric === 'math500')?.value).toBe(math);
  },
);

it('takes a named codec to a model that nobody tried it on, and no unnamed one', async () => {
  const model = { model: 'nanbeige4.2-3b', device: 'a100-80' };
  const named = await planOf({ ...model, codec: ['hla'] });
  expect(named.plans.length).toBeGreaterThan(0);
  expect((await planOf(model)).plans.every((p) => p.codec.kind !== 'hla')).toBe(true);
});

it.each([
  [{ codec: ['hla'], window: '8k' }, /--window keeps 8192 tokens of a context of 4096/],
  [{ codec: ['hla'], ranks: ['500/512'] }, /rank K 500 is no multiple of the head width 128/],
  [{ codec: ['lla'], ranks: ['96/160/32'] }, /lla has no latents of the first loop's own/],
  [{ codec: ['hla'], eviction: ['h2o:64+64'] }, /hla goes with no eviction policy/],
  [{ codec: ['loop-window'], window: '0' }, /at least 1 in later loops, not 0/],
] as [Scenario, RegExp][])('refuses %j', async (s, message) => {
  await expect(planOf(s)).rejects.toThrow(message);
});

it('FlashLoop is planned as a prompt and as generated text, with the same scores, where it is named alone', async () => {
  const report = await planOf({ codec: ['flashloop'] });
  const [prompt, generated] = ['prompt', 'generated'].map((tokens) => row(report, `flashloop-${tokens}/full`));
  expect(prompt!.memory.kvBytesPerToken).toBeLessThan(generated!.memory.kvBytesPerToken);
  for (const p of [prompt!, generated!]) {
    expect(p.qualityKept?.share).toBeCloseTo(0.7048 / 0.7011, 9);
    expect(p.servedBy).toBeNull();
    expect(p.knee!.secondsPerStep!.low).toBeGreaterThan(0);
  }
  expect((await planOf({})).plans.every((p) => p.codec.kind !== 'flashloop')).toBe(true);
});

it.each([
  [{ codec: ['flashloop'], model: 'huginn-0125' }, /4 loops, and \S+ has 32/],
  [{ codec: ['flashloop'], eviction: ['h2o:64+64'] }, /flashloop goes with no eviction policy/],
  [{ codec: ['flashloop'], ratio: ['4'] }, /flashloop has the ratios 6.05 \(a prompt\) and 3.56 \(generated\)/],
  [{ codec: ['flashloop'], cacheType: 'int8' }, /does not stack on the flashloop codec/],
] as [Scenario, RegExp][])('refuses %j', async (s, message) => {
  await expect(planOf(s)).rejects.toThrow(message);
});
