import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { writeAtomically } from '../../src/bench/save.js';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'lla-sim-save-'));
});
afterEach(() => rm(folder, { recursive: true }));

test('the file is replaced and nothing else stays', async () => {
  const path = join(folder, 'calibration.json');
  await writeAtomically(path, 'one');
  await writeAtomically(path, 'two');
  expect(await readFile(path, 'utf8')).toBe('two');
  expect(await readdir(folder)).toEqual(['calibration.json']);
});

test('a failure leaves no temporary file', async () => {
  await expect(writeAtomically(join(folder, 'missing', 'calibration.json'), 'x')).rejects.toThrow(/ENOENT/);
  expect(await readdir(folder)).toEqual([]);
});
