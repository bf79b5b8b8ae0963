/** The verdict on a published figure, given the model's answer. */
import type { Answer, Comparison, PaperFigure, Verdict } from './types.js';

/**
 * Compares. A figure that must be exact is `exact`, `by-definition` or `wrong`; one with an interval is `inside`,
 * `explained`, `undecided` or `unexplained`; one whose difference is known is `explained` while its reason holds.
 */
export function judge(figure: PaperFigure, answer: Answer | null): Comparison {
  const { id, section, source, quantity, unit } = figure;
  const common = {
    id,
    section,
    source,
    quantity,
    unit,
    published: { text: figure.text, value: figure.value },
    mustBeExact: figure.expect === 'exact',
  };
  if (answer === null) return { ...common, model: null, verdict: 'not-predictable', reason: NOT_PREDICTABLE };
  const { text, value, low, high } = answer;
  return { ...common, model: { text, value, low, high }, ...verdictOf(figure, answer) };
}

function verdictOf(figure: PaperFigure, answer: Answer): { verdict: Verdict; reason: string } {
  if (figure.expect === 'exact') {
    const right = answer.byDefinition ? 'by-definition' : 'exact';
    return { verdict: equal(figure, answer) ? right : 'wrong', reason: answer.reason };
  }
  if (figure.expect === 'interval' && within(figure, answer))
    return {
      verdict: 'inside',
      reason: answer.reason + (answer.remark ? `; ${answer.remark(figure.value as number)}` : ''),
    };
  if (figure.expect === 'explained' && equal(figure, answer)) return { verdict: 'exact', reason: answer.reason };
  const published = figure.value ?? NaN;
  const reason = answer.explain?.(published, figure.text) ?? null;
  if (reason === null) return { verdict: 'unexplained', reason: answer.reason };
  const condition = answer.undecided?.(published) ?? null;
  return condition === null
    ? { verdict: 'explained', reason }
    : { verdict: 'undecided', reason: `${reason}; but ${condition}` };
}

/** Floating-point noise of sums and quotients; far below any digit that is printed. */
const NOISE = 1e-9;

function equal(f: PaperFigure, a: Answer): boolean {
  if (f.value === null) return f.text === a.text;
  return a.value !== null && Math.abs(a.value - f.value) <= f.precision + NOISE * Math.abs(f.value);
}

const within = (f: PaperFigure, a: Answer): boolean =>
  f.value !== null &&
  a.low !== null &&
  a.high !== null &&
  f.value + f.precision >= a.low &&
  f.value - f.precision <= a.high;

const NOT_PREDICTABLE = 'accuracy needs the model’s weights: carried as published, never predicted';
