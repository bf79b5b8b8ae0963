/** `--depth`: how many of a looped model's loops tokens take. */
import { UserError, show } from '../errors.js';
import { parseNumber } from '../units.js';

/** Shares of a list may miss 1 by this much, as they are rounded. */
const ROUNDED = 0.005;

/** Half of the tokens one loop early. */
const example = (loops: number): string =>
  Array.from({ length: loops }, (_, i) => (i < loops - 2 ? '0' : '0.5')).join(',');

/**
 * Reads `--depth`: the probability that a token leaves after loop 1, 2, …
 * @throws UserError for a list that is not one share for each loop with a sum of 1
 */
export function readProbabilities(text: string, loops: number): readonly number[] {
  const given = text.split(',').map((part) => parseNumber(part.trim(), '--depth', { min: 0, max: 1 }));
  const sum = given.reduce((a, b) => a + b, 0);
  if (given.length !== loops || Math.abs(sum - 1) > ROUNDED)
    throw new UserError(
      `--depth must have a share for each of the ${loops} loops, and they must add up to 1: ${show(text)} has ${given.length}, with a sum of ${sum.toFixed(3)}`,
      loops === 1 ? 'a model that does not loop has none to leave out' : `write for example --depth ${example(loops)}`,
    );
  return given.map((p) => p / sum);
}
