/** Questions put to the planner directly, without a command line. */
import { ask } from '../../src/plan/ask/on-disk.js';
import type { Plan, PlanReport } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';

/** The memory of this project's own decoder, without what a server keeps for itself. */
const OWN_MEMORY: Scenario = { reserve: '512MiB', utilization: 1, pageTokens: 32 };

/** Plans a scenario on an H200 unless it says otherwise. */
export const planOf = (s: Scenario): Promise<PlanReport> =>
  ask(s.vram === undefined && s.device === undefined ? { device: 'h200', ...s } : s);

/** The same with the memory of this project's own decoder, on 141 GB of an H200. */
export const planOwn = (s: Scenario): Promise<PlanReport> =>
  ask({ ...OWN_MEMORY, ...(s.vram === undefined && s.device === undefined ? { vram: '141GB' } : {}), ...s });

/** The plan with this id. */
export function row(report: PlanReport, id: string): Plan {
  const found = report.plans.find((p) => p.id === id);
  if (!found) throw new Error(`no plan ${id} among ${report.plans.map((p) => p.id).join(', ')}`);
  return found;
}
