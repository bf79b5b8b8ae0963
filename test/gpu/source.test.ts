/** The WGSL loader: what it resolves and what it refuses. */
import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { expect, test } from 'vitest';
import { KERNEL_DIRECTORY } from '../../kernels/files.js';
import { filesByName } from '../../kernels/names.js';
import { codeOf, hashSources, loadSource } from '../../kernels/source.js';

const files =
  (sources: Record<string, string>) =>
  (file: string): string => {
    const text = sources[file];
    if (text === undefined) throw new Error(`no such file ${file}`);
    return text;
  };

test('an include is inserted once, and the element line becomes the storage type', () => {
  const read = files({
    'a.wgsl': '#element\n#include "b.wgsl"\n#include "c.wgsl"\nmain',
    'b.wgsl': '#include "c.wgsl"\nb',
    'c.wgsl': 'c',
    'element_f16.wgsl': 'halves',
  });
  expect(loadSource('a', 'f16', read)).toBe('halves\nc\nb\n\nmain');
});

test('an include cycle is refused', () => {
  expect(() => loadSource('a', 'f16', files({ 'a.wgsl': '#include "b.wgsl"', 'b.wgsl': '#include "a.wgsl"' }))).toThrow(
    /cycle a.wgsl -> b.wgsl -> a.wgsl/,
  );
});

test.each(['#define X 1', '  #include <b.wgsl>', 'let x = ${RANK};', 'let x = {{RANK}};'])(
  'an unresolved line is refused: %s',
  (line) => {
    expect(() => loadSource('a', 'f16', files({ 'a.wgsl': `fn a() {}\n${line}` }))).toThrow(/unresolved directive/);
  },
);

test('every kernel on disk resolves in both storage types, says how to run it', () => {
  const files = readdirSync(KERNEL_DIRECTORY, { recursive: true, encoding: 'utf8' }).filter((f) => f.endsWith('.wgsl'));
  expect(files.length).toBeGreaterThan(60);
  for (const file of files) {
    const name = basename(file, '.wgsl');
    for (const element of ['f16', 'f32'] as const) {
      const source = loadSource(name, element);
      if (source.includes('@compute')) expect(source, file).toMatch(/Bindings:[\s\S]*Run(:| by )/);
    }
  }
});

test('the hash is of the resolved source: it changes with the element and with an include', () => {
  const of = (element: 'f16' | 'f32'): string => hashSources([{ name: 'attend', element }]);
  expect(of('f16')).toMatch(/^[0-9a-f]{64}$/);
  expect(of('f16')).not.toBe(of('f32'));
});

test('comments, line breaks and indentation are no code; words and operators are', () => {
  const code = 'fn main(a: u32) { let b = a - 1u; return b & c; }';
  const same = [
    '// maths: a /* b\nfn main(\n  a: u32\n) {\n  let b = a - 1u; // one less\n  return b & c;\n}\n',
    '/* a /* nested */ // b */fn/* */main(a:u32){let b=a-1u;return/**/b&c;}',
  ];
  for (const text of same) expect(codeOf(text)).toBe(codeOf(code));
  for (const other of ['fn mainly', 'fn main (b', 'let b = a - -1u', 'let b = a--1u', 'fn/main', ''])
    expect(codeOf(other)).not.toBe(codeOf(code));
  expect(codeOf('a - -b')).not.toBe(codeOf('a--b'));
  expect(codeOf('let a')).not.toBe(codeOf('leta'));
});

test('a file is known by its name, which no two folders share', () => {
  const files = filesByName(['a/a.wgsl', 'a/terms.ts', 'shared\\b.wgsl', 'c.wgsl']);
  expect(Object.fromEntries(files)).toEqual({ 'a.wgsl': 'a/a.wgsl', 'b.wgsl': 'shared\\b.wgsl', 'c.wgsl': 'c.wgsl' });
  expect(() => filesByName(['a/a.wgsl', 'b/a.wgsl'])).toThrow(
    'a.wgsl lies in two folders of kernels: a/a.wgsl and b/a.wgsl',
  );
});
