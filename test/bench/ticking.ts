/** A budget whose clock is a count: tests do not hang on how busy the machine is. */
import { Budget } from '../../src/io/budget.js';

/** Every look at the clock takes a second. */
export function ticking(seconds: number): Budget {
  let at = 0;
  return new Budget(seconds, () => at++);
}
