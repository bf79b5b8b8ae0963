/**
 * Processor time of a software adapter: what its threads computed, without what other programs and other virtual
 * machines took from them. On a shared machine a step takes 0.5 s or 1.4 s of wall time, and within a tenth the same
 * processor time (docs/experiments.md#the-clock-of-a-software-adapter).
 *
 * Linux counts it for each thread in nanoseconds (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat), and
 * leaves out time that the hypervisor took where it tells the guest (CONFIG_PARAVIRT_TIME_ACCOUNTING). Other systems:
 * no such clock, and the adapter's own timestamps count.
 */
import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import type { ProcessorClock } from './platform.js';

const TASKS = '/proc/self/task';
/** LP_MAX_THREADS of Mesa's llvmpipe. */
const MOST_WORKERS = 32;
/** Three decimal numbers. */
const RECORD_BYTES = 64;

/**
 * Seconds that a thread ran, from its `schedstat`: nanoseconds run, nanoseconds waited, time slices. Null: no such
 * text.
 */
export function ranSeconds(schedstat: string): number | null {
  const ran = /^(\d+) \d+ \d+\s*$/.exec(schedstat)?.[1];
  return ran === undefined ? null : Number(ran) * 1e-9;
}

/** Workers of llvmpipe: a thread a core that the process may use, unless its own variable says otherwise. */
export const workersOf = (cores: number, variable: string | undefined): number =>
  Math.max(1, Math.min(MOST_WORKERS, /^\d+$/.test(variable ?? '') ? Number(variable) : cores));

/** Threads of this process; none where the system does not list them. */
export function threadsNow(tasks = TASKS): ReadonlySet<string> {
  try {
    return new Set(readdirSync(tasks));
  } catch {
    return new Set();
  }
}

/** Whether the system counts the time of threads. */
export function countsThreads(): boolean {
  try {
    return ranSeconds(readFileSync('/proc/thread-self/schedstat', 'latin1')) !== null;
  } catch {
    return false;
  }
}

/**
 * A clock of the threads that began since `before`: those of an adapter, where `before` was taken before Dawn looked
 * for it. Threads that end keep the time that they had.
 * @returns null where there are none, or the system does not count their time
 */
export function processorClock(
  before: ReadonlySet<string>,
  workers = workersOf(availableParallelism(), process.env['LP_NUM_THREADS']),
  tasks = TASKS,
): ProcessorClock | null {
  if (before.size === 0) return null;
  const threads = [...threadsNow(tasks)]
    .filter((thread) => !before.has(thread))
    .flatMap((thread): { readonly file: number; seconds: number }[] => {
      try {
        return [{ file: openSync(`${tasks}/${thread}/schedstat`, 'r'), seconds: 0 }];
      } catch {
        return [];
      }
    });
  const text = Buffer.alloc(RECORD_BYTES);
  const read = (file: number): number | null => {
    try {
      return ranSeconds(text.toString('latin1', 0, readSync(file, text, 0, RECORD_BYTES, 0)));
    } catch {
      return null;
    }
  };
  const close = (): void => {
    for (const { file } of threads.splice(0)) closeSync(file);
  };
  if (!threads.some(({ file }) => (read(file) ?? 0) > 0)) {
    close();
    return null;
  }
  return {
    now: () =>
      threads.reduce((sum, thread) => {
        thread.seconds = read(thread.file) ?? thread.seconds;
        return sum + thread.seconds;
      }, 0) / workers,
    close,
  };
}
