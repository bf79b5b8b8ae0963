/** The short answer: its rows in their order of right, its length and its width. */
import { describe, expect, it } from 'vitest';
import { DEVICES } from '../../src/devices/catalogue.js';
import { choicesOf } from '../../src/plan/decide/decide.js';
import { MOST_ROWS, representatives } from '../../src/plan/decide/representatives.js';
import { shownDecode } from '../../src/plan/words/words.js';
import { shortList } from '../../src/report/plan-rows.js';
import { planTable } from '../../src/report/text/plan-table.js';
import type { Scenario } from '../../src/schema/settings.js';
import { randomOf, SEED } from '../gpu/random.js';
import { planOf, row } from './requests.js';

const MOST_LINES = 48;

describe('words beside the table', () => {
  const printed = async (s: Scenario, notes: boolean): Promise<string> =>
    planTable(await planOf(s), { all: true, colour: false, notes, width: 2000 });

  it.each([true, false])(
    'explain the mark of a guess where a cell has it, and only there (notes: %s)',
    async (notes) => {
      const marked = await printed({ device: 'rtx-5090', context: '32k', codec: ['lla'] }, notes);
      expect(marked.replace(/~: a guess/, '')).toMatch(/~\d/);
      expect(marked).toContain('~: a guess, the ends of its interval lie more than ten times apart.');
      expect(await printed({ device: 'h200', codec: ['full'] }, notes)).not.toContain('~');
    },
  );

  it.each([true, false])('do not call the full cache itself an upside (notes: %s)', async (notes) => {
    const full = await printed({ device: 'mi300x', codec: ['full'] }, notes);
    expect(full).toMatch(/^Estimate full cache: /m);
    expect(full).toContain('> deploy, + estimate, *');
    expect(full).not.toMatch(/upside/i);
    const compressed = await printed({ device: 'mi300x', codec: ['full', 'flashloop'] }, notes);
    expect(compressed).toMatch(/^Upside +flashloop-\w+: /m);
    expect(compressed).toContain('> deploy, + upside, *');
  });
});

describe('the short table', () => {
  it('has the full cache, what is named, 21.33× with passkeys, the paper’s eviction, the front, users', async () => {
    const report = await planOf({});
    const rows = shortList(report);
    expect(rows.length).toBeLessThanOrEqual(MOST_ROWS);
    expect(MOST_ROWS).toBe(16);
    const ids = rows.map((p) => p.id);
    expect(ids).toEqual(expect.arrayContaining(['full/full', ...choicesOf(report.answer).map((c) => c.planId)]));
    const flagship = rows.find((p) => p.codec.label === 'lla-21.33x' && !p.eviction);
    expect(flagship?.qualityKept).toMatchObject({ metric: 'passkey', share: 0 });
    const evicted = rows.filter((p) => p.eviction);
    expect(evicted.map((p) => p.id)).toEqual(['lla-21.33x/reconstruct/streaming:4+1020']);
    // 36 MiB at a million tokens: Table memory.
    expect(evicted[0]?.memory.kvBytesAt1M).toBe(36 * 2 ** 20);
    const named = new Set(choicesOf(report.answer).map((c) => c.planId));
    const users = rows
      .filter((p) => !named.has(p.id) && p.id !== 'full/full' && p !== flagship && !p.eviction && !p.pareto)
      .map((p) => shownDecode(p).batch);
    const left = representatives(report.plans).filter((p) => !rows.includes(p));
    expect(left.filter((p) => p.pareto)).toEqual([]);
    for (const p of left) expect(shownDecode(p).batch, p.id).toBeLessThanOrEqual(Math.min(...users));
  });

  it('names no row that nobody asked for, and leaves it out where a codec, a ratio or a policy is asked', async () => {
    const report = await planOf({ context: '1M' });
    expect(report.plans.some((p) => p.beside)).toBe(true);
    for (const { planId } of choicesOf(report.answer)) expect(row(report, planId).beside).toBeUndefined();
    expect(report.plans.filter((p) => p.beside).every((p) => !p.pareto)).toBe(true);
    for (const s of [{ codec: ['full', 'lla'] }, { ratio: [4] }, { eviction: ['none'] }] as Scenario[])
      expect((await planOf(s)).plans.some((p) => p.beside)).toBe(false);
  });

  it(`has at most ${MOST_LINES} lines at 100 columns, and no wider than asked from 60 on (seed ${SEED})`, async () => {
    const random = randomOf(SEED);
    for (let n = 0; n < 6; n++) {
      const s: Scenario = {
        model: random.pick(['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b', 'nanbeige4.2-3b']),
        device: random.pick(DEVICES).id,
        context: random.pick(['4k', '32k']),
      };
      const report = await planOf(s);
      const lines = planTable(report, { all: false, colour: false }).trimEnd().split('\n');
      expect(lines.length, JSON.stringify(s)).toBeLessThanOrEqual(MOST_LINES);
      for (const width of [60, random.whole(61, 200)])
        for (const notes of [false, true])
          for (const line of planTable(report, { all: false, colour: false, width, notes }).split('\n'))
            expect([...line].length, `${width}: ${line}`).toBeLessThanOrEqual(width);
    }
  });

  it('leaves no note out with --notes', async () => {
    const report = await planOf({});
    const text = planTable(report, { all: false, colour: false, notes: true, width: 200 }).replace(/\s+/g, ' ');
    for (const { message } of report.warnings) expect(text).toContain(message.replace(/\s+/g, ' '));
    const more = report.warnings.filter((w) => w.code !== 'input').length;
    expect(planTable(report, { all: false, colour: false, width: 200 })).toContain(`has ${more} more notes`);
  });
});
