/**
 * The figures of the paper's systems part as data: each with its place, what is printed, and the question that the
 * planner is asked. Nothing here is the model's.
 */
import { codecSizes, comparedRatios, otherRatios, ranks } from './figures/ratios.js';
import { absorbed, accuracies, capacity, eviction, latency, memory, prefill } from './figures/systems.js';
import type { PaperFigure } from './types.js';

export { printed } from './figures/figure.js';

/** Every figure, in the order of the sections. */
export const PAPER_FIGURES: readonly PaperFigure[] = [
  ...memory(),
  ...capacity(),
  ...latency(),
  ...absorbed(),
  ...accuracies(['Table decoupled_char', 'caption, Table decoupled_char'], 'Decoupled RoPE'),
  ...eviction(),
  ...prefill(),
  ...sorted([...ranks(), ...otherRatios(), ...comparedRatios(), ...codecSizes()]),
];

/** Figures of one section side by side, sections in order of first appearance. */
function sorted(figures: readonly PaperFigure[]): PaperFigure[] {
  const sections = [...new Set(figures.map((f) => f.section))];
  return sections.flatMap((s) => figures.filter((f) => f.section === s));
}
