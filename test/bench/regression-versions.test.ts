/** What `--against` names, in a repository made for the test; and how sources relate. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { relate, resolveAgainst, type Against } from '../../src/bench/regression/versions.js';
import { sourcesFrom } from '../../kernels/source.js';
import type { Step } from '../../src/gpu/index.js';

const root = mkdtempSync(join(tmpdir(), 'lla-sim-against-'));
const git = (...args: string[]): void =>
  void execFileSync('git', ['-C', root, '-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { stdio: 'ignore' });
const commit = (text: string): void => {
  writeFileSync(join(root, 'program/kernels/a.wgsl'), text);
  git('add', '.');
  git('commit', '-m', text);
};
const program = join(root, 'program');
mkdirSync(join(program, 'kernels'), { recursive: true });
git('init', '-b', 'main');
commit('first');
commit('second');
afterAll(() => rmSync(root, { recursive: true, force: true }));

const sourceOf = (a: Against): string => a.sources.load('a', 'f16');

describe('--against', () => {
  test("a revision is read from git, below the program's folder of the repository", () => {
    expect(sourceOf(resolveAgainst('HEAD', program))).toBe('second');
    const before = resolveAgainst('HEAD~1', program);
    expect(sourceOf(before)).toBe('first');
    expect(before).toMatchObject({ kind: 'git', name: expect.stringMatching(/^HEAD~1 \([0-9a-f]{10}\)$/) as string });
  });

  test('two revisions have ids of their own, as pipelines are kept by them', () => {
    const [a, b] = [resolveAgainst('HEAD', program), resolveAgainst('HEAD~1', program)];
    expect(a.sources.id).not.toBe(b.sources.id);
    expect(a.sources.id).not.toBe('own');
  });

  test('revisions of both layouts are read: files in kernels/, and folders of src/kernels/', () => {
    const moved = join(root, 'moved');
    mkdirSync(join(moved, 'kernels'), { recursive: true });
    writeFileSync(join(moved, 'kernels/a.wgsl'), '#include "b.wgsl"\nold');
    writeFileSync(join(moved, 'kernels/b.wgsl'), 'part');
    git('add', '.');
    git('commit', '-m', 'flat');
    for (const folder of ['a', 'shared']) mkdirSync(join(moved, 'src/kernels', folder), { recursive: true });
    writeFileSync(join(moved, 'src/kernels/a/a.wgsl'), '#include "b.wgsl"\nnew');
    writeFileSync(join(moved, 'src/kernels/shared/b.wgsl'), 'part');
    rmSync(join(moved, 'kernels'), { recursive: true });
    git('add', '.');
    git('commit', '-m', 'folders');
    expect(sourceOf(resolveAgainst('HEAD', moved))).toBe('part\nnew');
    expect(sourceOf(resolveAgainst('HEAD~1', moved))).toBe('part\nold');
    expect(sourceOf(resolveAgainst(moved))).toBe('part\nnew');
    expect(sourceOf(resolveAgainst(join(moved, 'src/kernels')))).toBe('part\nnew');
  });

  test("without another folder git looks in this program's checkout", () => {
    expect(() => resolveAgainst('no-such-ref')).toThrow(/^(?!.*no git revision of (\/|\.\.))/);
  });

  test('a folder is taken as it lies, or its folder kernels', () => {
    writeFileSync(join(program, 'kernels/a.wgsl'), 'third');
    expect(sourceOf(resolveAgainst(join(program, 'kernels'), program))).toBe('third');
    expect(sourceOf(resolveAgainst(program, program))).toBe('third');
  });

  test('a file is refused', () => {
    const path = join(root, 'c.json');
    writeFileSync(path, '{}');
    expect(() => resolveAgainst(path, program)).toThrow(/is a file/);
  });

  test.each([
    ['--help', /must be a git revision/],
    ['no-such-ref', /no git revision/],
    ['HEAD; touch /tmp/x', /no git revision/],
    ['HEAD:program/kernels/a.wgsl', /no git revision/],
    ['a\0b', /must be a git revision/],
  ])('%j is refused as wrong input', (name, message) => {
    const refused = { name: 'UserError', exitCode: 2, message: expect.stringMatching(message) as string };
    expect(() => resolveAgainst(name, program)).toThrow(expect.objectContaining(refused) as Error);
  });

  test('a folder and a revision without kernels are refused', () => {
    const bare = mkdtempSync(join(root, 'bare-'));
    expect(() => resolveAgainst(bare, program)).toThrow(/holds no kernels/);
    expect(() => resolveAgainst('HEAD', root)).toThrow(/has no kernels/);
  });
});

describe('sources', () => {
  const step = (source: string): Step => {
    const rest = { constants: {}, uniforms: { count: 1 }, buffers: [] };
    return { source, element: 'f16', ...rest, workgroups: [1, 1, 1] };
  };
  const of = (id: string, files: Record<string, string>) =>
    sourcesFrom(id, (file) => {
      const text = files[file];
      if (text === undefined) throw new Error(`kernel ${file} does not exist`);
      return text;
    });
  const block = (name: string): string => `struct P { ${name}: u32 }\n@group(0) @binding(0) var<uniform> p: P;\n`;
  const now = of('now', { 'a.wgsl': '#include "b.wgsl"\nmain', 'b.wgsl': 'b' });

  test('are compared with their includes', () => {
    const same = of('x', { 'a.wgsl': '#include "b.wgsl"\nmain', 'b.wgsl': 'b' });
    expect(relate([step('a')], same, now)).toEqual({ kind: 'identical' });
    const included = of('x', { 'a.wgsl': '#include "b.wgsl"\nmain', 'b.wgsl': block('count') });
    expect(relate([step('a')], included, now)).toEqual({ kind: 'changed' });
    const other = of('x', { 'a.wgsl': block('count'), 'b.wgsl': 'b' });
    expect(relate([step('b'), step('a')], other, now)).toEqual({ kind: 'changed' });
  });

  test.each([
    ['uniforms have other names', { 'a.wgsl': block('rows') }, /^uniform rows has no value$/],
    ['files are missing', {}, /^kernel a.wgsl does not exist$/],
    ['directives do not resolve', { 'a.wgsl': '#define X' }, /unresolved/],
  ] as [string, Record<string, string>, RegExp][])('whose %s cannot be run, and say so', (_, files, reason) => {
    const told = { kind: 'unreadable', version: 'before', reason: expect.stringMatching(reason) as string };
    expect(relate([step('a')], of('x', files), now)).toEqual(told);
  });

  test('of today that are missing say so', () => {
    expect(relate([step('a')], now, of('x', {}))).toMatchObject({ kind: 'unreadable', version: 'now' });
  });
});
