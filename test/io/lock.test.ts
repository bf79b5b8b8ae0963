import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { lockFile } from '../../src/io/lock.js';
import { beginningOf } from '../../src/io/process-alive.js';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'lla-sim-lock-'));
});
afterEach(() => rmSync(folder, { recursive: true }));
const file = (): string => join(folder, 'x.json');
const held = (content: string): void => writeFileSync(`${file()}.lock`, content);

test('is refused while its process lives, by whatever link, and free afterwards', () => {
  const unlock = lockFile(file(), 'calibration');
  symlinkSync('x.json', join(folder, 'link.json'));
  const refused = new RegExp(`calibration ".*" is being written by process ${process.pid}`);
  expect(() => lockFile(file(), 'calibration')).toThrow(refused);
  expect(() => lockFile(join(folder, 'link.json'), 'calibration')).toThrow(refused);
  unlock();
  lockFile(join(folder, 'link.json'), 'calibration')();
  expect(readdirSync(folder)).toEqual(['link.json']);
});

test('a dead process holds none, nor does an empty file', () => {
  const { pid } = spawnSync(process.execPath, ['-e', '']);
  for (const content of [`${pid} 1 ${hostname()}\n`, `${pid} - ${hostname()}\n`, '', 'rubbish']) {
    held(content);
    const unlock = lockFile(file(), 'calibration');
    unlock();
    expect(readdirSync(folder), content).toEqual([]);
  }
});

test.runIf(beginningOf(process.pid) !== null)('a later process of the same number holds none', () => {
  held(`${process.ppid} 1 ${hostname()}\n`);
  lockFile(file(), 'calibration')();
  held(`${process.ppid} ${beginningOf(process.ppid)} ${hostname()}\n`);
  expect(() => lockFile(file(), 'calibration')).toThrow(/is being written by process/);
});

test('a process of another machine cannot be asked, so that its lock holds', () => {
  held('1 1 elsewhere\n');
  expect(() => lockFile(file(), 'calibration')).toThrow(/process 1 on elsewhere; |process 1 on elsewhere$/);
  rmSync(`${file()}.lock`);
});

test('says so where there can be no lock', () => {
  expect(() => lockFile(join(folder, 'missing/x.json'), 'calibration')).toThrow(/its folder does not exist/);
});
