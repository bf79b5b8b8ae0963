/** Ending early: Ctrl-C, a process that is asked to end, a terminal that closes. */

import { END_SIGNALS } from '../io/write.js';

/**
 * Calls `stop` once when the program is asked to end. Asked a second time, it ends at once.
 * @returns the function that removes the handler
 */
export function onInterrupt(stop: () => void): () => void {
  const release = (): void => {
    for (const name of END_SIGNALS) process.removeListener(name, stopped);
  };
  const stopped = (): void => {
    release();
    stop();
  };
  for (const name of END_SIGNALS) process.on(name, stopped);
  return release;
}

/** Runs `work` with a signal that is aborted when the program is asked to end. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const abort = new AbortController();
  const release = onInterrupt(() => abort.abort());
  try {
    return await work(abort.signal);
  } finally {
    release();
  }
}
