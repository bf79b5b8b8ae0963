/** Simulates the plans that a report's answer names, under the workload of its scenario. */
import { EXIT, UserError } from '../errors.js';
import { contenders } from '../plan/decide/decide.js';
import type { Scenario } from '../schema/settings.js';
import { settle, simulate } from '../serving/answer.js';
import { chooseByRate } from '../serving/choose.js';
import { simulateFleet } from '../serving/fleet.js';
import { compareWays } from '../serving/ways.js';
import type { WorkloadChoice } from '../serving/workload/read.js';
import type { Simulated } from './simulation.js';
import { decidedBy, ofReplica, type View } from './view.js';

/** Runs of a search for the highest rate and of its curve, roughly; each of two minutes of requests at least. */
const RUNS_OF_A_SEARCH = 40;
const SECONDS_OF_A_RUN = 120;
/** Rates are searched only where that takes no more requests: about a minute on one core. */
const MOST_REQUESTS = 400_000;

const HOW = 'lla-sim simulate --find-rate tells the highest';
const USERS = 'Users who wait are simulated for the number of GPUs: the first page has what was found.';

/**
 * Serves the scenario's requests, with the view whose answer names what serves most of them.
 * @param say is told what is being simulated
 * @throws UserError for a workload or server that cannot be
 */
export async function simulatePlans(
  scenario: Scenario,
  view: View,
  say: (doing: string) => void = () => {},
): Promise<{ readonly view: View; readonly simulated: Simulated }> {
  const { report, request, sources, fleet } = view;
  const none = (left: string): { view: View; simulated: Simulated } => ({
    view,
    simulated: { report: null, left, chosen: null },
  });
  if (!request.pricer) return none('Nothing is known about the speed of this device.');
  if (namedBy(report).length === 0) return none('There is no plan to simulate.');
  try {
    if (fleet) {
      const simulated = simulateFleet(scenario, fleet, sources);
      return { view: ofReplica(view, scenario, simulated), simulated: { ...none(USERS).simulated, fleet: simulated } };
    }
    const { setting } = settle(scenario, sources, { skipBad: false });
    const why = whyNotSearched(scenario, report, setting.workload);
    const chosen = why === null ? chooseByRate(setting, contenders(request, report.plans)) : null;
    const decided = decidedBy(view, chosen, setting.server);
    const only = namedBy(decided.report);
    const saying = (what: string) => (_: number, doing: string) => {
      say(`${what}: ${doing}`);
      return false;
    };
    const options = { skipBad: false, shard: null, progress: saying('requests'), only };
    const runs = await simulate(scenario, sources, { ...options, findRate: false });
    if (why !== null) return { view: decided, simulated: { report: runs, left: why, chosen } };
    const { candidates } = await simulate(scenario, sources, {
      ...options,
      progress: saying('rates'),
      findRate: true,
      curve: true,
    });
    const { ways, notes } = await compareWays(scenario, sources, { skipBad: false, progress: saying('ways') });
    return {
      view: decided,
      simulated: {
        report: { ...runs, candidates: candidates ?? [], ...(ways ? { ways } : {}), notes },
        left: null,
        chosen,
      },
    };
  } catch (error) {
    if (!(error instanceof UserError) || error.exitCode !== EXIT.noSolution) throw error;
    return none(`${error.message}; ${error.hint}.`);
  }
}

/** Plans that the answer recommends, or says why not. */
const namedBy = ({ answer }: View['report']): string[] => [
  ...new Set([answer.deploy, answer.upside ?? answer.unsure].flatMap((p) => (p ? [p.planId] : []))),
];

/** Why the highest rate is not searched; null where it is. The same on every machine. */
function whyNotSearched(
  { workload, server }: Scenario,
  report: View['report'],
  { requests, requestsPerSecond, atOnce, meanOutputTokens }: WorkloadChoice,
): string | null {
  if (requestsPerSecond === null)
    return `No rate is searched: ${atOnce ? 'requests that are all there at once' : 'users who wait'} have none.`;
  if (workload?.trace !== undefined) return `The rates of a trace are not searched here; ${HOW}.`;
  const replicas = Number(server?.replicas ?? 1);
  const expected = namedBy(report).map((id) => {
    const tokens = report.plans.find((p) => p.id === id)?.decode.tokensPerSecond?.estimate ?? 0;
    return RUNS_OF_A_SEARCH * Math.max(requests, (SECONDS_OF_A_RUN * replicas * tokens) / meanOutputTokens);
  });
  const all = expected.reduce((sum, n) => sum + n, 0);
  return all > MOST_REQUESTS ? `Rates are not searched here, it would take too many requests; ${HOW}.` : null;
}
