/** Codecs, paths and eviction policies say what they are; other rooms ask them, and do not compare names. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { comparisonsIn, NAMES } from './comparisons.js';

const SRC = fileURLToPath(new URL('../src/', import.meta.url));
const MOST = 10;
/**
 * Rooms that own the names; published figures, whose keys they are; and what is tried on a model, which is named.
 */
const OWNERS = /^(codecs|eviction|quality)\/|^paper\/(figures\/|quality-tables\.ts$)|^fidelity\/(grid\.ts$|claims\/)/;

it(`compares with names of codecs, paths and policies at most ${MOST} times outside their rooms`, () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .map((file) => file.split(sep).join('/'))
    .filter((file) => file.endsWith('.ts'));
  const found = files.flatMap((file) =>
    comparisonsIn(file, readFileSync(join(SRC, file), 'utf8')).map((c) => ({ ...c, file })),
  );
  const outside = found.filter(({ file }) => !OWNERS.test(file));
  // The owners compare too, so the search finds something.
  expect(found.length).toBeGreaterThan(outside.length + 10);
  const list = outside.map(({ file, line, name, text }) => `${file}:${line} ${name}: ${text}`).join('\n');
  expect(outside.length, list).toBeLessThanOrEqual(MOST);
});

it('finds every kind of comparison', () => {
  const forms = [
    `if (x.kind === 'NAME') y();`,
    `if ('NAME' !== (x.path as string)) y();`,
    `switch (x) { case 'NAME': y(); }`,
    `['NAME', 'other'].includes(x);`,
    `kinds.includes('NAME');`,
    `new Set(['NAME']).has(x);`,
    `new Map([['NAME', 1]]).get(x);`,
    `'NAME' in table;`,
    `label.startsWith('NAME-');`,
    `const table = { 'NAME': 1, other: 2 };`,
    `table['NAME'];`,
    `const ONE = 'NAME';`,
    `/^NAME-/.test(x);`,
  ];
  for (const name of NAMES)
    for (const form of forms)
      expect(comparisonsIn('x.ts', form.replace('NAME', name)), form.replace('NAME', name)).toHaveLength(1);
  const others = [`const codec: Codec = { kind: 'lla' };`, `type Kind = 'lla' | 'cla';`, `print('lla');`];
  for (const other of others) expect(comparisonsIn('x.ts', other), other).toEqual([]);
});
