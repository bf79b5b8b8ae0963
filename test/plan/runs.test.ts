/** Lists of devices, contexts and cache types; fleets; sweeps; and what the command prints of them. */
import { describe, expect, it } from 'vitest';
import { DEVICES } from '../../src/devices/catalogue.js';
import { UserError } from '../../src/errors.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { makePlan } from '../../src/plan/plan.js';
import { runsOf } from '../../src/plan/ask/runs.js';
import { sweepOf } from '../../src/plan/evaluate/explain.js';
import type { Plan, PlanReport } from '../../src/plan/types.js';
import { shownDecode } from '../../src/plan/words/words.js';
import { compareText } from '../../src/report/text/compare-text.js';
import { planCsv } from '../../src/report/plan-csv.js';
import type { Scenario } from '../../src/schema/settings.js';
import { inProcess } from '../cli/program.js';
import { planOf, row } from './requests.js';

describe('lists', () => {
  it('become one scenario for each combination, with the price of its device', () => {
    const [model, usdPerHour] = ['ouro-2.6b', 'h100=2.5,h200=3.6'];
    expect(runsOf({ device: 'h100,h200', context: '4k,32k', usdPerHour, model })).toEqual([
      { device: 'h100', context: '4k', model, usdPerHour: 2.5 },
      { device: 'h100', context: '32k', model, usdPerHour: 2.5 },
      { device: 'h200', context: '4k', model, usdPerHour: 3.6 },
      { device: 'h200', context: '32k', model, usdPerHour: 3.6 },
    ]);
    expect(runsOf({ device: 'h200', usdPerHour: 3.5 })).toEqual([{ device: 'h200', usdPerHour: 3.5 }]);
    for (const context of ['32,768', '4,096', '131,072', '1,048,576'])
      expect(() => runsOf({ device: 'h200', context })).toThrow(`may be ${context.replaceAll(',', '')} tokens, or`);
    for (const context of ['128,256,512', '32, 768', '512,768', '4096,32768', '4,096k'])
      expect(runsOf({ device: 'h200', context })).toHaveLength(context.split(',').length);
    expect(runsOf({ device: 'h200', cacheType: 'f16,int8' }).map((s) => s.cacheType)).toEqual(['f16', 'int8']);
    expect(runsOf({ device: 'h100,H100', context: '4k,4k' })).toEqual([{ device: 'h100', context: '4k' }]);
  });
  it.each([
    [{ device: 'h200,foo' }, /unknown device "foo"/],
    [{ device: 'h200,' }, /empty name/],
    [{ device: 'h100,h200', vram: '80GB' }, /one device/],
    [{ device: 'h100', usdPerHour: 'h200=3' }, /not planned/],
    [{ device: 'h100', usdPerHour: 'h100=x' }, /must be a number/],
    [{ device: 'h100', context: Array.from({ length: 65 }, (_, i) => i + 1).join(',') }, /at most|combinations/],
  ] as [Scenario, RegExp][])('%j is refused', (s, reason) => {
    expect(() => runsOf(s)).toThrow(UserError);
    expect(() => runsOf(s)).toThrow(reason);
  });
  it('an unknown device has the nearest names, and where all are listed', () => {
    const hint = (device: string): string => {
      try {
        runsOf({ device });
      } catch (error) {
        if (error instanceof UserError) return `${error.message}; ${error.hint}`;
      }
      throw new Error(`${device} is not refused`);
    };
    const all = `lla-sim models --devices lists all ${DEVICES.length}; --vram alone plans the GPU nearest in memory`;
    expect(hint('h10')).toBe(`unknown device "h10"; did you mean h100 or h100-nvl or h100-pcie? ${all}`);
    expect(hint('rtx4080')).toMatch(/did you mean rtx-5080 or rtx-4090/);
    expect(hint('zx81')).toBe(`unknown device "zx81"; ${all}`);
    for (const d of DEVICES) expect(hint(`${d.id}x`)).toContain(d.id);
  });
  it('where one device is planned a list is refused, not matched in part', async () => {
    await expect(planOf({ device: 'h200,foo' })).rejects.toThrow(/one device/);
  });
});

describe('several runs', () => {
  it('have the full cache in common, and count with a server each, as one run does', async () => {
    const flags = ['--codec', 'full,lla', '--ratio', '4'];
    const bestOf = async (devices: string): Promise<string> =>
      (await inProcess('plan', '--device', devices, ...flags, '--best')).out;
    const out = await bestOf('h100,h100-pcie,mi300x');
    expect(out).toMatch(/full cache +upside/);
    expect(out).not.toContain("no server's own memory");
    for (const device of ['h100', 'h100-pcie', 'mi300x']) {
      const { settings, plans } = await planOf({ device, codec: ['full', 'lla'], ratio: [4] });
      expect(settings.server?.server).toMatch(/^vLLM/);
      expect(settings.utilization).toBe(settings.server?.utilization);
      const lead = out.split('\n').find((line) => line.startsWith(`${device} `)) ?? '';
      expect(plans.map((p) => p.maxBatch.exact)).toContain(Number(/ (\d+) +\d+ /.exec(lead)?.[1]));
    }
    expect(await bestOf('h100,m4-max')).toMatch(/^m4-max: no server is known to run there/m);
  });

  it('say why a run comes after another that is slower, and where no speed is known', async () => {
    const types = ['--device', 'h200', '--ctx', '32k', '--codec', 'full', '--cache-type', 'f16,fp8', '--best'];
    expect((await inProcess('plan', ...types)).out.replace(/\s+/g, ' ')).toMatch(
      /Best h200 in f16: full cache on vLLM.* next h200 in fp8, \d+ tok\/s, not recommended: nothing is published/,
    );
    const { out } = await inProcess('plan', '--vram', '12GB', '--best');
    expect(out).not.toContain('– tok/s');
  });

  it('are answered best first, one line each; JSON has them as runs, CSV stacks them', async () => {
    const flags = ['--device', 'h100,h200', '--codec', 'full', '--ctx', '8k'];
    const best = await inProcess('plan', ...flags, '--usd-per-hour', 'h100=2.5,h200=3.6', '--best');
    expect(best.code).toBe(0);
    const lines = best.out.trimEnd().split('\n');
    expect(lines[0]).toContain('on h100, h200');
    expect(lines[1]).toMatch(
      /^Best +h200: full cache on vLLM 0\.24\.0, .* tok\/s, \$[\d.]+ a million output tokens; next h100/,
    );
    expect(lines.filter((l) => /^(h100|h200) /.test(l)).length).toBe(2);
    const json = JSON.parse((await inProcess('plan', ...flags, '--format', 'json')).out) as { runs: PlanReport[] };
    expect(json.runs.map((r) => r.device.id)).toEqual(['h100', 'h200']);
    const [header, ...rows] = planCsv(...json.runs)
      .trimEnd()
      .split('\n');
    expect(header).toMatch(/^version,model,device,vramBytes,gpus,stack,contextTokens,id,/);
    expect(rows.map((r) => r.split(',')[2])).toEqual(['h100', 'h200']);
  });
  it('say what a cheaper GPU would have to cost, or what keeps it behind', async () => {
    const bestOf = async (...flags: string[]): Promise<string> =>
      (await inProcess('plan', '--codec', 'full,kv-quant', '--ctx', '8k', '--best', ...flags)).out.replace(/\s+/g, ' ');
    const rates = async (device: string): Promise<number> => {
      const { answer, plans } = await planOf({ device, codec: ['full', 'kv-quant'], context: '8k' });
      return shownDecode(plans.find((p) => p.id === answer.deploy?.planId)!).tokensPerSecond!.low;
    };
    const share = Math.floor((100 * (await rates('h100'))) / (await rates('b200')));
    const two = ['--device', 'h100,b200'];
    // At a price below that share it would have won.
    expect(await bestOf(...two)).toContain(
      'Others cheaper a token, at the slow end, only where an hour costs less than this share of ' +
        `b200's: h100 ${share} %`,
    );
    const [lost, won] = [(share + 2) / 10, (share - 2) / 10];
    expect(await bestOf(...two, '--usd-per-hour', `b200=10,h100=${lost}`)).toMatch(
      new RegExp(
        `Best b200.*Others cheaper an hour, dearer a token at the slow end: h100 .* ${share} % of b200's tokens`,
      ),
    );
    expect(await bestOf(...two, '--usd-per-hour', `b200=10,h100=${won}`)).not.toContain('Others');
    expect(await bestOf('--device', 'l4,h100', '--tpot', '18ms')).toMatch(
      /Others l4: full\/full misses --tpot 18ms: one/,
    );
    // A full cache that does not fit is why, not that nobody measured the GPU.
    expect(await bestOf('--device', 'rtx-5080,h200', '--model', 'ouro-2.6b')).toMatch(
      /Others rtx-5080: the full cache does not fit/,
    );
  });
  it('are not the cheapest for lack of a price: where one has none the fastest is first, as a line says', async () => {
    const planned = await Promise.all([
      planOf({ device: 'h100', usdPerHour: 2.5 }),
      planOf({ device: 'b200', usdPerHour: 5 }),
      planOf({ device: 'l40s' }),
    ]);
    const text = compareText(planned, { width: 100, colour: false });
    expect(text).toMatch(/^Best +b200: .* tok\/s; next h100, \d+ tok\/s/m);
    expect(text.split('\n').flatMap((l) => /^(\w+) +full /.exec(l)?.[1] ?? [])).toEqual(['b200', 'h100', 'l40s']);
    const said =
      'no price, so by speed, not cost: first what runs today, then estimates. --usd-per-hour takes one a device.';
    expect(text.replace(/\s+/g, ' ')).toContain(`l40s: ${said}`);
  });
  it('of several contexts have a best one each, since nobody chooses the shorter text', async () => {
    const flags = ['--device', 'l40s,h200', '--codec', 'full', '--ctx', '16k,4096', '--best'];
    const { out } = await inProcess('plan', ...flags);
    expect(out).toMatch(/^Best +h200 at 4096: .*; next l40s, \d+ tok\/s\nOthers .*\n(.*\n)?Best +h200 at 16k: /m);
    expect(out.split('\n').flatMap((l) => /^(\w+) +(\w+) +full /.exec(l)?.slice(1).join(' ') ?? [])).toEqual([
      'h200 4096',
      'l40s 4096',
      'h200 16k',
      'l40s 16k',
    ]);
  });
  it('fit 60 columns', async () => {
    const reports = [await planOf({ device: 'h100', usdPerHour: 2 }), await planOf({ device: 'b200', usdPerHour: 5 })];
    for (const line of compareText(reports, { width: 60, colour: false }).split('\n'))
      expect(line.length, line).toBeLessThanOrEqual(60);
  });
});

it.each([
  [['--sweep', '--format', 'csv'], '--sweep is printed below a table or in JSON, not with --format csv'],
  [['--sweep', '--best'], '--sweep is printed below a table or in JSON, not with --best'],
  [['--best', '--format', 'csv'], '--best prints a table only, not --format csv'],
  [['--rank', '--link'], '--link prints a link alone, without --rank'],
  [['--codec', 'lla', '--cache-type', 'fp8'], 'do not store 8-bit floats; change --cache-type, --codec, '],
  [['--eviction', 'streaming:0+4'], '--eviction streaming:SINK+WINDOW: SINK must be a whole number'],
  [['--execution', 'graphs'], '--execution must be one of eager, loop-graphs, not "graphs"'],
  [['--codec', 'full', '--ratio', '8'], '--ratio means nothing for full: the cache is not'],
  [['--codec', 'full', '--path', 'absorbed'], '--path means nothing for full: the cache is not'],
])('%j is refused', async (flags, words) => {
  const o = await inProcess('plan', '--device', 'h200', ...flags);
  expect([o.code, o.err]).toEqual([2, expect.stringContaining(words)]);
});

it('an eviction policy that keeps every token is said to do nothing', async () => {
  const note = 'streaming:4+8k keeps as many tokens as --ctx has or more: nothing is evicted, so leave it out';
  const question = { device: 'h200', context: 4096, codec: ['full' as const] };
  expect((await planOf({ ...question, eviction: ['streaming:4+8k'] })).notes).toContain(note);
  expect((await planOf({ ...question, eviction: ['streaming:4+1k'] })).notes.join()).not.toContain('is evicted');
});

it('ranks override the ratios of a scenario file, which are refused beside them elsewhere', async () => {
  const scenario = 'scenarios/million-tokens.yaml';
  const o = await inProcess('plan', scenario, '--ranks', '64/128', '--format', 'csv');
  expect([o.code, o.err]).toEqual([0, '']);
  expect(o.out).toContain('64,128');
  const both = await inProcess('plan', scenario, '--ranks', '96/160', '--ratio', '4');
  expect([both.code, both.err]).toEqual([2, expect.stringMatching(/^error: --ranks and --ratio both.*; give one of/)]);
});

describe('a target that nothing meets', () => {
  it('names the closest plan, what passes at even odds, and what to relax', async () => {
    const s: Scenario = { codec: ['full'], context: '32k', batch: 1 };
    const tpot = `${row(await planOf(s), 'full/full').decode.secondsPerStep!.estimate * 1.02 * 1e3}ms`;
    const report = await planOf({ ...s, tpot });
    expect(report.plans).toEqual([]);
    expect(report.nearest).toMatchObject({ planId: 'full/full' });
    expect(report.nearest?.chance).toBeGreaterThan(0.5);
    expect(report.nearest?.text).toMatch(/at --confidence 0.5 1 row would pass/);
    const relaxed = /--tpot ([\d.]+ms)/.exec(report.nearest?.text ?? '')?.[1] as string;
    expect((await planOf({ ...s, tpot: relaxed })).plans.length).toBe(1);
    const shorter = /--ctx (\w+)/.exec(report.nearest?.text ?? '')?.[1] as string;
    expect((await planOf({ ...s, tpot, context: shorter })).plans.length).toBe(1);
  });
});

describe('a sweep', () => {
  it('has the grid, the operating batch and the largest, each as --batch prices it', async () => {
    const s: Scenario = { device: 'h200', codec: ['full'] };
    const { request } = prepare(s, await readSources(s));
    const p = row(makePlan(request), 'full/full') as Plan;
    const points = sweepOf(request, p);
    expect(points.map((d) => d.batch)).toEqual([1, 2, 3, 4, 6, 8, 12, 16, 24, p.knee?.batch, 32, p.maxBatch.exact]);
    const at = row(await planOf({ ...s, batch: 16 }), 'full/full');
    expect(points.find((d) => d.batch === 16)).toEqual(at.decode);
    const o = await inProcess('plan', '--device', 'h200', '--codec', 'full', '--sweep');
    expect(o.out).toMatch(new RegExp(`^> +${p.knee?.batch} `, 'm'));
  });
});
