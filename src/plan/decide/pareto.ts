/** Pareto front over capacity, speed and published quality. */
import { isUnfit } from './unfit.js';
import type { Plan } from '../types.js';

/** Larger is better in each. */
interface Objectives {
  readonly capacity: number;
  /** 0 for all where it is unknown. */
  readonly speed: number;
  /** 0 where it is unknown. */
  readonly quality: number;
}

const objectivesOf = (p: Plan): Objectives => ({
  capacity: p.maxBatch.exact,
  speed: (p.atTarget ?? p.decode).tokensPerSecond?.estimate ?? 0,
  quality: p.qualityKept?.share ?? 0,
});

const atLeast = (a: Objectives, b: Objectives): boolean =>
  a.capacity >= b.capacity && a.speed >= b.speed && a.quality >= b.quality;

/** Plans that hold nothing, those that nobody would take, and those that nobody asked for are on no front. */
const buyable = (p: Plan): boolean => p.maxBatch.exact >= 1 && !isUnfit(p) && !p.beside;

/** Plans that no other beats in one objective without losing in another; of equals the first. */
function frontOf(plans: readonly Plan[]): Plan[] {
  const values = plans.map(objectivesOf);
  const dominated = (own: Objectives, i: number): boolean =>
    values.some((other, j) => j !== i && atLeast(other, own) && (j < i || !atLeast(own, other)));
  return plans.filter((_, i) => !dominated(values[i] as Objectives, i));
}

/** Marks the plans of the front. */
export function markPareto(plans: readonly Plan[]): Plan[] {
  const front = new Set(frontOf(plans.filter(buyable)));
  return plans.map((p) => ({ ...p, pareto: front.has(p) }));
}
