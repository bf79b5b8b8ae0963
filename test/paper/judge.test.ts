/** Verdicts: each can be reached, and each turns into another when its condition breaks. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PAPER_FIGURES, printed } from '../../src/paper/figures.js';
import { judge } from '../../src/paper/judge.js';
import type { Answer, Expectation, PaperFigure } from '../../src/paper/types.js';
import { SEED } from '../gpu/random.js';

const check = <T>(arbitrary: fc.Arbitrary<T>, property: (x: T) => void): void =>
  fc.assert(fc.property(arbitrary, property), { seed: SEED, numRuns: 300 });

const figure = (expectation: Expectation, value: number | null, precision = 0, text = 'x'): PaperFigure => ({
  id: 'f',
  section: 's',
  source: 'Table t',
  quantity: 'q',
  text,
  value,
  precision,
  unit: 'ratio',
  expect: expectation,
  subject: { of: 'accuracy' },
});
const answer = (value: number | null, low = value, high = value, explain?: Answer['explain'], text = 'x'): Answer => ({
  value,
  low,
  high,
  text,
  reason: 'because',
  ...(explain ? { explain } : {}),
});
const size = fc.double({ min: 1e-6, max: 1e12, noNaN: true });

describe('verdicts', () => {
  it('exact within half of the last printed digit, wrong beyond it', () => {
    check(fc.tuple(size, fc.double({ min: -3, max: 3, noNaN: true })), ([value, offset]) => {
      const precision = value * 0.01;
      if (Math.abs(Math.abs(offset) - 1) < 1e-3) return;
      const c = judge(figure('exact', value, precision), answer(value + offset * precision));
      expect(c.verdict).toBe(Math.abs(offset) < 1 ? 'exact' : 'wrong');
      expect(c.mustBeExact).toBe(true);
    });
  });

  it('an integer that counts something has no such room', () => {
    expect(judge(figure('exact', 768), answer(768)).verdict).toBe('exact');
    for (const value of [767, 768.4, 769]) expect(judge(figure('exact', 768), answer(value)).verdict).toBe('wrong');
    expect(judge(figure('exact', 768), answer(null)).verdict).toBe('wrong');
  });

  it('a claim in words is compared word by word', () => {
    expect(judge(figure('exact', null, 0, 'fits'), answer(null, null, null, undefined, 'fits')).verdict).toBe('exact');
    expect(judge(figure('exact', null, 0, 'fits'), answer(null, null, null, undefined, 'does not fit')).verdict).toBe(
      'wrong',
    );
  });

  it('inside when the printed value can lie in the interval, else explained or unexplained', () => {
    check(
      fc.tuple(size, size, fc.double({ min: 0, max: 0.1, noNaN: true }), size, fc.boolean()),
      ([a, b, share, value, known]) => {
        const [low, high] = [Math.min(a, b), Math.max(a, b)];
        const precision = share * value;
        const c = judge(
          figure('interval', value, precision),
          answer((low + high) / 2, low, high, () => (known ? 'a reason' : null)),
        );
        const inside = value + precision >= low && value - precision <= high;
        expect(c.verdict).toBe(inside ? 'inside' : known ? 'explained' : 'unexplained');
        expect(c.reason).toBe(inside || !known ? 'because' : 'a reason');
        expect(c.mustBeExact).toBe(false);
      },
    );
  });

  it('an explained difference needs its reason, and none where there is no difference', () => {
    const explained = answer(3.94, 3.94, 3.94, () => 'a reason');
    expect(judge(figure('explained', 4), explained).verdict).toBe('explained');
    expect(judge(figure('explained', 4), answer(3.94)).verdict).toBe('unexplained');
    expect(judge(figure('explained', 4), answer(4)).verdict).toBe('exact');
  });

  it('by definition in place of exact, and wrong all the same', () => {
    const defined = { ...answer(4), byDefinition: true as const };
    expect(judge(figure('exact', 4), defined).verdict).toBe('by-definition');
    expect(judge(figure('exact', 5), defined).verdict).toBe('wrong');
  });

  it('a reason that holds under an unstated condition decides nothing; without a reason there is none', () => {
    const refuted = (explain: Answer['explain']): Answer => ({
      ...answer(1, 1, 2, explain),
      undecided: () => 'it cannot',
    });
    const [reasoned, unreasoned] = ['a reason', null].map((reason) => refuted(() => reason)) as [Answer, Answer];
    const c = judge(figure('interval', 9), reasoned);
    expect([c.verdict, c.reason]).toEqual(['undecided', 'a reason; but it cannot']);
    expect(judge(figure('interval', 9), unreasoned).verdict).toBe('unexplained');
    expect(judge(figure('interval', 1), reasoned).verdict).toBe('inside');
  });

  it('what needs the weights is not predictable', () => {
    expect(judge(figure('not-predictable', 0.5), null)).toMatchObject({ verdict: 'not-predictable', model: null });
  });
});

describe('the figures as data', () => {
  it('every one has an id of its own and a place in the paper', () => {
    expect(new Set(PAPER_FIGURES.map((f) => f.id)).size).toBe(PAPER_FIGURES.length);
    for (const f of PAPER_FIGURES) expect(f.source, f.id).toMatch(/^(Table|text, Section|caption, Table) /);
  });

  it('values are those that the text prints', () => {
    expect(printed('1536 KiB', 'bytes')).toEqual({ value: 1536, precision: 0 });
    expect(printed('21.3×', 'ratio').precision).toBeCloseTo(0.05);
    expect(printed('4.00×', 'ratio').precision).toBeCloseTo(0.005);
    expect(printed('4×', 'ratio').precision).toBe(0);
    expect(printed('~8×', 'ratio').precision).toBe(0.5);
    expect(printed('748 tok/s', 'tokens/s').precision).toBe(0.5);
    expect(() => printed('infeasible', 'text')).toThrow(/no number/);
  });

  it('holds the tables of the systems part completely', () => {
    const count = (source: string): number => PAPER_FIGURES.filter((f) => f.source.startsWith(source)).length;
    // 6 + 3 + 5 + 2 + 2 cells that are not "n/a", the caption's 36 MiB, and 768/32 against ρ.
    expect(count('Table memory')).toBe(20);
    expect(count('Table absorbed_latency')).toBe(3 * 4);
    expect(count('Table decoupled_char')).toBe(4);
    expect(PAPER_FIGURES.filter((f) => f.source === 'Table tier4' && f.section === 'Ranks and ratios').length).toBe(12);
    expect(PAPER_FIGURES.filter((f) => f.source === 'Table huginn').length).toBe(12);
  });
});
