/**
 * Why figures of the ledger lie outside their intervals. Each cause was checked by the number that stands in it; what has
 * none here is unexplained.
 */
import type { Judged } from './judge.js';

interface Cause {
  readonly holds: (j: Judged) => boolean;
  readonly words: string;
}

const CAUSES: readonly Cause[] = [];

export const UNEXPLAINED = 'unexplained';

export const causeOf = (j: Judged): string => CAUSES.find((c) => c.holds(j))?.words ?? UNEXPLAINED;
