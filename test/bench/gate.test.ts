/** The gate for kernels: what its script asks, what it writes into a job's summary, and how it ends. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { ROOT, scratch } from '../cli/program.js';

const ACTION = parse(readFileSync(join(ROOT, 'action.yml'), 'utf8')) as {
  inputs: Record<string, { default: string }>;
  runs: { steps: { run?: string; env?: Record<string, string> }[] };
};

/** In place of the program: says what it was asked, and ends as it is told. */
const STUB =
  `console.log('| asked | ' + process.argv.slice(2).join(' ') + ' |'); ` + 'process.exit(Number(process.env.ENDS));';

describe('the gate for kernels', () => {
  const folder = scratch();
  const git = (...args: string[]): string =>
    spawnSync('git', ['-c', 'user.name=x', '-c', 'user.email=x@example.org', ...args], {
      cwd: folder.path,
      encoding: 'utf8',
    }).stdout.trim();
  beforeAll(() => {
    for (const name of ['scripts', 'dist/bin']) mkdirSync(join(folder.path, name), { recursive: true });
    copyFileSync(join(ROOT, 'scripts/gate.sh'), join(folder.path, 'scripts/gate.sh'));
    folder.file('dist/bin/cli.js', STUB);
    git('init', '--quiet');
    git('commit', '--quiet', '--allow-empty', '-m', 'base');
  });
  afterAll(() => folder.remove());

  function gate(ends: number, env: Record<string, string>) {
    const summary = join(folder.path, 'summary.md');
    rmSync(summary, { force: true });
    const r = spawnSync('bash', [join(folder.path, 'scripts/gate.sh')], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'] ?? '', GITHUB_STEP_SUMMARY: summary, ENDS: String(ends), ...env },
    });
    return { code: r.status, err: r.stderr, text: existsSync(summary) ? readFileSync(summary, 'utf8') : '' };
  }

  it.each([
    [0, 'No kernel became slower.'],
    [4, '**A kernel became slower or wrong.**'],
    [6, 'did not end (exit code 6)'],
  ])('ends with %i as the comparison does, and says so in the summary', (ends, words) => {
    const base = git('rev-parse', 'HEAD');
    expect(base).toMatch(/^[0-9a-f]{40}$/);
    const o = gate(ends, { LLA_SIM_AGAINST: base, LLA_SIM_KERNELS: 'attend,matmul', LLA_SIM_BUDGET: '30s' });
    expect(o.code, o.err).toBe(ends);
    const asked = `--against ${base} --budget 30s --threshold 5% --kernel attend,matmul --format markdown --quiet`;
    expect(o.text).toContain(`| asked | bench ${asked} |`);
    expect(o.text).toContain(words);
  });

  it('compares all kernels where none is named, and fails where there is nothing to compare with', () => {
    expect(gate(0, { LLA_SIM_AGAINST: 'HEAD' }).text).not.toContain('--kernel');
    for (const env of [{}, { LLA_SIM_AGAINST: 'no-such-revision' }]) {
      const o = gate(0, env as Record<string, string>);
      expect(o.code).not.toBe(0);
      expect(o.text).toBe('');
    }
  });

  it('gets every input of the action', () => {
    const env = Object.assign({}, ...ACTION.runs.steps.map((s) => s.env ?? {})) as Record<string, string>;
    const read = readFileSync(join(ROOT, 'scripts/gate.sh'), 'utf8').matchAll(/\$\{(LLA_SIM_\w+)/g);
    expect(new Set(Object.keys(env))).toEqual(new Set([...read].map(([, name]) => name)));
    const inputs = Object.keys(ACTION.inputs).map((name) => `\${{ inputs.${name} }}`);
    expect(Object.values(env).sort()).toEqual(inputs.sort());
    expect(ACTION.runs.steps.map((s) => s.run ?? '').join('\n')).not.toMatch(/\$\{\{ inputs/);
  });
});
