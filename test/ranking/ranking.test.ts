/** `plan --rank`: all codecs by users within the targets, and what became of published claims. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CODEC_KINDS } from '../../src/codecs/codec.js';
import { rankedText, type RankedReport } from '../../src/ranking/ranked.js';
import { REWRITE } from '../golden/golden.js';
import { expectBadInput, plan, ROOT, words } from '../cli/program.js';

/** UPDATE_GOLDEN=1 rewrites it; read the difference. */
const GOLDEN = join(ROOT, 'test/golden/rank-h100.txt');
const QUESTION = ['--device', 'h100', '--rank', '--keep', '0.95', '--tpot', '50ms'];

describe('plan --rank', () => {
  it('answers as the golden file has it: every codec in one part, by users; claims repeated, or why not', async () => {
    const { out } = await plan(...QUESTION, '--format', 'json');
    const report = JSON.parse(out) as RankedReport;
    const { plans, ranking, claims } = report;
    const text = rankedText(report, { width: 100 });
    if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(GOLDEN, text);
    expect(text, REWRITE).toBe(readFileSync(GOLDEN, 'utf8'));
    const { kept, lost, unknown, outside } = ranking;
    const byId = new Map(plans.map((p) => [p.id, p]));
    const keeps = ({ planId }: { planId: string }): number | null => byId.get(planId)!.qualityKept?.share ?? null;
    for (const part of [kept, lost, unknown])
      expect(part.map((r) => r.users)).toEqual(part.map((r) => r.users).sort((a, b) => b - a));
    expect(kept.every((r) => keeps(r)! >= 0.95)).toBe(true);
    expect(lost.every((r) => keeps(r)! < 0.95)).toBe(true);
    expect(unknown.every((r) => keeps(r) === null)).toBe(true);
    const labels = [...kept, ...lost, ...unknown, ...outside].map((r) => r.label);
    expect(new Set(labels).size).toBe(labels.length);
    const kinds = new Set([...kept, ...lost, ...unknown].map(({ planId }) => byId.get(planId)!.codec.kind));
    expect([...kinds].sort()).toEqual([...CODEC_KINDS].sort());
    const of = (codec: string) => claims.filter((c) => c.codec === codec);
    expect(of('flashloop').map((c) => [c.published, c.here])).toEqual([
      ['5.85', '5.81'],
      ['5.85', '5.98'],
      ['82.8', '83.3'],
      ['1.59', 'unknown'],
    ]);
    expect(of('melt').map((c) => c.verdict)).toEqual(['repeated']);
    for (const c of claims)
      expect(c.why === null, c.what).toBe(['repeated', 'within the estimate'].includes(c.verdict));
    // Times of estimates are never called repeated.
    expect(claims.filter((c) => c.here.includes('(') && c.verdict === 'repeated')).toEqual([]);
  });

  it('without a target memory decides, and times are those of all users at once', async () => {
    const { out } = await plan('--device', 'h200', '--rank', '--ctx', '8k');
    const rows = out.split('\n').flatMap((line) => {
      const [, users, , , ms, each, rate] =
        /^ *(\d+) (\S+) +(\d\S* [KMG]iB).*? {2,}([\d.]+) +([\d.]+) +([\d.k]+) /.exec(line) ?? [];
      return users ? [{ users: Number(users), ms: Number(ms), each: Number(each), rate: rate! }] : [];
    });
    expect(rows.length).toBeGreaterThan(10);
    for (const { users, ms, rate } of rows) {
      const perSecond = Number(rate.replace('k', '')) * (rate.endsWith('k') ? 1000 : 1);
      expect((users * 1000) / ms / perSecond, `${users} ${ms} ${rate}`).toBeCloseTo(1, 1);
    }
  });

  it('lists what misses the targets, and refuses other ways of printing', async () => {
    const line = '--device h200 --rank --codec full,lla --ratio 4 --ctx 32k --tpot 18ms --format json';
    const { out } = await plan(...words(line));
    const { ranking } = JSON.parse(out) as RankedReport;
    const all = [...ranking.kept, ...ranking.lost, ...ranking.unknown, ...ranking.outside];
    expect(all.map((r) => r.label).sort()).toEqual(['full', 'lla-4x']);
    expect(ranking.outside.map((o) => o.label)).toEqual(['lla-4x']);
    for (const other of [['--best'], ['--sweep'], ['--format', 'csv'], ['--users', '9']])
      expectBadInput(await plan('--device', 'h200', '--rank', ...other));
  });
});
