/** How much time a command may take, on a clock that the test moves. */
import { describe, expect, it } from 'vitest';
import { Budget, readBudget } from '../../src/io/budget.js';
import { UserError } from '../../src/errors.js';

/** A clock, and work that takes seconds of it. */
function world(): { now: () => number; takes: (seconds: number) => () => Promise<void> } {
  let at = 100;
  return {
    now: () => at,
    takes: (seconds) => () => {
      at += seconds;
      return Promise.resolve();
    },
  };
}

describe('a budget', () => {
  it('has room for a piece as long as the longest of its kind, with a margin while there were few', async () => {
    const { now, takes } = world();
    const budget = new Budget(30, now);
    expect(budget.fits('open')).toBe(true);
    await budget.piece('open', takes(4));
    expect(budget.expected('open')).toBe(8);
    await budget.piece('open', takes(6));
    expect(budget.expected('open')).toBe(9);
    await budget.piece('open', takes(2));
    expect(budget.expected('open')).toBe(8);
    await budget.piece('step', takes(1));
    expect(budget.expected('open', 'step')).toBe(10);
    expect([budget.spent, budget.left]).toEqual([13, 17]);
    await takes(7)();
    expect(budget.fits('open', 'step')).toBe(true);
    await takes(1)();
    expect(budget.fits('open', 'step')).toBe(false);
    expect(budget.fits('open')).toBe(true);
    await takes(2)();
    expect(budget.fits('open')).toBe(false);
  });

  it('takes a figure that is known as it is', () => {
    const budget = new Budget(30, world().now);
    budget.expect('rounds', 5);
    expect(budget.expected('rounds')).toBe(5);
    budget.expect('rounds', 4);
    expect(budget.expected('rounds')).toBe(5);
  });

  it('counts a piece that failed, and is over when its time is', async () => {
    const { now, takes } = world();
    const budget = new Budget(10, now);
    const failing = budget.piece('open', async () => {
      await takes(6)();
      throw new Error('no');
    });
    await expect(failing).rejects.toThrow('no');
    expect(budget.fits('open')).toBe(false);
    expect(budget.fits('other')).toBe(true);
    await takes(5)();
    expect(budget.fits('other')).toBe(false);
    expect(budget.left).toBe(-1);
  });

  it('has parts that end with it, and know its pieces', async () => {
    const { now, takes } = world();
    const budget = new Budget(10, now);
    await budget.piece('open', takes(2));
    const part = budget.part(5);
    expect([part.seconds, part.fits('open')]).toEqual([5, true]);
    await takes(3)();
    expect([part.left, part.fits('open')]).toEqual([2, false]);
    part.note('open', 4);
    expect(budget.expected('open')).toBe(6);
    expect(budget.part(100).seconds).toBe(5);
    await takes(9)();
    expect(budget.part(100).seconds).toBe(0);
  });
});

it('--budget is a time, and at least what an answer takes', () => {
  expect(readBudget('90s', 10).seconds).toBe(90);
  expect(readBudget('1m', 60).seconds).toBe(60);
  expect(() => readBudget('soon', 10)).toThrow(UserError);
  expect(() => readBudget('9.9s', 10)).toThrow(/--budget must be at least 10s.*"9\.9s"/);
});
