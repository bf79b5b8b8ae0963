/** What `simulate` says of requests that come faster than a server's front end was seen to take them. */
import { describe, expect, it } from 'vitest';
import { EXIT } from '../../src/errors.js';
import type { SimulationReport } from '../../src/serving/types.js';
import { inProcess } from '../cli/program.js';

async function notesOf(device: string, stack: string, ...argv: string[]): Promise<string> {
  const lengths = ['--requests', '40', '--prompt-tokens', '20', '--output-tokens', '2'];
  const asked = ['--device', device, '--stack', stack, '--model', 'ledger/models/qwen3-0.6b.json', ...lengths, ...argv];
  const o = await inProcess('simulate', ...asked, '--format', 'json');
  expect(o.code, o.err).toBe(EXIT.ok);
  return (JSON.parse(o.out) as SimulationReport).notes.join('\n');
}

describe('the front end of vLLM', () => {
  it('is told of where a replica gets more than it was seen to take', async () => {
    expect(await notesOf('h100', 'vllm', '--rate', '71')).toContain('71 requests a second a replica');
    expect(await notesOf('h100', 'vllm', '--rate', '70')).not.toContain('front end');
    expect(await notesOf('h100', 'vllm', '--rate', '140', '--replicas', '2')).not.toContain('front end');
    expect(await notesOf('h100', 'trtllm', '--rate', '200')).not.toContain('front end');
  });
});
