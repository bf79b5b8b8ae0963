/** `lla-sim mcp` as a program that speaks the protocol sees it: through the SDK's own client. */
import { spawnSync } from 'node:child_process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { VERSION } from '../../src/version.js';
import { bundle, expectSoundJson, inProcess, type Program } from './program.js';

describe('lla-sim mcp', () => {
  let program: Program;
  let client: Client;
  beforeAll(async () => {
    program = await bundle();
    client = new Client({ name: 'test', version: '1' });
    await client.connect(
      new StdioClientTransport({ command: process.execPath, args: [program.cli, 'mcp'], stderr: 'inherit' }),
    );
  });
  afterAll(async () => {
    await client.close();
    program.remove();
  });

  async function call(name: string, args: Record<string, unknown>): Promise<{ text: string; isError: boolean }> {
    const result = await client.callTool({ name, arguments: args });
    const [first] = result.content as { type: string; text: string }[];
    return { text: first?.text ?? '', isError: result.isError === true };
  }

  it('says what it is and which tools it has, with schemas from the table of settings', async () => {
    expect(client.getServerVersion()).toMatchObject({ name: 'lla-sim', version: VERSION });
    const { tools } = await client.listTools();
    expect(tools.map((t) => t.name)).toEqual(['plan', 'simulate', 'compare', 'models', 'accuracy']);
    const fields = tools[0]?.inputSchema.properties as Record<string, { type?: string; description?: string }>;
    expect(fields['context']?.description).toMatch(/^tokens of each sequence/);
    expect(fields['tpot']?.type).toBe('string');
    expect(fields['min']?.description).toContain('{"gsm8k":0.75}');
    for (const tool of tools) expect(tool.inputSchema['additionalProperties']).toBe(false);
  });

  it('plans with the bytes of the command line', async () => {
    const question = { device: 'h200', context: '8k', tpot: '50ms' };
    const argv = ['--device', 'h200', '--ctx', '8k', '--tpot', '50ms'];
    const json = await call('plan', { ...question, format: 'json' });
    expect(json.text).toBe((await inProcess('plan', ...argv, '--format', 'json')).out);
    expectSoundJson(json.text);
    // Several devices: which is best comes first, whether one replica or a fleet is asked about.
    const several = { device: 'h100,h200', context: '8k', usdPerHour: 'h100=2,h200=3.5' };
    const flags = ['--device', 'h100,h200', '--ctx', '8k', '--usd-per-hour', 'h100=2,h200=3.5'];
    const text = await call('plan', several);
    expect(text.text).toMatch(/\nBest +h\d00: .*\n(.*\n)*device plan/);
    expect(text.text).toBe((await inProcess('plan', ...flags)).out);
    const fleet = await call('plan', { ...several, users: 200 });
    expect(fleet.text).toMatch(/^Best +\d+ h\d00 /);
    expect(fleet.text).toBe((await inProcess('plan', ...flags, '--users', '200')).out);
    // Where nothing answers, the rows that a target removed and what comes nearest.
    const none = await call('plan', { device: 'h200', tpot: '10us', format: 'json' });
    expect(none.isError).toBe(true);
    expect(none.text).toBe((await inProcess('plan', '--device', 'h200', '--tpot', '10us', '--format', 'json')).out);
    expect(none.text).toContain('"nearest": {');
  });

  it('answers the other tools', async () => {
    const scenarios = ['h100', 'h200'].map((device) => ({ device, context: 8192 }));
    const compared = await call('compare', { scenarios });
    expect(compared.text).toMatch(/Best +h200: /);
    const alike = { device: 'h100', context: '8k' };
    const named = { scenarios: [{ name: 'A', ...alike }, { name: 'B', stack: 'sglang', ...alike }, alike] };
    const { text: rows } = await call('compare', named);
    expect(rows).toMatch(/^A +h100 +full +vLLM 0/m);
    expect(rows).toMatch(/^B: stack sglang h100 +hla-\S+ estimate/m);
    expect(rows).toMatch(/^ +h100 +full +vLLM 0/m);
    expect(rows).toMatch(/^Best +h100 \(A\): /m);
    expect(rows).not.toContain('cheaper');
    const { text: runs } = await call('compare', { ...named, format: 'json' });
    const names = (JSON.parse(runs) as { runs: { scenario: { name: string | null } }[] }).runs;
    expect(names.map(({ scenario }) => scenario.name)).toEqual(['A', 'B', null]);
    expect((await call('models', { devices: true })).text).toMatch(/^h200 /m);
    expect((await call('models', { name: 'ouro-1.4b' })).text).toContain('24 × 4');
    expect(JSON.parse((await call('accuracy', { only: 'hla', format: 'json' })).text)).toHaveProperty('kinds');
    let told = 0;
    const asked = { device: 'h200', codec: ['full'], workload: { requests: 5_000, rate: 2 }, format: 'json' };
    const onprogress = (): number => told++;
    const simulated = await client.callTool({ name: 'simulate', arguments: asked }, undefined, { onprogress });
    const [{ text }] = simulated.content as [{ text: string }];
    expect(JSON.parse(text)).toMatchObject({ schema: 'lla-sim/simulation', completed: expect.any(Number) as number });
    expect(told).toBeGreaterThan(0);
  });

  it('says what is wrong in a line, as the command line does', async () => {
    for (const [name, args, words] of [
      ['plan', { device: 'h20O' }, /^unknown device "h20O"; did you mean/],
      ['plan', { device: 'h100,'.repeat(1000) }, /: device must have at most 4096 characters, not 5000; /],
      ['plan', { context: '8k,'.repeat(2000) }, /: context must have at most 4096 characters, not 6000; /],
      ['plan', { tpot: 50 }, /: tpot must be a time with its unit, such as 80ms, not 50; /],
      ['plan', { devic: 'h200' }, /has an unknown field "devic"; did you mean device\?/],
      ['plan', { device: 'h200', context: '100M', codec: ['full'] }, /^nothing fits: /],
      ['simulate', { device: 'h200', findRate: 3 }, /findRate/],
      ['simulate', { device: 'h200', users: 100_000 }, /has an unknown field "users"/],
      ['simulate', { device: 'h200', context: '32k' }, /has an unknown field "context"/],
      ['compare', { scenarios: [] }, /^compare: scenarios /],
      ['models', { nme: 'ouro-1.4b' }, /^models: arguments has an unknown field "nme"; /],
      ['cook', {}, /^there is no tool "cook"; call plan, /],
    ] as const) {
      const { text, isError } = await call(name, args);
      expect(isError, text).toBe(true);
      expect(text).toMatch(words);
      expect(text).not.toMatch(/\n/);
    }
  });

  it('answers what is no message, and parameters that are wrong, by the codes of JSON-RPC', () => {
    const ask = (text: string): string => `{"jsonrpc":"2.0","id":7,${text}}`;
    const start = '"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}';
    const lines = [
      ask(`"method":"initialize","params":{${start}}`),
      '{"jsonrpc":"2.0",',
      '[]',
      ask('"params":{}'),
      '{"jsonrpc":"1.0","id":7,"method":"tools/list"}',
      ask('"method":"tools/call"'),
      ask('"method":"tools/call","params":{"name":"plan","arguments":5}'),
      ask('"method":"tools/call","params":{"arguments":{}}'),
      ask('"method":"initialize","params":{}'),
    ];
    const { stdout } = spawnSync(process.execPath, [program.cli, 'mcp'], { input: `${lines.join('\n')}\n` });
    interface Answer {
      id: number | null;
      error?: { code: number; message: string };
    }
    const answers = stdout.toString().trim().split('\n');
    const errors = answers.map((line) => JSON.parse(line) as Answer).filter((answer) => answer.error !== undefined);
    const noMessage: unknown = expect.stringMatching(/^the line is no message of JSON-RPC 2\.0: /);
    expect(errors.map(({ id, error }) => [id, error?.code, error?.message])).toEqual([
      [null, -32700, 'the line is not valid JSON'],
      ...[1, 2, 3].map(() => [null, -32600, noMessage]),
      [7, -32602, 'tools/call: params is missing'],
      [7, -32602, 'tools/call: params.arguments must be a map of fields, not 5'],
      [7, -32602, 'tools/call: params.name is missing'],
      [7, -32602, expect.stringMatching(/^initialize: params\.protocolVersion is missing$/)],
    ]);
  });

  it('ends with an error where a line is too long to read', () => {
    const input = 'x'.repeat(11 * 2 ** 20);
    const { status, stderr } = spawnSync(process.execPath, [program.cli, 'mcp'], { input });
    expect(status).toBe(2);
    expect(stderr.toString()).toMatch(/^error: a line of standard input is longer than 10 MiB; /);
  });
});
