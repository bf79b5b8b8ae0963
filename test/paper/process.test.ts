/** `lla-sim paper` as a process: streams, files, exit codes. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compile, scratch } from '../cli/program.js';

let program: Awaited<ReturnType<typeof compile>>;
const files = scratch();
beforeAll(async () => {
  program = await compile();
});
afterAll(() => {
  program.remove();
  files.remove();
});

describe('lla-sim paper', () => {
  it('0: a table on stdout, nothing on stderr, no colour in a pipe', () => {
    const o = program.run(['paper'], { env: { NO_COLOR: '' } });
    expect([o.code, o.err]).toEqual([0, '']);
    expect(o.out).toContain('The paper held against the model');
    expect(o.out).toContain('What the paper does not say, and the model does');
    expect(o.out).not.toMatch(/\u001b/);
    for (const line of o.out.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
  });

  it('JSON and Markdown, to stdout or a file', () => {
    const json = JSON.parse(program.run(['paper', '--format', 'json']).out) as {
      schema: string;
      schemaVersion: number;
      verdicts: Record<string, number>;
    };
    expect(json).toMatchObject({ schema: 'lla-sim/paper', schemaVersion: 3, verdicts: { wrong: 0, unexplained: 0 } });
    const at = join(files.path, 'paper.md');
    const o = program.run(['paper', '--format', 'markdown', '-o', at]);
    expect([o.code, o.out]).toEqual([0, '']);
    expect(o.err).toContain(at);
    expect(readFileSync(at, 'utf8')).toMatch(/^# The paper held against the model\n/);
    expect(program.run(['paper', '--format', 'markdown', '-o', at, '--quiet']).err).toBe('');
  });

  // Last: it breaks this compiled copy.
  it('5: a planner that counts a cache wrongly; the report is still printed, and stderr names the figures', () => {
    const at = join(program.cli, '../codecs/lla.js');
    const source = readFileSync(at, 'utf8');
    const broken = source.replace('g.kvHeads : 1, rankK', 'g.kvHeads + 1 : 1, rankK');
    expect(broken).not.toBe(source);
    writeFileSync(at, broken);
    const o = program.run(['paper', '--format', 'json']);
    expect(o.code).toBe(5);
    expect(o.err).toMatch(/figures that must be exact are not: memory\/kv-per-token\/ouro-1\.4b\/LLA 4×/);
    expect((JSON.parse(o.out) as { verdicts: { wrong: number } }).verdicts.wrong).toBeGreaterThan(0);
    expect(program.run(['paper', '--format', 'json', '--quiet']).err).toBe('');
  });
});
