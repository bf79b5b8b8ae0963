/** Which plans serve most requests of a workload: what an answer names where its scenario has one. */
import { candidateOf } from '../plan/ask/candidates.js';
import type { Contenders, ServingMost } from '../plan/decide/decide.js';
import type { Plan } from '../plan/types.js';
import { Service, type Setting } from './candidate.js';
import { beyond, sustained } from './find-rate.js';

interface Known {
  readonly id: string;
  /** Requests a second within the targets, at the slow end of the prices. */
  readonly rate: number;
}

/**
 * Of the plans that run today the one that serves most; of the others one that serves more than that. Null where no
 * plan, or none of those that run today, serves anything within the targets.
 */
export function chooseByRate(setting: Setting, { today, unwritten }: Contenders): ServingMost | null {
  const most = (plans: readonly Plan[], bar: Known | null): Known | null =>
    plans.reduce((known, plan) => better(setting, plan, known) ?? known, bar);
  const deploy = most(today, null);
  if (deploy === null && today.length > 0) return null;
  const best = most(unwritten, deploy);
  return best && { deploy: deploy?.id ?? null, upside: best === deploy ? null : best.id };
}

/** The plan with its rate, where it serves more than what is known; most plans are told by one run. */
function better(setting: Setting, plan: Plan, known: Known | null): Known | null {
  const { request, workload } = setting;
  const candidate = candidateOf(request, plan.id);
  if (!candidate) return null;
  const service = new Service(setting, candidate, plan);
  if (service.options.blocks < 1) return null;
  const start = known ? beyond(known.rate) : (workload.requestsPerSecond ?? 1);
  const rate = sustained(service, setting, 'high', start, known !== null);
  return rate > (known?.rate ?? 0) ? { id: plan.id, rate } : null;
}
