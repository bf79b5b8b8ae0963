/** What a question without an answer says comes closest, and what it says would help. */
import { describe, expect, it } from 'vitest';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { planFleet } from '../../src/plan/decide/fleet.js';
import { hasSolution } from '../../src/plan/plan.js';
import { noSolutionError } from '../../src/report/no-solution.js';
import { formatDecimalBytes } from '../../src/numbers/units.js';
import type { Scenario } from '../../src/schema/settings.js';

/** The flags of `… meets the targets with 90 % at A, or B`, one list of `[flag, value]` pairs for each way. */
function waysOf(text: string): [string, string][][] {
  const line = text.split('\n').find((l) => l.includes(' meets the targets with ')) as string;
  const ways = line.slice(line.indexOf('--')).split(', or ');
  return ways.map((way) => way.split(' with ').map((flag) => flag.split(' ') as [string, string]));
}

const NAMES: Readonly<Record<string, keyof Scenario>> = {
  '--tpot': 'tpot',
  '--ttft': 'ttft',
  '--ctx': 'context',
  '--gpus': 'gpus',
};

describe('the closest plan', () => {
  const long: Scenario = { device: 'rtx-pro-6000', model: 'nanbeige4.2-3b', context: '64k' };

  it('is the one for which targets have to be relaxed least, not the one with the widest interval', async () => {
    const { nearest } = await ask({ ...long, codec: ['full', 'lla'], tpot: '40ms', ttft: '5s' });
    expect(nearest?.planId).toBe('full/full');
    expect(nearest?.text).toMatch(/closest: full cache with 2 sequences, .* to the first token/);
  });

  it.each([
    { ...long, tpot: '40ms', ttft: '7s' },
    { ...long, tpot: '10ms', ttft: '7s' },
    { ...long, ttft: '7s' },
    { device: 'h100', context: '32k', tpot: '9ms' },
  ] as Scenario[])('meets the targets of %j with each change that is named, alone', async (s) => {
    const question: Scenario = { ...s, codec: ['full'] };
    const { nearest } = await ask(question);
    const ways = waysOf(nearest?.text as string);
    expect(ways.flat().map(([flag]) => flag)).toContain('--gpus');
    for (const way of ways) {
      const changed: Record<string, string | number> = {};
      for (const [flag, value] of way) changed[NAMES[flag] as string] = flag === '--gpus' ? Number(value) : value;
      expect((await ask({ ...question, ...changed })).plans.map((p) => p.id)).toEqual(['full/full']);
    }
  });
});

it.each([
  { model: 'ouro-1.4b', device: 'l40s', context: 3333, tpot: '12ms', gpus: 2 },
  { model: 'huginn-3.5b', device: 'a100-80', context: 8192, tpot: '8ms' },
  { model: 'ouro-1.4b', device: 'rtx-4090', context: 3333, tpot: '5ms', ttft: '300ms' },
] as Scenario[])('a fleet of %j takes a row with each change that is named', async (s) => {
  const question: Scenario = { ...s, codec: ['full', 'lla'], users: 20 };
  const found = async (of: Scenario) => planFleet(of, 20, await readSources(of));
  const { fleet, reports } = await found(question);
  expect(fleet.rows).toEqual([]);
  const { nearest } = reports.at(-1)!;
  for (const way of waysOf(nearest!.text)) {
    const eased = { ...question, ...Object.fromEntries(way.map(([flag, value]) => [NAMES[flag]!, value])) };
    expect((await found(eased)).fleet.rows.length, JSON.stringify(way)).toBeGreaterThan(0);
  }
});

describe('where the full cache misses a target and others do not', () => {
  it('the reason says so once, and what helps', async () => {
    const s: Scenario = { device: 'h100', context: '32k', ttft: '1s', codec: ['full', 'flashloop'] };
    const { reason, deploy } = (await ask(s)).answer;
    expect(deploy).toBeNull();
    expect(reason).toMatch(/^the full cache misses --ttft 1000ms \(.*\) and meets the targets at --ttft \d+ms, or /);
    expect(reason).toMatch(/ or --gpus 2; nothing else runs today$/);
    expect((await ask({ ...s, gpus: 2 })).answer.deploy?.planId).toBe('full/full');
    const ttft = / at --ttft (\d+ms), or /.exec(reason as string)?.[1] as string;
    expect((await ask({ ...s, ttft })).answer.deploy?.planId).toBe('full/full');
  });
});

describe('where nothing fits', () => {
  const hint = async (s: Scenario): Promise<string | undefined> =>
    (await noSolutionError([{ report: await ask(s), scenario: s, sources: await readSources(s) }])).hint;

  it('less reserve is proposed too only where a sequence fits without any', async () => {
    const s: Scenario = { model: 'iquest-coder-v1-40b-loop', device: 'h100', codec: ['full'] };
    expect(await hint({ ...s, context: '32k' })).toMatch(/^what fits: --gpus 2; or --weight-type fp8(?!.*keep less)/);
    expect(hasSolution(await ask({ ...s, context: '32k', reserve: '0', utilization: 1 }))).toBe(false);
    expect(await hint({ ...s, context: '1k' })).toMatch(
      /^what fits: --gpus 2; or --weight-type fp8.*; or keep less: --utilization 1 with less --reserve$/,
    );
    expect(hasSolution(await ask({ ...s, context: '1k', reserve: '0', utilization: 1 }))).toBe(true);
  });
});

describe('where a sequence fits and a prompt does not', () => {
  const s: Scenario = { vram: '80GB', context: '1M', codec: ['lla'], eviction: ['streaming:4+1020'] };

  it('the reason has the figure of the prompt, and the way of reading it that has room', async () => {
    const { answer, plans } = await ask(s);
    expect([answer.verdict, answer.fallback]).toEqual(['nothing', null]);
    expect(answer.reason).toMatch(
      /^what fits has no room for a prompt: accumulated prefill of 1M tokens takes at least [\d.]+ GB \(lla-21\.33x/,
    );
    const least = Math.min(
      ...plans.filter((p) => !p.marks.some((m) => /^(un|no-)/.test(m.code))).map((p) => p.prefill.peakBytes),
    );
    expect(answer.reason).toContain(` ${formatDecimalBytes(least)} `);
    expect(answer.reason).toMatch(/; --prefill chunked has room$/);
    expect((await ask({ ...s, prefill: 'chunked' })).answer.fallback).not.toBeNull();
  });

  it('none is named that does not help', async () => {
    const { answer } = await ask({ ...s, path: ['fast'] });
    expect(answer.reason).toBe('what fits saves no memory');
  });
});

describe('a fleet that nothing is recommended for', () => {
  it('names what runs today, though codecs that no server has need fewer GPUs', async () => {
    const s: Scenario = { model: 'ledger/models/llama-2-70b.json', device: 'h100', context: '8k', tpot: '30ms' };
    const question: Scenario = { ...s, weightType: 'fp8', codec: ['full', 'lla', 'kv-quant'] };
    const { fleet } = planFleet(question, 32, await readSources(question));
    expect(fleet.deploy).toBeNull();
    expect(fleet.rows[0]?.servedBy).toBeNull();
    expect(fleet.cheapest?.servedBy).toMatch(/^vLLM/);
  });
});
