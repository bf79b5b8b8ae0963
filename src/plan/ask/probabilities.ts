/** `--depth`: how many of a looped model's loops tokens take. */
import { UserError, show } from '../../errors.js';
import { depthNames, publishedDepths, type PublishedDepths } from '../../quality/exit-depths.js';
import { isPath } from '../../schema/settings.js';
import { parseNumber } from '../../numbers/units.js';
import { readDepthTrace, recordedShares } from './depth-trace.js';

/** Shares of a list may miss 1 by this much, as they are rounded. */
const ROUNDED = 0.005;

/** Half of the tokens one loop early. */
const example = (loops: number): string =>
  Array.from({ length: loops }, (_, i) => (i < loops - 2 ? '0' : '0.5')).join(',');

/**
 * Depths of the file that `--depth` names, by answer; null where it names none.
 * @throws UserError naming file and line
 */
export const recordedDepths = (text: string, loops: number): readonly Uint8Array[] | null =>
  isPath(text) ? readDepthTrace(text, loops) : null;

/** What is published under the name that `--depth` gives; null for a list. @throws UserError for an unknown name */
export function namedDepths(text: string, preset: string | null): PublishedDepths | null {
  if (isPath(text) || !text.includes('@')) return null;
  const found = publishedDepths(text.trim());
  if (found && found.model === preset) return found;
  const names = depthNames(preset);
  throw new UserError(
    found
      ? `--depth ${found.model}@${found.at} is of another model`
      : `no exit depths are published under the name ${show(text)}`,
    names.length > 0 ? `write one of ${names.join(', ')}` : 'write a share for each loop, separated by commas',
  );
}

/**
 * Reads `--depth`: the probability that a token leaves after loop 1, 2, …; of recorded depths their shares.
 * @param preset whose published depths may be named; null for a model of a file
 * @throws UserError for a list that is not one share for each loop with a sum of 1, and for an unknown name
 */
export function readProbabilities(text: string, loops: number, preset: string | null): readonly number[] {
  const recorded = recordedDepths(text, loops);
  if (recorded) return recordedShares(recorded, loops);
  const named = namedDepths(text, preset);
  if (named && named.shares.length === loops) return named.shares;
  if (named)
    throw new UserError(
      `${named.model}@${named.at} is of ${named.shares.length} loops, not ${loops}`,
      'leave --loops out',
    );
  const given = text.split(',').map((part) => parseNumber(part.trim(), '--depth', { min: 0, max: 1 }));
  const sum = given.reduce((a, b) => a + b, 0);
  if (given.length !== loops || Math.abs(sum - 1) > ROUNDED)
    throw new UserError(
      `--depth must have a share for each of the ${loops} loops, and they must add up to 1: ${show(text)} has ` +
        `${given.length}, with a sum of ${sum.toFixed(3)}`,
      loops === 1 ? 'a model that does not loop has none to leave out' : `write for example --depth ${example(loops)}`,
    );
  return given.map((p) => p / sum);
}
