/** `lla-sim simulate` as a user calls it: what it prints, what settings change, what it refuses. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../src/errors.js';
import type { PlanReport } from '../../src/plan/types.js';
import type { Run, SimulationReport } from '../../src/serving/types.js';
import { BASE, H200, report, simulate } from './simulated.js';
import { inProcess, scratch, words } from '../cli/program.js';

const files = scratch();
const { path: folder, file } = files;
afterAll(() => files.remove());

describe('the answer', () => {
  it('is what is done so far, marked partial, where the program is asked to end', async () => {
    const before = process.listenerCount('SIGINT');
    const ask = setInterval(() => {
      if (process.listenerCount('SIGINT') > before) process.kill(process.pid, 'SIGINT');
    }, 20);
    const o = await simulate(...H200, '--requests', '50000000', '--format', 'json');
    clearInterval(ask);
    expect(o.code).toBe(EXIT.interrupted);
    const { partial, completed } = JSON.parse(o.out) as SimulationReport & Run;
    expect(partial).toBe(true);
    expect(completed).toBeGreaterThan(0);
    expect(completed).toBeLessThan(50_000_000);
  });

  it('tells targets that nobody asked for from those of the question', async () => {
    for (const [asked, words, defaults] of [
      [[], 'TTFT 2 s and TPOT 80 ms for 99 % of the requests (the default --ttft and --tpot).', ['ttft', 'tpot']],
      [['--tpot', '50ms'], 'TTFT 2 s and TPOT 50 ms for 99 % of the requests (the default --ttft).', ['ttft']],
      [['--tpot', '80ms', '--ttft', '2s'], 'TTFT 2 s and TPOT 80 ms for 99 % of the requests.', []],
    ] as const) {
      expect((await simulate(...BASE, ...asked)).out.replace(/\s+/g, ' ')).toContain(`Targets: ${words}`);
      expect((await report(...BASE, ...asked)).targets.defaults).toEqual(defaults);
    }
  });

  it.each([
    ['a terminal', true, []],
    ['a terminal with --quiet', true, ['--quiet']],
    ['a pipe', false, []],
  ] as const)('comes after what is being done, at once, on %s', async (_, terminal, flags) => {
    const before = process.stderr.isTTY;
    process.stderr.isTTY = terminal;
    try {
      const o = await simulate(...H200, '--requests', '4000', ...flags, '--format', 'json');
      const lines = o.err.split('\r').map((line) => line.replace('\u001b[K', ''));
      if (!terminal || flags.length > 0) expect(o.err).toBe('');
      else {
        expect(lines.slice(0, 2)).toEqual(['', 'simulating …']);
        expect(lines.at(-1)).toBe('');
        expect(lines.some((line) => /^\[[#.]{20}\] \d+ %, .* left  full\/full$/.test(line))).toBe(true);
      }
      expect(() => JSON.parse(o.out) as unknown).not.toThrow();
    } finally {
      process.stderr.isTTY = before;
    }
  });

  it("has the keys of vLLM's benchmark at each end of the interval", async () => {
    const r = await report(...BASE, '--rate', '20');
    expect(r).toMatchObject({ schema: 'lla-sim/simulation', schemaVersion: 1, completed: 60, preemptions: 0 });
    expect(r.limitedBy).toBe('nothing');
    for (const end of [r.low, r.estimate, r.high]) {
      expect(end).toMatchObject({ completed: 60, total_input_tokens: 18_000, total_output_tokens: 2400 });
      expect(end.request_throughput).toBeCloseTo(60 / end.duration, 9);
      expect(end.output_throughput).toBeCloseTo(2400 / end.duration, 9);
      expect(end.total_token_throughput).toBeCloseTo(20_400 / end.duration, 9);
      for (const metric of ['ttft', 'tpot', 'itl', 'e2el'] as const)
        for (const statistic of ['mean', 'median', 'std', 'p90', 'p95', 'p99'] as const)
          expect(end[`${statistic}_${metric}_ms`], `${statistic} ${metric}`).toBeGreaterThanOrEqual(0);
      expect(end.median_ttft_ms!).toBeLessThanOrEqual(end.p99_ttft_ms! * 1.002);
    }
    expect(r.low.mean_tpot_ms!).toBeLessThan(r.estimate.mean_tpot_ms!);
    expect(r.estimate.mean_tpot_ms!).toBeLessThan(r.high.mean_tpot_ms!);
    expect(r.runs).toHaveLength(1);
    expect(r.timeline).toBeUndefined();
    expect(r.runs[0]!.timeline.length).toBeGreaterThan(0);
  });

  it('draws sequences and cache over time, percentiles, and latency against the rate', async () => {
    const path = join(folder, 'timeline.png');
    const o = await simulate(...BASE, '--rate', '20', '--picture', path);
    expect(o.code, o.err).toBe(0);
    expect(readFileSync(path).subarray(1, 4).toString()).toBe('PNG');
    expect(readFileSync(join(folder, 'timeline-percentiles.png')).subarray(1, 4).toString()).toBe('PNG');
    const rates = join(folder, 'rates.png');
    const found = await simulate(...BASE, '--find-rate', '--cores', '1', '--picture', rates, '--format', 'json');
    expect(found.code, found.err).toBe(0);
    expect(readFileSync(rates).subarray(1, 4).toString()).toBe('PNG');
    const { candidates } = JSON.parse(found.out) as SimulationReport;
    const { curve, requestsPerSecond, atEstimate } = candidates![0]!;
    const same = curve!.find((p) => p.requestsPerSecond === requestsPerSecond.estimate)!;
    expect(same.p99_ttft_ms).toBe(atEstimate!.p99_ttft_ms);
    expect(same.p99_tpot_ms).toBe(atEstimate!.p99_tpot_ms);
    // More requests than are served wait.
    expect(curve!.at(-1)!.p99_ttft_ms).toBeGreaterThan(curve![0]!.p99_ttft_ms);
  });

  it('is the same bytes for the same seed, and others for another', async () => {
    const a = await report(...BASE, '--seed', '5');
    const b = await report(...BASE, '--seed', '5');
    const c = await report(...BASE, '--seed', '6');
    expect(JSON.stringify(a)).toBe(JSON.stringify(b));
    expect(JSON.stringify(a.estimate)).not.toBe(JSON.stringify(c.estimate));
  });

  it('begins with at most nine lines that say what to act on, and has a line a request as CSV', async () => {
    const { out } = await simulate(...BASE);
    const lead = out.split('\n\n')[0]!.split('\n');
    expect(lead.length).toBeLessThanOrEqual(9);
    expect(out).toMatch(/may meet the targets/);
    const csv = (await simulate(...BASE, '--format', 'csv')).out.trim().split('\n');
    expect(csv).toHaveLength(61);
    expect(csv[1]!.split(',')).toHaveLength(csv[0]!.split(',').length);
  });
});

it('does not call a server idle after a run that is too short to fill it', async () => {
  const said = async (rate: number, requests: number): Promise<string> =>
    (await simulate(...H200, '--rate', `${rate}`, '--requests', `${requests}`)).out.replace(/\s+/g, ' ');
  // Ten a second are what it sustains.
  const short = /requests hardly wait in this run, but it is short: 14 a second came and ([\d.]+) were answered; more/;
  expect(Number(short.exec(await said(14, 300))?.[1])).toBeLessThan(10);
  expect(await said(14, 3000)).toContain('limited by KV blocks');
  expect(await said(3, 1000)).toContain('not overloaded: requests hardly wait');
});

it('finds that a plan keeps to --tpot beside prompts from the answers on that the plan names', async () => {
  const asked = [...H200, '--tpot', '50ms'];
  const { out } = await inProcess('plan', ...asked, '--format', 'json');
  const { answer } = JSON.parse(out) as PlanReport;
  const risk = answer.risks.find(({ code }) => code === 'prompts-between')?.message ?? '';
  const named = Number(/where answers have (\d+) tokens or more/.exec(risk)?.[1]);
  const batch = `${answer.deploy!.batch}`;
  const meanTpot = async (tokens: number): Promise<number> => {
    const r = await report(
      ...[...asked, '--arrivals', 'closed', '--users', batch, '--max-num-seqs', batch, '--requests', '600'],
      ...['--prompt-tokens', `${4096 - tokens}`, '--output-tokens', `${tokens}`, '--max-model-len', '4096'],
    );
    return r.runs[0]!.high.mean_tpot_ms!;
  };
  expect(await meanTpot(named)).toBeLessThanOrEqual(50);
  expect(await meanTpot(Math.round(named / 2))).toBeGreaterThan(50);
  // Without a target there is none to miss.
  expect((await inProcess('plan', ...asked.slice(0, 4))).out).not.toContain('beside prompts');
});

it('prices tokens by the throughput that it shows', async () => {
  const at = async (demand: number) => {
    const argv = [...BASE, '--usd-per-hour', '10', '--replicas', '2', '--rate', `${demand}`];
    return (await report(...argv, '--find-rate', '--percentile', '90')).candidates![0]!;
  };
  const found = await at(4000);
  const { requestsPerSecond: rate, outputTokensPerSecond, usdPerMillionOutputTokens, replicasFor } = found;
  expect(outputTokensPerSecond).toBeCloseTo(40 * rate.estimate, 6);
  expect(usdPerMillionOutputTokens!.estimate).toBeCloseTo((2 * 10 * 1e6) / 3600 / outputTokensPerSecond, 6);
  // More than are simulated together are no more than twice those of half the demand, nor than their proportion.
  const needed = replicasFor!.replicas.estimate;
  expect(needed).toBeGreaterThan(32);
  expect(needed).toBeLessThanOrEqual(2 * (await at(2000)).replicasFor!.replicas.estimate);
  expect(Math.abs(needed / (4000 / (rate.estimate / 2)) - 1)).toBeLessThan(0.1);
});

it('says of sequences no more tokens than the cache holds', async () => {
  const asked = words('--device rtx-4090 --model ouro-2.6b --codec full --requests 5');
  const { runs, server } = await report(...asked);
  const held = runs[0]!.kvBlocks * server.blockTokens;
  expect(held).toBeLessThan(server.maxModelLen);
  expect((await simulate(...asked)).out).toMatch(new RegExp(`sequences of ${held}\\s+tokens`));
});

it('searches for the share of requests that is asked for, and adds no replica where the rate is served', async () => {
  const found = async (percentile: string, demand: number) => {
    const r = await report(...BASE, '--percentile', percentile, '--rate', String(demand), '--find-rate');
    expect(r.targets.percentile).toBeCloseTo(Number(percentile), 9);
    return r.candidates![0]!;
  };
  const { requestsPerSecond: rate } = await found('90', 10);
  expect((await found('50', 10)).requestsPerSecond.estimate).toBeGreaterThan(rate.estimate);
  const served = await found('90', 0.9 * rate.low);
  expect(served.replicasFor!.replicas).toEqual({ low: 1, estimate: 1, high: 1 });
  const more = await found('90', 1.1 * rate.high);
  expect(more.replicasFor!.replicas.low).toBeGreaterThan(1);
});

describe('settings', () => {
  it('a few codecs are all simulated, by one path each; users who wait replace the rate of a scenario', async () => {
    const several = BASE.map((word) => (word === 'full' ? 'full,lla' : word));
    const { runs } = await report(...several, '--ratio', '4');
    expect(runs.map((r) => r.id.split('/')[0]).sort()).toEqual(['full', 'lla-4x']);
    const scenario = file('r.yaml', 'device: h200\ncodec: lla\nratio: 4\nworkload: { rate: 3, requests: 5 }\n');
    const users = await report(scenario, '--arrivals', 'closed', '--users', '2', '--codec', 'full');
    expect(users.runs.map((r) => [r.id, r.mostRunning])).toEqual([['full/full', 2]]);
  });

  it('says that a server has no watermark', async () => {
    const notes = async (...stack: string[]): Promise<string> =>
      (
        await report('--device', 'h100', '--rate', '2', '--codec', 'full', '--watermark', '0.02', ...stack)
      ).notes.join();
    expect(await notes()).not.toContain('--watermark');
    expect(await notes('--stack', 'sglang')).toContain('--watermark is a flag of vLLM: SGLang has none');
  });

  it('times of users who wait lie between their ends, although a slower server is asked for less', async () => {
    for (const stack of ['sglang', 'trtllm', 'vllm']) {
      const load = ['--arrivals', 'closed', '--users', '48', '--requests', '150', '--codec', 'full', '--stack', stack];
      const { low, estimate, high } = (await report('--device', 'h100', ...load)).runs[0]!;
      for (const name of Object.keys(estimate).filter((key) => key.endsWith('_ms')) as 'mean_ttft_ms'[]) {
        expect(low[name], `${stack} ${name}`).toBeLessThanOrEqual(estimate[name]!);
        expect(high[name], `${stack} ${name}`).toBeGreaterThanOrEqual(estimate[name]!);
      }
    }
  });

  it('conversations find what was said in the prefix cache, unless it is off', async () => {
    const turns = [...BASE, '--turns', '5', '--think', '1s', '--shared-prefix', '200', '--rate', '5'];
    const on = await report(...turns);
    const off = await report(...turns, '--prefix-caching', 'off');
    expect(on.runs[0]!.prefixHitShare!).toBeGreaterThan(0.5);
    expect(off.runs[0]!.prefixHitShare).toBeNull();
    expect(on.estimate.mean_ttft_ms!).toBeLessThan(off.estimate.mean_ttft_ms!);
  });

  it('a small cache preempts, and says that blocks are what requests wait for', async () => {
    const r = await report(...BASE, '--rate', '1000', '--kv-blocks', '64');
    const fullest = Math.max(...r.runs[0]!.timeline.map((p) => p.usedBlocks));
    expect(fullest).toBeLessThanOrEqual(r.runs[0]!.kvBlocks * (1 + 1e-9));
    expect(r.completed).toBe(60);
    expect(r.limitedBy).toBe('kv-blocks');
    expect(r.runs[0]!.mostBlocks).toBeLessThanOrEqual(64);
    expect(r.preemptions).toBeGreaterThan(0);
    const few = await report(...BASE, '--rate', '1000', '--max-num-seqs', '2');
    expect(few.limitedBy).toBe('max-num-seqs');
    expect(few.runs[0]!.mostRunning).toBe(2);
  });

  it('two replicas share the work, and separate prefill sends less where the cache is compressed', async () => {
    const one = await report(...BASE, '--rate', '200');
    const two = await report(...BASE, '--rate', '200', '--replicas', '2');
    expect(two.estimate.mean_e2el_ms!).toBeLessThan(one.estimate.mean_e2el_ms!);
    const split = words('--device h200 --requests 20 --prompt-tokens 2k --output-tokens 8 --prefill-replicas 1');
    const full = await report(...split, '--codec', 'full');
    const lla = await report(...split, '--codec', 'lla', '--ratio', '21.33', '--path', 'block-absorbed');
    const seconds = (r: SimulationReport): number =>
      r.runs.find((s) => s.meanTransferSeconds !== null)!.meanTransferSeconds!;
    expect(seconds(full) / seconds({ ...lla, runs: lla.runs.filter((s) => s.id.startsWith('lla')) })).toBeCloseTo(
      21.33,
      1,
    );
  });

  it('a cache is sent at the rate that is asked, else at those that were published', async () => {
    const split = [...H200, '--requests', '40', '--rate', '1', '--prompt-tokens', '2k'];
    const ask = (...argv: string[]) => report(...split, '--output-tokens', '40', '--prefill-replicas', '1', ...argv);
    const asked = await ask('--transfer-rate', '10GB/s');
    // 24 layers of 4 loops, keys and values of 16 heads of 128, 2 bytes each.
    expect(asked.runs[0]!.meanTransferSeconds).toBeCloseTo((2048 * 24 * 4 * 2 * 16 * 128 * 2) / 10e9, 9);
    const published = await ask();
    const [r] = published.runs;
    expect(r!.meanTransferSeconds! / asked.runs[0]!.meanTransferSeconds!).toBeCloseTo(10 / 3, 9);
    const notes = ({ notes: all }: SimulationReport): string => all.join('\n');
    expect(notes(published)).toContain('0.4 to 49 GB/s each');
    expect(notes(asked)).not.toContain('GB/s each');
    // A request of 1.6 GB a second: what waits for the slowest link does not decode.
    expect(r!.high.mean_ttft_ms!).toBeGreaterThan(20 * r!.estimate.mean_ttft_ms!);
    expect((await ask('--transfer-rate', '1GB/s')).runs[0]!.limitedBy).toBe('transfer');
    const slowest = (await ask('--transfer-rate', '3GB/s')).runs[0]!.high;
    expect(r!.high.mean_tpot_ms!).toBeGreaterThanOrEqual(slowest.mean_tpot_ms!);
    const refused = async (line: string): Promise<string> => (await simulate(...split, ...words(line))).err;
    expect(await refused('--prefill-replicas 1 --transfer-rate 10TB/s')).toMatch(/at most \d+GB\/s, which the memory/);
    expect(await refused('--prefill-replicas 1 --transfer-rate 10GB')).toContain(
      'must be bytes a second, not "10GB"; write for example 20GB/s',
    );
    expect(await refused('--transfer-rate 10GB/s')).toContain(
      'needs replicas that prefill; add for example --prefill-replicas 1, or leave --transfer-rate out',
    );
  });

  it('requests that are longer than the cache meet no target', async () => {
    const long = ['--device', 'rtx-4090', '--codec', 'full', '--prompt-tokens', '30k', '--output-tokens', '10'];
    const r = await report(...long, '--requests', '5', '--find-rate');
    expect(r.candidates).toHaveLength(1);
    expect(r.candidates![0]).toMatchObject({
      requestsPerSecond: { low: 0, estimate: 0, high: 0 },
      refused: 'requests are longer than its cache or than --max-model-len',
      replicasFor: null,
    });
  });

  it('lengths are what was asked: the server takes what requests need, and refuses what it does not take', async () => {
    const ask = (...argv: string[]) => report(...H200, '--requests', '200', ...argv);
    const long = ['--prompt-tokens', '60k', '--output-tokens', '5'];
    expect(await ask(...long)).toMatchObject({
      estimate: { total_input_tokens: 200 * 60 * 1024, total_output_tokens: 1000 },
      server: { maxModelLen: 60 * 1024 + 5 },
    });
    expect((await ask('--prompt-tokens', '100k', '--output-tokens', '5', '--max-model-len', '128k')).completed).toBe(
      200,
    );
    // A cache that holds none of them serves nobody; a version is a number.
    const none = await simulate('--device', 'rtx-5090', '--codec', 'full', '--requests', '50', ...long);
    expect([none.code, none.err]).toEqual([3, expect.stringContaining('every request is refused')]);
    expect((await simulate(...H200, '--server-version', 'new')).code).toBe(2);
    for (const flag of ['--ctx', '--batch', '--confidence', '--page-tokens'])
      expect(await simulate('--device', 'h200', flag, '1')).toMatchObject({ code: 2, out: '' });
    // Half of the lengths are longer than what is taken. Users whose request is refused ask again.
    const drawn = ['--prompt-tokens', 'uniform:1-2000', '--output-tokens', '5', '--max-model-len', '1000'];
    for (const users of [[], ['--arrivals', 'closed', '--users', '1']]) {
      const some = await ask(...drawn, ...users);
      expect(some.completed + some.runs[0]!.rejected).toBe(200);
      expect(Math.abs(some.completed - 100)).toBeLessThan(35);
    }
    const said = await simulate(...H200, ...drawn);
    expect(said.out).toMatch(/misses the targets; \d+ of 1000 requests are\s+refused as too long/);
  });

  it('tells the price of what was simulated, and refuses nothing for it', async () => {
    const asked = [...H200, '--requests', '60', '--usd-per-hour', '3', '--gpus', '2'];
    const r = await report(...asked);
    expect(r.usdPerHour).toBe(3);
    const usd = (2 * 3 * 1e6) / 3600 / r.runs[0]!.estimate.output_throughput;
    const [, told] = /\$([\d.]+) per million output tokens/.exec((await simulate(...asked)).out)!;
    expect(Number(told) / usd).toBeCloseTo(1, 2);
  });

  it('without a second token TPOT is not known, and its target is not met', async () => {
    const open = [...H200, '--requests', '60', '--output-tokens', '1'];
    const one = [...open, '--tpot', '80ms'];
    const { out } = await simulate(...one);
    expect(out).toContain('p95 TPOT – ms');
    expect(out.replace(/\s+/g, ' ')).toContain('does not meet the targets: no request has a second token');
    expect((await report(...one, '--find-rate')).candidates![0]).toMatchObject({ requestsPerSecond: { estimate: 0 } });
    // Where nobody asked for it, first tokens decide.
    expect((await simulate(...open)).out.replace(/\s+/g, ' ')).toMatch(/: may meet the targets/);
    expect((await report(...open, '--find-rate')).candidates![0]!.requestsPerSecond.low).toBeGreaterThan(0);
  });

  it('a trace replaces the requests of a scenario, faster where that is asked', async () => {
    const scenario = file('s.yaml', 'device: h200\ncodec: full\nworkload: { rate: 3, requests: 5 }\n');
    const trace = file('t.csv', 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,20\n50,100,20\n100,200,20\n');
    expect((await report(scenario)).completed).toBe(5);
    const slow = await report(scenario, '--trace', trace);
    const fast = await report(scenario, '--trace', trace, '--speed-up', '10');
    expect(slow.completed).toBe(3);
    expect(slow.estimate.duration / fast.estimate.duration).toBeCloseTo(10, 0);
    expect((await report(scenario, '--trace', trace, '--rate', '3')).estimate.duration).toBeLessThan(2);
    const [found] = (await report(scenario, '--trace', trace, '--find-rate')).candidates!;
    expect(found!.refused).toBe(
      '3 requests are too few to tell a rate that 99 % of them meet; give a trace of at least 436, or a lower ' +
        '--percentile',
    );
  });
});
