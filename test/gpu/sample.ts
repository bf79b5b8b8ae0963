/** How much of a list of cases one run takes: a seeded part, or all with LLA_SIM_CONTRACT=full. */
import { mix } from '../../src/numbers/hash.js';
import { SEED } from './random.js';

export const FULL = process.env.LLA_SIM_CONTRACT === 'full';

/** Every n-th of the cases, from one that the seed and `salt` choose. */
export const everyNth = <T>(cases: readonly T[], n: number, salt = 0): T[] =>
  cases.filter((_, i) => FULL || i % n === mix(SEED + salt) % n);
