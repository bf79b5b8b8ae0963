/** Marks for which nobody would take a plan, however fast it is. */
import type { Mark, Plan } from '../types.js';

type Marked = Pick<Plan, 'marks'>;

const USELESS: ReadonlySet<Mark['code']> = new Set(['unfaithful-post-hoc', 'no-memory-saved', 'prefill-does-not-fit']);

/** It computes something else than what was published, saves no memory, or cannot take prompts in. */
export const isUseless = (p: Marked): boolean => p.marks.some((m) => USELESS.has(m.code));

/** Its published score says that the model no longer reasons. */
export const isRuined = (p: Marked): boolean => p.marks.some((m) => m.code === 'destroys-generation');

export const isUnfit = (p: Marked): boolean => isUseless(p) || isRuined(p);
