/** What `simulate` says of requests that come faster than a server's front end was seen to take them. */
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../src/errors.js';
import type { Run, SimulationReport } from '../../src/serving/types.js';
import { inProcess } from '../cli/program.js';

async function notesOf(device: string, stack: string, ...argv: string[]): Promise<string> {
  const lengths = ['--requests', '40', '--prompt-tokens', '20', '--output-tokens', '2'];
  const asked = ['--device', device, '--stack', stack, '--model', 'ledger/models/qwen3-0.6b.json', ...lengths, ...argv];
  const o = await inProcess('simulate', ...asked, '--format', 'json');
  expect(o.code, o.err).toBe(EXIT.ok);
  return (JSON.parse(o.out) as SimulationReport).notes.join('\n');
}

describe('what lies between a user and the scheduler', () => {
  const asked = ['--device', 'h200', '--codec', 'full', '--prompt-tokens', '128', '--requests', '200'];
  const runOf = async (...argv: string[]): Promise<Run> => {
    const o = await inProcess('simulate', ...asked, ...argv, '--format', 'json');
    return (JSON.parse(o.out) as SimulationReport).runs[0]!;
  };

  it('is waited for: users have no more requests open than there are users', async () => {
    for (const [users, tokens] of [
      [1, 1],
      [7, 3],
    ] as const) {
      const load = ['--arrivals', 'closed', '--users', `${users}`, '--ramp', '0', '--output-tokens', `${tokens}`];
      const run = await runOf(...load, '--prefix-caching', 'off');
      for (const { request_throughput: rate, mean_e2el_ms: latency } of [run.estimate, run.high])
        expect((rate * latency!) / 1e3).toBeLessThan(users * 1.01);
    }
  });

  it('leaves no first token before its request is scheduled, at the fast end either', async () => {
    const { low, estimate, high } = await runOf('--rate', '30', '--output-tokens', '200', '--max-num-seqs', '8');
    for (const f of [low, estimate, high]) expect(f.mean_ttft_ms!).toBeGreaterThan(f.mean_queue_ms!);
  });
});

it('a run of few requests a user says that not all users were there', async () => {
  const notes = async (users: number, requests: number): Promise<string> => {
    const asked = ['--device', 'h200', '--codec', 'full', '--arrivals', 'closed', '--output-tokens', '64'];
    const o = await inProcess('simulate', ...asked, '--users', `${users}`, '--requests', `${requests}`);
    return o.out.replace(/\s+/g, ' ');
  };
  expect(await notes(100, 300)).toMatch(
    /on average \d+ % of the 100 users were there.*of --requests [2-9]000, has more/,
  );
  expect(await notes(2, 500)).not.toContain('users were there');
});

describe('the front end of vLLM', () => {
  it('is told of where a replica gets more than it was seen to take', async () => {
    expect(await notesOf('h100', 'vllm', '--rate', '71')).toContain('71 requests a second a replica');
    expect(await notesOf('h100', 'vllm', '--rate', '70')).not.toContain('front end');
    expect(await notesOf('h100', 'vllm', '--rate', '140', '--replicas', '2')).not.toContain('front end');
    expect(await notesOf('h100', 'trtllm', '--rate', '200')).not.toContain('front end');
  });

  it('is told of where a replica is asked as fast as it answers, too', async () => {
    const faster = /^\d{3,} requests a second a replica: one process of vLLM’s front end/m;
    expect(await notesOf('h100', 'vllm', '--rate', 'inf')).toMatch(faster);
    // 40 requests at 95 and at 70 a second.
    expect(await notesOf('h100', 'vllm', '--rate', 'inf')).toContain('(0.421 to 0.571 s for all of these)');
    const users = ['--arrivals', 'closed', '--users', '40', '--ramp', '0'];
    expect(await notesOf('h100', 'vllm', ...users)).toMatch(faster);
    const one = ['--arrivals', 'closed', '--users', '1'];
    expect(await notesOf('h100', 'vllm', ...one)).not.toContain('front end');
  });
});
