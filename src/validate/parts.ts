/** How the sections of a validation share its budget. */
import type { Budget } from '../io/budget.js';
import type { Section } from './report.js';
import type { ValidateOptions } from './validate.js';

/** What a section leaves goes to those after it. */
const WEIGHTS = { memory: 4, correctness: 1, capacity: 2, times: 5, serving: 8 };
export type Part = keyof typeof WEIGHTS;

/** Gives the part of a section that begins. */
export function partsOf({
  budget,
  sections,
  serving,
}: Pick<ValidateOptions, 'budget' | 'sections' | 'serving'>): (part: Part) => Budget {
  const asks = (section: Section): boolean => sections.includes(section);
  const open = new Set<Part>([
    ...(asks('memory') ? (['memory', 'correctness'] as const) : []),
    ...(asks('capacity') ? (['capacity'] as const) : []),
    ...(asks('latency') || asks('long-context') ? (['times'] as const) : []),
    ...(serving ? (['serving'] as const) : []),
  ]);
  return (part) => {
    const weights = [...open].reduce((sum, own) => sum + WEIGHTS[own], 0);
    open.delete(part);
    return budget.part((budget.left * WEIGHTS[part]) / weights);
  };
}
