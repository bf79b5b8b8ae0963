/** Pareto front over capacity, speed and published quality. */
import type { Plan } from './types.js';

/** Larger is better in each. Unknown quality counts as none, unknown speed as equal for all. */
const objectives = (p: Plan): number[] => [
  p.maxBatch.exact,
  (p.atTarget ?? p.decode).tokensPerSecond?.estimate ?? 0,
  p.qualityKept?.share ?? 0,
];

/** Plans that hold nothing, cannot take their prompts in, or ruin generation are on no front. */
const buyable = (p: Plan): boolean => p.maxBatch.exact >= 1 && !p.marks.some((m) => m.code === 'destroys-generation' || m.code === 'prefill-does-not-fit');

/** Marks the plans that no other plan beats in one objective without losing in another. */
export function markPareto(plans: readonly Plan[]): Plan[] {
  const values = plans.map(objectives);
  const dominated = (i: number): boolean =>
    values.some((other, j) => j !== i && buyable(plans[j] as Plan) && other.every((v, k) => v >= (values[i]?.[k] ?? 0)) && (other.some((v, k) => v > (values[i]?.[k] ?? 0)) || j < i));
  return plans.map((p, i) => ({ ...p, pareto: buyable(p) && !dominated(i) }));
}
