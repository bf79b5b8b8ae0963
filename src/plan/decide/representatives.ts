/** One row a codec: what a short table shows and what the answer chooses among. */
import type { Plan } from '../types.js';

/** Most rows of a table that was not asked for all; a report with no more shows every row. */
export const MOST_ROWS = 16;

/**
 * Of each codec setting and eviction, the fastest path that reads the cache faithfully (as the published figures assume)
 * and saves its memory. Speed is that of the largest batch, or of the largest that meets --tpot, at the slow end of its
 * interval.
 */
export function representatives(plans: readonly Plan[]): Plan[] {
  const best = new Map<string, Plan>();
  for (const p of plans) {
    const key = `${p.id.split('/')[0]} ${JSON.stringify(p.eviction)}`;
    const known = best.get(key);
    if (!known || rank(p) > rank(known)) best.set(key, p);
  }
  const chosen = new Set(best.values());
  return plans.filter((p) => chosen.has(p));
}

/** Orders paths of one codec: faithful and memory-saving ones first, then those that --fidelity measured, by speed, by capacity. */
function rank(p: Plan): number {
  const known = p.measured ? 1e10 : 0;
  const faithful = p.marks.some((m) => m.code === 'unfaithful-post-hoc' || m.code === 'no-memory-saved') ? 0 : 1e12;
  return faithful + known + ((p.atTarget ?? p.decode).tokensPerSecond?.low ?? 0) + p.maxBatch.exact * 1e-6;
}
