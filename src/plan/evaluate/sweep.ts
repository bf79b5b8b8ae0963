/** Decoding at every batch of the grid, for one plan. */
import { priceStep } from '../../cost/latency.js';
import { onGrid } from '../../cost/memory.js';
import { candidateOf } from '../ask/candidates.js';
import { configurationOf, figuresAt } from './evaluate.js';
import type { DecodeFigures, Plan, PlanRequest } from '../types.js';

/** Figures at 1, 2, 3, 4, 6, 8, 12, 16 … sequences, at the operating batch and at the largest. */
export function sweepOf(r: PlanRequest, p: Plan): DecodeFigures[] {
  const candidate = candidateOf(r, p.id);
  const { pricer } = r;
  if (!candidate || !pricer) return [];
  const configuration = configurationOf(r, candidate);
  const batches = new Set<number>([p.maxBatch.exact, ...(p.knee ? [p.knee.batch] : [])]);
  for (let batch = onGrid(p.maxBatch.exact); batch >= 1; batch = onGrid(batch - 1)) batches.add(batch);
  return [...batches]
    .filter((batch) => batch >= 1)
    .sort((a, b) => a - b)
    .map((batch) => figuresAt(r, priceStep(configuration, pricer, batch, r.contextTokens), batch));
}
