/**
 * `accuracy`: the page is the program's, errors and intervals are what was measured, and a wrong ledger is refused
 * whole.
 */
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { accuracyMarkdown, withServers } from '../../src/accuracy/print.js';
import { questionsOf } from '../../src/accuracy/question.js';
import { accuracy, judgedFile, ownLedger, type AccuracyReport } from '../../src/accuracy/report.js';
import { findPreset } from '../../src/geometry/presets.js';
import type { Row } from '../../src/schema/ledger-file.js';
import { expectBadInput, inProcess, ROOT } from '../cli/program.js';
import { randomOf, SEED } from '../gpu/random.js';

const folder = mkdtempSync(join(tmpdir(), 'accuracy-'));
afterAll(() => rmSync(folder, { recursive: true }));

const SOURCE = { title: 'mine', licence: 'own', read: '2026-11-24', url: 'https://example.org' };
const BASE = {
  server: { name: 'vllm', version: '0.24.0' },
  device: 'h200',
  gpus: 1,
  model: 'ouro-1.4b',
  precision: { weights: 'bf16', cache: 'bf16' },
};
/** A ledger of one campaign. */
function ledger(name: string, rows: readonly object[], use = 'judges'): string {
  const file = join(folder, name);
  const campaigns = [{ id: 'one', use, because: 'a test', rows }];
  writeFileSync(
    file,
    JSON.stringify({ schema: 'lla-sim/ledger', schemaVersion: 1, source: SOURCE, defaults: BASE, campaigns }),
  );
  return file;
}
const decode = (concurrency: number, seconds: number, id = `c${concurrency}`): object => ({
  id,
  workload: { kind: 'decode-only', inputTokens: 4000, outputTokens: 192, concurrency, firstTokenCounted: false },
  figures: { tpotSeconds: { mean: seconds } },
});

describe('the ledger that is carried', () => {
  let report: AccuracyReport;
  beforeAll(async () => {
    report = await accuracy(ownLedger(), null);
  });

  it('is priced as docs/accuracy.md and docs/trust.md have it', () => {
    expect(accuracyMarkdown(report)).toBe(readFileSync(join(ROOT, 'docs/accuracy.md'), 'utf8'));
    const trust = readFileSync(join(ROOT, 'docs/trust.md'), 'utf8');
    expect(withServers(trust, report)).toBe(trust);
    expect(() => withServers('a page without the marks', report)).toThrow('no table of servers');
    const told = readFileSync(join(ROOT, 'calibrations/accuracy.json'), 'utf8');
    expect(`${JSON.stringify(judgedFile(report))}\n`).toBe(told);
  });

  it('leaves no row out in silence', () => {
    const missing = report.notPriced.reduce((sum, { rows }) => sum + rows, 0);
    // Rows that are asked and have none of the figures that are predicted.
    const silent = report.rows - report.priced - missing;
    expect(silent).toBeGreaterThanOrEqual(0);
    expect(silent).toBeLessThanOrEqual(5);
    for (const f of report.figures) {
      expect(f.low).toBeLessThanOrEqual(f.predicted);
      expect(f.high).toBeGreaterThanOrEqual(f.predicted);
      expect(f.inside).toBe(f.low <= f.measured && f.measured <= f.high);
      expect(f.cause === null).toBe(f.inside);
    }
  });

  it('gives no figure the cause of another source', () => {
    const sources = new Map<string, string>();
    for (const { cause, file } of report.figures) {
      if (cause === null || cause === 'unexplained') continue;
      expect(sources.get(cause) ?? file, cause).toBe(file);
      sources.set(cause, file);
    }
    expect(sources.size).toBeGreaterThan(10);
  });
});

describe('rows of one’s own', () => {
  const random = randomOf(SEED);

  it(`are as far off as they were made (seed ${SEED})`, async () => {
    const probe = await accuracy([ledger('probe.json', [decode(4, 1), decode(20, 1)])], null);
    const factors = probe.figures.map(() => random.whole(40, 250) / 100);
    const rows = probe.figures.map((f, i) => decode(i === 0 ? 4 : 20, f.predicted / factors[i]!));
    const { figures } = await accuracy([ledger('made.json', rows)], null);
    figures.forEach((f, i) => {
      expect(f.error).toBeCloseTo(factors[i]! - 1, 9);
      expect(f.kind).toBe('step');
    });
    // The step is that of plan, at the mean context.
    const { out } = await inProcess(
      'plan',
      '--device',
      'h200',
      '--ctx',
      '4096',
      '--batch',
      '20',
      '--codec',
      'full',
      '--format',
      'json',
    );
    const plans = (JSON.parse(out) as { plans: { decode: { secondsPerStep: { estimate: number } } }[] }).plans;
    expect(figures[1]!.predicted).toBeCloseTo(plans[0]!.decode.secondsPerStep.estimate, 12);
  });

  it('are told in words, and exit with 5 beyond a stated tolerance', async () => {
    const [exact] = (await accuracy([ledger('probe.json', [decode(4, 1)])], null)).figures;
    const file = ledger('slow.json', [decode(4, exact!.predicted * 2)]);
    const good = ledger('good.json', [decode(4, exact!.predicted * 1.001)]);
    const told = await inProcess('accuracy', '--ledger', file);
    expect([told.code, told.err]).toEqual([0, '']);
    expect(told.out.replaceAll(/\s+/g, ' ')).toMatch(
      /Of 1 figure of time 0 lie in the interval\. Furthest off, 2 times: tpotSeconds of c4/,
    );
    // Few figures are shown one by one.
    expect(told.out).toMatch(/^c4 +tpotSeconds mean +[\d.]+ +[\d.]+ +[\d.]+–[\d.]+ +-50 %$/m);
    const unit = await inProcess('accuracy', '--ledger', ledger('ms.json', [decode(4, exact!.predicted * 1000)]));
    expect(unit.out.replaceAll(/\s+/g, ' ')).toMatch(/Check tpotSeconds of c4 first: it is 1000 times off, as with/);
    expect((await inProcess('accuracy', '--ledger', file, '--tolerance', '10%')).code).toBe(5);
    expect((await inProcess('accuracy', '--ledger', good, '--tolerance', '10%')).code).toBe(0);
    for (const wrong of ['abc', '1x%', '2000%', '-1']) {
      const { code, err } = await inProcess('accuracy', '--ledger', good, `--tolerance=${wrong}`);
      expect([code, err]).toEqual([2, expect.stringMatching(/must be a percentage up to 1000% or a share below 1/)]);
    }
    const whole = await inProcess('accuracy', '--ledger', good, '--tolerance', '10');
    expectBadInput(whole);
    expect(whole.err).toContain('not "10"; write 10%');
    const full = await inProcess('accuracy', '--ledger', ledger('full.json', [decode(4, 1), decode(999, 1)]));
    expect(full.out).toMatch(/^Not priced, 1 row of \w+: by the planner \d+ of 999 sequences fit$/m);
    const both = await inProcess('accuracy', '--ledger', file, '--ledger', good, '--format', 'csv');
    expect(both.out.trimEnd().split('\n').length).toBe(3);
  });

  it('are judged by their highest percentile, too, where they have another figure of that time', async () => {
    const workload = { kind: 'closed-loop', inputTokens: 200, outputTokens: 20, concurrency: 4, requests: 200 };
    const figures = {
      ttftSeconds: { mean: 0.03, p90: 0.05, p99: 0.06 },
      tpotSeconds: { p95: 0.01 },
      itlSeconds: { median: 0.01, p95: 0.02 },
      tokensPerSecond: { mean: 300 },
    };
    const row = { id: 'tails', workload, figures };
    const found = await accuracy([ledger('tails.json', [row])], null);
    expect(found.figures.map(({ figure, statistic, kind }) => `${figure} ${statistic}: ${kind}`).sort()).toEqual([
      'itlSeconds median: step',
      'itlSeconds p95: step tail',
      'tokensPerSecond mean: throughput',
      'tpotSeconds p95: step',
      'ttftSeconds mean: first token',
      'ttftSeconds p99: first token tail',
    ]);
    const [mean, p99] = ['mean', 'p99'].map((s) =>
      found.figures.find((f) => f.statistic === s && f.figure[1] === 't')!,
    );
    expect(p99!.predicted).toBeGreaterThanOrEqual(mean!.predicted);
    expect(found.kinds.map(({ kind }) => kind)).toContain('step tail');
    expect(Object.values(found.groups).flatMap((g) => g.map(({ kind }) => kind))).not.toContain('step tail');
    const told = await inProcess('accuracy', '--ledger', ledger('tails.json', [row]));
    expect(told.out.replaceAll(/\s+/g, ' ')).toMatch(/Of 4 figures of time \d lie/);
  });

  it('have none of the causes of published rows, whatever their file is called', async () => {
    const row = { ...decode(4, 100), device: 'gb200', id: 'rtx-pro-6000x2-1' };
    const { figures } = await accuracy([ledger('llmservingsim.json', [row])], null);
    expect(figures.map(({ cause }) => cause)).toEqual(['unexplained']);
  });

  it('have their verdict in Markdown too, and reasons of their own', async () => {
    const lla = { ...decode(4, 1, 'lla'), codec: { name: 'lla', ratio: 4 } };
    const file = ledger('own.json', [decode(4, 0.1), decode(8, 0.1), decode(20, 0.1), lla]);
    const { out } = await inProcess('accuracy', '--ledger', file, '--format', 'markdown');
    expect(out).toMatch(/Do not believe times here: measure/);
    expect(out).toMatch(/^\| c8 \| tpotSeconds mean \| 0.1 \|/m);
    expect(out).toContain('LLA has a time for each of its paths');
    expect(out).not.toContain('this very table');
    expect(out).not.toContain('a test holds');
  });

  it('judge nothing where no time was priced, and say whose prices stand in', async () => {
    const odd = (name: string, more: object): string => ledger(name, [{ ...decode(4, 1), ...more }]);
    const bits = odd('int4.json', { precision: { weights: 'int4', cache: 'bf16' } });
    const none = await inProcess('accuracy', '--ledger', bits, '--tolerance', '10%');
    expect([none.code, none.err]).toEqual([5, expect.stringContaining('judged nothing')]);
    expect(none.out).toContain('weights in int4: name a model file');
    const other = await inProcess('accuracy', '--ledger', odd('other.json', { server: { name: 'tgi' } }));
    expect(other.out).toContain('tgi: no tables of its own');
  });

  it('judge nothing where computing their prompts would take longer than they took', async () => {
    const load = { kind: 'closed-loop', inputTokens: 4000, outputTokens: 64, concurrency: 16, requests: 16 };
    const row = (id: string, first: number, each: number): object => ({
      id,
      workload: load,
      figures: { ttftSeconds: { mean: first }, tpotSeconds: { mean: each } },
    });
    // 16 prompts of 4,000 tokens, 96 layer calls of 50 million weights: at least 0.64 s on an H200.
    const honest = await accuracy([ledger('honest.json', [row('a', 0.8, 0.03)])], null);
    expect(honest.cachedPrompts).toEqual([]);
    expect(honest.kinds.length).toBe(2);
    const file = ledger('cached.json', [row('a', 0.8, 0.03), row('b', 0.1, 0.008)]);
    const cached = await accuracy([file], null);
    // What is known of one row is known of its server.
    expect(cached.kinds).toEqual([]);
    expect(cached.figures.map((f) => f.cachedPrompts)).toEqual([true, true, true, true]);
    expect(cached.cachedPrompts.map((g) => [g.name, g.rows])).toEqual([
      ['cached: one', 2],
      ['cached: one', 2],
    ]);
    expect(cached.cachedPrompts[0]!.need).toBeGreaterThan(1);
    expect(accuracyMarkdown(cached)).toContain('## Not possible without a cached prompt');
    expect((await accuracy([file, ledger('honest.json', [row('a', 0.8, 0.03)])], 'honest')).kinds.length).toBe(2);
  });

  it('with weights of two types are priced by each its own', async () => {
    const typed = (weights: string): object => ({
      ...decode(4, 1, `w-${weights}`),
      precision: { weights, cache: 'bf16' },
    });
    const both = await accuracy([ledger('both.json', [typed('bf16'), typed('fp8')])], null);
    const alone = await accuracy([ledger('fp8.json', [typed('fp8')])], null);
    expect(both.figures[1]!.predicted).toBe(alone.figures[0]!.predicted);
    expect(both.figures[1]!.predicted).toBeLessThan(both.figures[0]!.predicted);
  });

  it('name a model file beside the ledger, or anywhere by its whole path', async () => {
    const carried = join(ROOT, 'ledger/models/qwen3-32b.json');
    copyFileSync(carried, join(folder, 'own.json'));
    const rows = ['own.json', carried].map((model, i) => ({ ...decode(4, 1, `m${i}`), model }));
    const { figures } = await accuracy([ledger('models.json', rows)], null);
    expect(figures[1]!.predicted).toBe(figures[0]!.predicted);
  });

  it('are refused in one line, with nothing printed, where one of them is wrong', async () => {
    const good = ledger('good.json', [decode(4, 0.02)]);
    const bad = ledger('bad.json', [decode(4, 0.02), decode(8, -0.02)]);
    const { code, out, err } = await inProcess('accuracy', '--ledger', good, '--ledger', bad);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/^error: ledger .*bad\.json: row 2 of one \("c8"\): [^\n]*tpotSeconds[^\n]*\n$/);
    const none = await inProcess('accuracy', '--ledger', good, '--only', 'b300');
    expect([none.code, none.out]).toEqual([2, '']);
    expect(none.err).toContain('no row of the ledger has "b300"');
    const missing = await inProcess('accuracy', '--ledger', join(folder, 'none.json'));
    expect([missing.code, missing.out]).toEqual([2, '']);
  });
});

describe('questions', () => {
  const all = (row: object): ReturnType<typeof questionsOf> =>
    questionsOf({ ...BASE, ...row } as unknown as Row, folder, () => findPreset('ouro-1.4b'));
  const ask = (row: object): unknown => all(row)[0];
  const load = { inputTokens: 100, outputTokens: 50, concurrency: 8 };

  it('are the flags of the row', () => {
    expect(
      ask({
        server: {
          name: 'vllm',
          version: '0.12.0',
          maxNumSeqs: 64,
          maxNumBatchedTokens: 2048,
          utilization: 0.9,
          prefixCaching: false,
        },
        gpus: 2,
        parallel: { tensor: 2 },
        workload: { kind: 'closed-loop', ...load, requests: 32 },
      }),
    ).toEqual({
      by: 'simulate',
      scenario: {
        model: 'ouro-1.4b',
        device: 'h200',
        codec: ['full'],
        stack: 'vllm',
        gpus: 2,
        utilization: 0.9,
        server: { maxNumSeqs: 64, maxNumBatchedTokens: 2048, prefixCaching: 'off', serverVersion: '0.12.0' },
        workload: { arrivals: 'closed', users: 8, requests: 32, ramp: 0, promptTokens: '100', outputTokens: '50' },
      },
    });
  });

  it('have the loops that tokens took', () => {
    const exit = { rule: 'gate', meanLoops: 2.25 };
    expect(ask({ workload: { kind: 'decode-only', ...load, firstTokenCounted: true, exit } })).toMatchObject({
      by: 'plan',
      batch: 8,
      scenario: { context: 125, batch: 8 },
      loops: [
        { loops: 2, share: 0.75 },
        { loops: 3, share: 0.25 },
      ],
    });
    expect(ask({ workload: { kind: 'single', ...load, exit } })).toMatchObject({
      by: 'simulate',
      scenario: { workload: { arrivals: 'closed', users: 8, requests: 8, depth: '0,0.75,0.25,0' } },
    });
  });

  it('run until the deepest requests end, where requests keep a depth', () => {
    const exit = { rule: 'recorded', meanLoops: 3, shares: [0, 0.5, 0, 0.5], ofRequests: true };
    const workload = { kind: 'decode-only', ...load, firstTokenCounted: true, exit };
    const asked = ask({ server: { name: 'vllm-rlt' }, workload });
    // All eight for two passes of a token of 3 loops on average, then four for the other two of their 4.
    expect(asked).toMatchObject({
      by: 'plan',
      batch: 8,
      loops: [
        { loops: 4, share: 2 / 3, left: { batch: 8, workload: { depth: '0,0.5,0,0.5' } } },
        { loops: 4, share: 2 / 4, left: { batch: 4, workload: { depth: '0,0,0,1' } } },
      ],
    });
  });

  it('have every meaning that the source leaves open', () => {
    const closed = all({ workload: { kind: 'closed-loop', ...load } });
    expect(closed.map((q) => (q.by === 'simulate' ? q.scenario.workload?.outputTokens : q.by))).toEqual([
      'uniform:45-55',
      '50',
    ]);
    const open = ['whether the rate counts the prompts'];
    expect(all({ workload: { kind: 'single', ...load }, open }).map((q) => q.by)).toEqual(['simulate', 'plan']);
    expect(all({ workload: { kind: 'single', ...load } }).length).toBe(1);
    expect(all({ workload: { kind: 'single', ...load, promptsCounted: false } }).map((q) => q.by)).toEqual([
      'plan',
      'memory',
    ]);
    // What is accepted of proposals: as published for the model, up to all of them.
    const draft = { method: 'loops', draftTokens: 4 } as const;
    const accepted = all({ workload: { kind: 'single', ...load, speculation: draft } }).map((q) =>
      q.by === 'simulate' ? q.scenario.workload?.draftAcceptance : q.by,
    );
    expect(accepted).toEqual([undefined, expect.closeTo(0.868, 3), 1]);
    const known = {
      kind: 'decode-only',
      ...load,
      firstTokenCounted: false,
      speculation: { ...draft, acceptance: 0.5 },
    } as const;
    expect(all({ workload: known }).map((q) => q.by)).toEqual(['rounds']);
  });

  it('are not asked where the source leaves out what they need, or the planner does', () => {
    for (const [workload, why] of [
      [{ kind: 'single', ...load, inputTokens: null }, /how long/],
      [{ kind: 'single', ...load, exit: { rule: 'gate' } }, /how many loops/],
      [{ kind: 'single', ...load, speculation: { method: 'ngram', draftTokens: 4 } }, /repeats of the text/],
    ] as const)
      expect(ask({ workload })).toEqual({ by: 'nothing', why: expect.stringMatching(why) as string });
    expect(ask({ device: undefined, deviceName: 'an abacus', workload: { kind: 'boot' } })).toMatchObject({
      why: 'an abacus is not in the catalogue',
    });
  });
});
