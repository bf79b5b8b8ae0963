/** Simulates the plans that a report's answer names, under the workload of its scenario. */
import { EXIT, UserError } from '../errors.js';
import type { Scenario } from '../schema/settings.js';
import { simulate } from '../serving/answer.js';
import type { Simulated } from './simulation.js';
import type { View } from './view.js';

/** Runs of a search for the highest rate and of its curve, roughly; each of two minutes of requests at least. */
const RUNS_OF_A_SEARCH = 40;
const SECONDS_OF_A_RUN = 120;
/** Rates are searched only where that takes no more requests: some 20 s on one core. */
const MOST_REQUESTS = 400_000;

const HOW = 'lla-sim simulate --find-rate tells the highest';

/** @throws UserError for a workload or server that cannot be */
export async function simulatePlans(scenario: Scenario, { report, request, sources, fleet }: View): Promise<Simulated> {
  if (fleet) return { report: null, left: 'Users who wait are simulated by lla-sim plan --users, not here.' };
  if (!request.pricer) return { report: null, left: 'Nothing is known about the speed of this device.' };
  const named = [report.answer.deploy, report.answer.upside].flatMap((p) => (p ? [p.planId] : []));
  const only = [...new Set(named)];
  if (only.length === 0) return { report: null, left: 'There is no plan to simulate.' };
  const options = { percentile: null, skipBad: false, shard: null, progress: () => false, only };
  try {
    const runs = await simulate(scenario, sources, { ...options, findRate: false });
    const why = whyNotSearched(scenario, report, only, runs.workload);
    if (why !== null) return { report: runs, left: why };
    const { candidates } = await simulate(scenario, sources, { ...options, findRate: true, curve: true });
    return { report: { ...runs, candidates: candidates ?? [] }, left: null };
  } catch (error) {
    if (!(error instanceof UserError) || error.exitCode !== EXIT.noSolution) throw error;
    return { report: null, left: `${error.message}; ${error.hint}.` };
  }
}

/** Why the highest rate is not searched; null where it is. The same on every machine. */
function whyNotSearched(
  { workload, server }: Scenario,
  { plans }: View['report'],
  only: readonly string[],
  {
    requests,
    requestsPerSecond,
    meanOutputTokens,
  }: { requests: number; requestsPerSecond: number | null; meanOutputTokens: number },
): string | null {
  if (requestsPerSecond === null) return 'No rate is searched: users who wait have none.';
  if (workload?.trace !== undefined) return `The rates of a trace are not searched here; ${HOW}.`;
  const replicas = Number(server?.replicas ?? 1);
  const expected = only.map((id) => {
    const tokens = plans.find((p) => p.id === id)?.decode.tokensPerSecond?.estimate ?? 0;
    return RUNS_OF_A_SEARCH * Math.max(requests, (SECONDS_OF_A_RUN * replicas * tokens) / meanOutputTokens);
  });
  const all = expected.reduce((sum, n) => sum + n, 0);
  return all > MOST_REQUESTS ? `Rates are not searched here, it would take too many requests; ${HOW}.` : null;
}
