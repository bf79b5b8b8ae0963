import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { UserError } from '../../src/errors.js';
import { checkWritable, keepBeside, makeFolder, Replacement, writeWhole } from '../../src/io/write.js';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'lla-sim-write-'));
});
afterEach(() => rmSync(folder, { recursive: true }));
const at = (name: string): string => join(folder, name);
const read = (name: string): string => readFileSync(at(name), 'utf8');

/** A process number that nobody has any more. */
const deadProcess = (): number => spawnSync(process.execPath, ['-e', '']).pid;

describe('writeWhole', () => {
  test('replaces the file and leaves nothing beside it', () => {
    writeWhole(at('x'), 'one', '--output');
    writeWhole(at('x'), 'two', '--output');
    expect(read('x')).toBe('two');
    expect(readdirSync(folder)).toEqual(['x']);
  });

  test('keeps the permissions of the file that it replaces', () => {
    writeFileSync(at('x'), 'old');
    chmodSync(at('x'), 0o640);
    writeWhole(at('x'), 'new', '--output');
    expect(statSync(at('x')).mode & 0o777).toBe(0o640);
  });

  test('rewrites the target of a link, also one that is not there yet', () => {
    mkdirSync(at('far'));
    writeFileSync(at('far/target'), 'old');
    symlinkSync('far/target', at('link'));
    symlinkSync('link', at('second'));
    symlinkSync('far/new', at('dangling'));
    writeWhole(at('second'), 'through two links', '--output');
    writeWhole(at('dangling'), 'made', '--output');
    expect(lstatSync(at('link')).isSymbolicLink() && lstatSync(at('second')).isSymbolicLink()).toBe(true);
    expect(read('far/target')).toBe('through two links');
    expect(lstatSync(at('dangling')).isSymbolicLink()).toBe(true);
    expect(read('far/new')).toBe('made');
    expect(readdirSync(folder).sort()).toEqual(['dangling', 'far', 'link', 'second']);
  });

  test('writes to a device and never replaces it', () => {
    symlinkSync('/dev/null', at('null'));
    writeWhole(at('null'), 'gone', '--output');
    expect(statSync('/dev/null').isCharacterDevice()).toBe(true);
    expect(lstatSync(at('null')).isSymbolicLink()).toBe(true);
  });

  test.runIf(existsSync('/dev/full'))('says that a full device is full', () => {
    expect(() => writeWhole('/dev/full', 'x', '--output')).toThrow(
      /--output "\/dev\/full" cannot be written: no space/,
    );
  });

  test('says in one line what is wrong with a place, and leaves the old file alone', () => {
    symlinkSync('loop', at('loop'));
    writeFileSync(at('file'), 'old');
    for (const [path, reason] of [
      [folder, /it is a folder/],
      [at('missing/x'), /its folder does not exist/],
      [at('file/x'), /not a folder/],
      [at('loop'), /circle/],
      [at('x'.repeat(300)), /name is too long/],
    ] as const) {
      expect(() => writeWhole(path, 'new', '--output')).toThrow(UserError);
      expect(() => writeWhole(path, 'new', '--output')).toThrow(reason);
      expect(() => checkWritable(path, '--output')).toThrow(reason);
    }
    expect(read('file')).toBe('old');
    expect(readdirSync(folder).sort()).toEqual(['file', 'loop']);
  });

  test('removes what a dead process left half written, and nothing else', () => {
    const dead = `.x.${deadProcess()}.partial`;
    const [alive, other] = [`.x.${process.ppid}.partial`, `.y.${deadProcess()}.partial`];
    for (const name of [dead, alive, other]) writeFileSync(at(name), 'half');
    writeWhole(at('x'), 'whole', '--output');
    expect(readdirSync(folder).sort()).toEqual([alive, other, 'x'].sort());
  });
});

test('files are replaced together or not at all', () => {
  writeFileSync(at('a'), 'old a');
  writeFileSync(at('b'), 'old b');
  const replacement = new Replacement();
  const listeners = process.listenerCount('SIGTERM');
  replacement.add(at('a'), 'new a');
  // A signal in between would leave the part.
  expect(process.listenerCount('SIGTERM')).toBe(listeners + 1);
  expect(() => replacement.add(at('missing/b'), 'new b')).toThrow(/ENOENT/);
  replacement.discard();
  expect([read('a'), read('b')]).toEqual(['old a', 'old b']);
  expect(readdirSync(folder).sort()).toEqual(['a', 'b']);
  replacement.add(at('a'), 'new a');
  replacement.add(at('b'), 'new b');
  expect(read('a')).toBe('old a');
  replacement.commit();
  expect([read('a'), read('b')]).toEqual(['new a', 'new b']);
  expect(process.listenerCount('SIGTERM')).toBe(listeners);
});

test('folders are made as far as one can be, and refused in one line elsewhere', () => {
  makeFolder(at('a/b/c'), '--output');
  makeFolder(at('a/b/c'), '--output');
  expect(statSync(at('a/b/c')).isDirectory()).toBe(true);
  writeFileSync(at('file'), '');
  expect(() => makeFolder(at('file/x'), '--output')).toThrow(/cannot be written: a part of its path is not a folder/);
  expect(() => makeFolder(at(`a/${'x'.repeat(300)}`), '--output')).toThrow(/its name is too long/);
});

test.runIf(existsSync('/proc/self'))('a place that takes no folders is refused, and does not wait for ever', () => {
  expect(() => makeFolder('/proc/none/x', '--output')).toThrow(/takes no new folders|permission is denied/);
});

test('a trial leaves nothing behind, and refuses a device where a file is needed', () => {
  checkWritable(at('x'), 'calibration', true);
  expect(readdirSync(folder)).toEqual([]);
  checkWritable('/dev/null', '--output');
  expect(() => checkWritable('/dev/null', 'calibration', true)).toThrow(/is not a regular file/);
});

test('a file that is kept beside takes a free name', () => {
  writeFileSync(at('x.json'), 'one');
  expect(keepBeside(at('x.json'))).toBe(at('x.json.old'));
  writeFileSync(at('x.json'), 'two');
  expect(keepBeside(at('x.json'))).toBe(at('x.json.old-2'));
  expect([read('x.json'), read('x.json.old'), read('x.json.old-2')]).toEqual(['two', 'one', 'two']);
});
