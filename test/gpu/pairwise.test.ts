/** The sampler of the contract suites: every pair meets, forbidden cases never do, and the seed decides. */
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { pairsOf, pairwise, product, type Case } from './pairwise.js';
import { randomOf, SEED } from './random.js';

const FACTORS = { a: [1, 2, 3, 4], b: ['x', 'y', 'z'], c: [0, 1], d: ['p', 'q', 'r', 's', 't'] } as const;
const allowed = (of: Case<typeof FACTORS>): boolean => !(of.a === 1 && of.b === 'x');

test('every pair of an allowed case meets in far fewer cases than the product has', () => {
  const cases = pairwise(FACTORS, randomOf(mix(SEED)), allowed);
  const wanted = new Set(product(FACTORS, allowed).flatMap(pairsOf));
  const met = new Set(cases.flatMap(pairsOf));
  const missed = [...wanted].filter((p) => !met.has(p));
  expect(missed, `LLA_SIM_SEED=${SEED}`).toEqual([]);
  expect(cases.every(allowed)).toBe(true);
  expect(cases.length).toBeLessThan(40);
});

test('a limit keeps the first cases, and the same seed makes the same ones', () => {
  const all = pairwise(FACTORS, randomOf(7), allowed);
  expect(pairwise(FACTORS, randomOf(7), allowed, 5)).toEqual(all.slice(0, 5));
});
