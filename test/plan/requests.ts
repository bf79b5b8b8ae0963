/** Questions put to the planner directly, without a command line. */
import { ask } from '../../src/plan/ask.js';
import type { Plan, PlanReport } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';

/** Plans a scenario on an H200 unless it says otherwise. */
export const planOf = (s: Scenario): Promise<PlanReport> =>
  ask(s.vram === undefined && s.device === undefined ? { device: 'h200', ...s } : s);

/** The plan with this id. */
export function row(report: PlanReport, id: string): Plan {
  const found = report.plans.find((p) => p.id === id);
  if (!found) throw new Error(`no plan ${id} among ${report.plans.map((p) => p.id).join(', ')}`);
  return found;
}
