/** How the sections of a validation share its budget. */
import { expect, test } from 'vitest';
import { Budget } from '../../src/io/budget.js';
import { partsOf, type Part } from '../../src/validate/parts.js';
import { SECTIONS } from '../../src/validate/report.js';
import { randomOf, SEED } from '../gpu/random.js';

test(`sections that use their parts up end in time, and what one leaves goes to others (LLA_SIM_SEED=${SEED})`, () => {
  const random = randomOf(SEED);
  let at = 0;
  const parts: readonly Part[] = ['memory', 'correctness', 'capacity', 'times', 'serving'];
  const budget = new Budget(100, () => at);
  const partOf = partsOf({ budget, sections: SECTIONS, serving: true });
  const shares = parts.map((name) => {
    const { seconds } = partOf(name);
    at += seconds;
    return seconds;
  });
  expect(shares.map((s) => Math.round(s))).toEqual([20, 5, 10, 25, 40]);
  expect(budget.left).toBeCloseTo(0, 9);

  at = 0;
  const next = partsOf({ budget: new Budget(100, () => at), sections: ['memory'], serving: false });
  expect(next('memory').seconds).toBe(80);
  at += random.whole(10, 70);
  expect(next('correctness').seconds).toBe(100 - at);
  // A section that overran leaves nothing.
  at = 110;
  const late = new Budget(100, () => at, undefined, 0);
  expect(partsOf({ budget: late, sections: SECTIONS, serving: false })('times').left).toBe(0);
});
