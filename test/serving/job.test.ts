/** Requests that are all there at once (`--rate inf`): how long they take, and what that costs. */
import { afterAll, describe, expect, it } from 'vitest';
import { expectRefused, scratch, words } from '../cli/program.js';
import type { Run } from '../../src/serving/types.js';
import { report, simulate } from './simulated.js';

const BASE = words('--device h200 --codec full --requests 200 --prompt-tokens 300 --output-tokens 40 --rate inf');
const oneLine = (text: string): string => text.replace(/\s+/g, ' ');
const files = scratch();
afterAll(() => files.remove());

describe('requests at once', () => {
  it('take as long as those of a rate that no server answers', async () => {
    const [job, fast] = [await report(...BASE), await report(...BASE.slice(0, -1), '1000000')];
    expect(job.workload).toMatchObject({ atOnce: true, requestsPerSecond: null });
    expect(fast.workload).toMatchObject({ atOnce: false, requestsPerSecond: 1e6 });
    for (const end of ['low', 'estimate', 'high'] as const)
      expect(Math.abs(job.runs[0]![end].duration / fast.runs[0]![end].duration - 1)).toBeLessThan(0.03);
  });

  it('are answered by a time, at a price; targets judge them only where they are asked for', async () => {
    const { runs } = await report(...BASE, '--usd-per-hour', '36');
    const seconds = runs[0]!.estimate.duration;
    const said = oneLine((await simulate(...BASE, '--usd-per-hour', '36')).out);
    const [, shown, usd] =
      /200 requests are answered within ([\d.]+) \([\d.]+–[\d.]+\) seconds, \$([\d.]+) in all/.exec(said)!;
    expect(Number(shown)).toBeCloseTo(seconds, 1);
    expect(Number(usd) / (seconds / 100) - 1).toBeCloseTo(0, 2);
    const [{ usdPerMillionOutputTokens: million, low, high }] = runs as [Run];
    expect(million!.estimate).toBeCloseTo((1e6 * (seconds / 100)) / (200 * 40), 9);
    expect(million!.low).toBeCloseTo(1e4 / low.output_throughput, 9);
    expect(million!.high).toBeCloseTo(1e4 / high.output_throughput, 9);
    expect((await report(...BASE)).runs[0]!.usdPerMillionOutputTokens).toBeNull();
    expect(said).not.toContain('targets');
    expect(oneLine((await simulate(...BASE, '--ttft', '1ms')).out)).toContain('misses the targets');
  });

  it('are sent as others end where a client keeps few open', async () => {
    const { runs, workload } = await report(...BASE, '--max-concurrency', '8');
    expect(runs[0]!.mostRunning).toBe(8);
    expect(workload.label).toMatch(/^sent as others end, at most 8 sent at once/);
  });

  it('may be those of a trace, or of a scenario', async () => {
    const lines = Array.from({ length: 30 }, (_, i) => `${i * 100},200,20`);
    const trace = files.file('slow.csv', ['arrived_at,num_prefill_tokens,num_decode_tokens', ...lines].join('\n'));
    const [slow, job] = [
      await report('--device', 'h200', '--codec', 'full', '--trace', trace),
      await report('--device', 'h200', '--codec', 'full', '--trace', trace, '--rate', 'inf'),
    ];
    expect(slow.runs[0]!.estimate.duration).toBeGreaterThan(2900);
    expect(job.runs[0]!.estimate.duration).toBeLessThan(10);
    const scenario = files.file('job.yaml', 'device: h200\ncodec: full\nworkload:\n  rate: inf\n  requests: 20\n');
    expect((await report(scenario)).workload.atOnce).toBe(true);
  });

  it('have no rate to search', async () => {
    expectRefused(
      await simulate(...BASE, '--find-rate'),
      '--find-rate asks for a rate, and requests at once have none',
    );
  });
});
