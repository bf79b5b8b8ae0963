/** Whether dist/ has to be made again (scripts/newest.mjs). */
import { mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { isNewest } from '../scripts/newest.mjs';
import { scratch } from './cli/program.js';

it('a file is made again where a source in any folder is younger, new or gone, and where it is missing', () => {
  const folder = scratch();
  const path = (name: string): string => join(folder.path, name);
  mkdirSync(path('src/deep'), { recursive: true });
  for (const name of ['src/deep/a.ts', 'src/deep/b.ts', 'made']) writeFileSync(path(name), '');
  const at = (seconds: number, ...names: string[]): void =>
    names.forEach((name) => utimesSync(path(name), seconds, seconds));
  const all = ['src', 'src/deep', 'src/deep/a.ts', 'src/deep/b.ts'];
  const isCurrent = (): boolean => isNewest(path('made'), [path('src')]);
  at(1000, ...all);
  at(2000, 'made');
  expect(isCurrent()).toBe(true);
  at(3000, 'src/deep/a.ts');
  expect(isCurrent()).toBe(false);
  at(1000, 'src/deep/a.ts');
  expect(isCurrent()).toBe(true);
  rmSync(path('src/deep/b.ts'));
  expect(isCurrent()).toBe(false);
  at(1000, 'src/deep');
  expect(isCurrent()).toBe(true);
  rmSync(path('made'));
  expect(isCurrent()).toBe(false);
  folder.remove();
});
