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

it('FlashLoop is planned as a prompt and as text, with the same scores; unless it is named, as text', async () => {
  const report = await planOf({ codec: ['flashloop'] });
  const [prompt, generated] = ['prompt', 'generated'].map((tokens) => row(report, `flashloop-${tokens}/full`));
  expect(prompt!.memory.kvBytesPerToken).toBeLessThan(generated!.memory.kvBytesPerToken);
  for (const p of [prompt!, generated!]) {
    expect(p.qualityKept?.share).toBeCloseTo(0.7048 / 0.7011, 9);
    expect(p.servedBy).toBeNull();
    expect(p.knee!.secondsPerStep!.low).toBeGreaterThan(0);
  }
  const unnamed = (await planOf({})).plans.filter((p) => p.codec.kind === 'flashloop');
  expect(unnamed.map((p) => p.id)).toEqual(['flashloop-generated/full']);
});

it.each([
  [{ codec: ['hla'], window: '8k' }, /--window keeps 8192 tokens of a context of 4096/],
  [{ codec: ['hla'], ranks: ['500/512'] }, /rank K 500 is no multiple of the head width 128/],
  [{ codec: ['lla'], ranks: ['96/160/32'] }, /lla has no latents of the first loop's own/],
  [{ codec: ['hla'], eviction: ['h2o:64+64'] }, /hla goes with no eviction policy/],
  [{ codec: ['loop-window'], window: '0' }, /at least 1 in later loops, not 0/],
  [{ codec: ['flashloop'], model: 'huginn-0125' }, /4 loops, and \S+ has 32/],
  [{ codec: ['flashloop'], eviction: ['h2o:64+64'] }, /flashloop goes with no eviction policy/],
  [{ codec: ['flashloop'], ratio: ['4'] }, /flashloop has the ratios 6.05 \(a prompt\) and 3.56 \(generated\)/],
  [{ codec: ['flashloop'], cacheType: 'int8' }, /does not stack on the flashloop codec/],
  [{ codec: ['lla'], ratio: [4], ranks: ['96/160'] }, /--ranks and --ratio both say how much/],
  [{ codec: ['lla'], constants: { group: 32 } }, /--constants means nothing without --codec flashloop/],
  [
    { codec: ['flashloop'], ratio: ['4'], constants: { group: 32 } },
    /--constants says what is stored, and --ratio too/,
  ],
  [{ codec: ['flashloop'], constants: { groups: 32 } }, /--constants has no "groups", but group, tail, dense-loops,/],
  [{ codec: ['flashloop'], constants: { tail: 4097 } }, /an exact tail of 4097 tokens of a context of 4096/],
  ...(
    [
      [{ group: 48 }, /groups of 48 channels, which do not divide heads of 128/],
      [{ group: 12 }, /groups of a multiple of 8, whose codes fill words, not of 12/],
      [{ group: 0 }, /not of 0/],
      [{ tail: -1 }, /a whole number of exact tokens, not -1/],
      [{ tail: 1.5 }, /a whole number of exact tokens, not 1.5/],
      [{ 'anchor-bits': 5 }, /its first loop in 2, 4, 8 bits, not in 5/],
      [{ 'dense-loops': 1 }, /2 to 4 dense loops, .*, not 1/],
      [{ keys: 0 }, /a share of the keys above 0 and at most 1, not 0/],
      [{ keys: 1.01 }, /a share of the keys above 0 and at most 1, not 1.01/],
      [{ loop3: 1.5 }, /a share of the tokens above 0 and at most 1 in loop 3, not 1.5/],
      [{ loop4: 0 }, /a share of the tokens above 0 and at most 1 in loop 4, not 0/],
      [{ loop4: 0.3 }, /tokens of loop 4 among those of loop 3: 0.3 is more than 0.25/],
      [{ 'dense-loops': 3, loop3: 0.5 }, /all tokens in its 3 dense loops, not 0.5 of them in loop 3/],
    ] as const
  ).map(([constants, message]): [Scenario, RegExp] => [{ codec: ['flashloop'], constants }, message]),
] as [Scenario, RegExp][])('refuses %j', async (s, message) => {
  await expect(planOf(s)).rejects.toThrow(message);
});

it('numbers of FlashLoop change what it stores and reads, and have no published scores', async () => {
  const bytes = async (constants: NonNullable<Scenario['constants']>, id: string): Promise<number> => {
    const plan = row(await planOf({ codec: ['flashloop'], constants }), `flashloop-${id}/full`);
    if (/-/.test(id.replace(/^(prompt|generated)/, ''))) expect(plan.quality).toEqual([]);
    return plan.memory.kvBytesPerToken;
  };
  const published = await bytes({ group: 64, keys: 0.1 }, 'prompt');
  expect(await bytes({ keys: 0.5 }, 'prompt-keys0.5')).toBe(published);
  expect(await bytes({ group: 32 }, 'prompt-group32')).toBeGreaterThan(published);
  expect(await bytes({ loop3: 0.5, loop4: 0.5 }, 'prompt-loop3-0.5-loop4-0.5')).toBeGreaterThan(published);
  expect(await bytes({ 'dense-loops': 4 }, 'prompt-denseloops4')).toBeLessThan(
    await bytes({ 'anchor-bits': 8 }, 'generated-anchorbits8'),
  );
});
