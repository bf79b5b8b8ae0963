/** The clock of a software adapter: what Linux says of threads, from files made up like its own. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { processorClock, ranSeconds, threadsNow, workersOf } from '../../src/gpu/processor-time.js';

const tasks = mkdtempSync(join(tmpdir(), 'tasks-'));
afterAll(() => rmSync(tasks, { recursive: true }));
const thread = (id: string, text: string): void => {
  mkdirSync(join(tasks, id), { recursive: true });
  writeFileSync(join(tasks, id, 'schedstat'), text);
};

test('a record of a thread holds nanoseconds run; other texts are no record', () => {
  expect(ranSeconds('268314272 498656504 1702\n')).toBeCloseTo(0.268314272, 12);
  expect(ranSeconds('0 0 0')).toBe(0);
  // Ten years of a thread are counted to the microsecond.
  expect(ranSeconds('315360000000000001 5 6')).toBeCloseTo(315360000, 6);
  for (const text of ['', '12 34', '-1 2 3', '1 2 3 4', 'no such thing'])
    expect(ranSeconds(text), JSON.stringify(text)).toBeNull();
});

test('the threads that share the work are the cores, as the driver counts them', () => {
  expect(workersOf(2, undefined)).toBe(2);
  expect(workersOf(64, undefined)).toBe(32);
  expect(workersOf(8, '3')).toBe(3);
  expect(workersOf(8, '0')).toBe(1);
  expect(workersOf(8, 'many')).toBe(8);
});

test('time of the threads that began since is summed and shared; an ended or garbled one keeps what it had', () => {
  thread('1', '9000000000 0 1');
  const before = threadsNow(tasks);
  expect(processorClock(before, 2, tasks)).toBeNull();
  thread('2', '1000000000 7 1');
  thread('3', '0 0 0');
  const clock = processorClock(before, 2, tasks);
  expect(clock?.now()).toBeCloseTo(0.5, 12);
  // It stands still while nothing runs, however long others are run.
  thread('1', '99000000000 0 9');
  expect(clock?.now()).toBeCloseTo(0.5, 12);
  thread('2', '1500000000 9000000000 2');
  thread('3', '500000000 0 1');
  expect(clock?.now()).toBeCloseTo(1, 12);
  thread('3', '');
  expect(clock?.now()).toBeCloseTo(1, 12);
  clock?.close();
  // Its files may be others' by now.
  clock?.close();
});

test('there is no such clock where threads are not listed or their time is not counted', () => {
  expect(threadsNow(join(tasks, 'nowhere')).size).toBe(0);
  expect(processorClock(new Set(), 2, tasks)).toBeNull();
  const silent = new Set(['2', '3']);
  for (const nothing of ['0 0 0', '', 'none']) {
    thread('1', nothing);
    expect(processorClock(silent, 2, tasks)).toBeNull();
  }
  rmSync(join(tasks, '1', 'schedstat'));
  expect(processorClock(silent, 2, tasks)).toBeNull();
});
