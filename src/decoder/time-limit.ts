/** Calls with a time limit: work that a file from outside asks for may never end, such as a backtracking pattern. */
import { createContext, Script } from 'node:vm';

const context = createContext({ call: null as (() => unknown) | null });
const script = new Script('call()');

export class TimeLimitError extends Error {}

/**
 * Runs a synchronous call, which is stopped wherever it is when its time is over.
 * @param milliseconds by the wall clock
 * @throws TimeLimitError when the time is over, and what the call throws
 */
export function within<T>(milliseconds: number, call: () => T): T {
  context['call'] = call;
  try {
    return script.runInContext(context, { timeout: milliseconds }) as T;
  } catch (error) {
    if ((error as NodeJS.ErrnoException | null)?.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT')
      throw new TimeLimitError(`longer than ${milliseconds} ms`);
    throw error;
  } finally {
    context['call'] = null;
  }
}
