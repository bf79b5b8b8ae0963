/**
 * How many GPUs serve so many users of a workload: users who each ask, wait for the answer, think and ask again, on
 * replicas of their own.
 */
import type { Sources } from '../plan/ask/prepare.js';
import { linkRate } from '../cost/exchange.js';
import { candidateOf } from '../plan/ask/candidates.js';
import { served } from '../plan/decide/served.js';
import type { FleetRow, PlannedFleet } from '../plan/decide/fleet.js';
import type { Plan } from '../plan/types.js';
import { formatDecimalBytes } from '../numbers/units.js';
import { isUnfit } from '../plan/decide/representatives.js';
import type { Server, Workload } from '../schema/serving.js';
import type { Scenario } from '../schema/settings.js';
import { settle } from './answer.js';
import { Service, type Setting } from './candidate.js';
import { figuresOf } from './figures.js';
import { enoughFor } from './misses.js';
import type { Bound } from './price/price.js';
import { transferNotes, transferRate, transfersUnknown } from './price/transfer.js';
import { reportedTargets } from './question.js';
import type { Requested } from './workload/read.js';
import { trial } from './trial.js';
import type { FleetService, RunFigures, SimulatedFleet } from './types.js';

/** The bisection over users of a replica ends where the bracket is this narrow. */
const PRECISION = 0.02;

/** Lengths, conversations and thinking of a workload, from users instead of at a rate. */
function ofUsers({ arrivals: _a, rate: _r, burstiness: _b, trace, speedUp: _s, limit: _l, ...w }: Workload): Workload {
  const lengthsOf = w.lengthsOf ?? trace;
  return { ...w, arrivals: 'closed', users: 1, ...(lengthsOf === undefined ? {} : { lengthsOf }) };
}

/** Users form a closed loop: the workload's arrivals and rate are left out. */
const arrivalNotes = ({ workload: { arrivals = 'closed', rate } = {} }: Scenario): string[] =>
  arrivals === 'closed' && rate === undefined
    ? []
    : [
        'each user sends the next request after an answer: ' +
          `${rate === undefined ? `arrivals ${arrivals}` : 'the rate'} of the workload counts for nothing`,
      ];

/** Replicas that are simulated together: one, or with those that prefill as many as the question says. */
const together = (server: Server | undefined): string =>
  Number(server?.prefillReplicas ?? 0) > 0 ? String(server?.replicas ?? 1) : '1';

/**
 * Chooses by simulation, on every number of GPUs that may share the model: of the plans that run today the one that
 * serves the users with the fewest GPUs, and of the others one that needs fewer still.
 * @throws UserError for a workload or server that cannot be
 */
export function simulateFleet(scenario: Scenario, { fleet, reports }: PlannedFleet, sources: Sources): SimulatedFleet {
  const settings = reports.map((report) =>
    settle(
      {
        ...scenario,
        gpus: report.settings.gpus,
        workload: ofUsers(scenario.workload ?? {}),
        server: { ...scenario.server, replicas: together(scenario.server) },
      },
      sources,
      { skipBad: false },
    ),
  );
  const { workload, targets, server, tested } = settings[0]!.setting;
  /** @param sure plans that meet the targets by the estimate alone do not count */
  const fewest = (
    rows: readonly FleetRow[],
    known: FleetService | null,
    sure: boolean,
    served = settings,
  ): FleetService | null => {
    let best = known;
    for (const row of rows)
      for (const { setting, plan } of served)
        best = serviceOf(fleet.users, row, setting, plan.plans, best, sure) ?? best;
    return best;
  };
  const kept = fleet.cheapest === null ? fleet.rows.filter((row) => row.quality === 'kept') : [];
  const today = fleet.cheapest ? [fleet.cheapest] : kept.filter((row) => row.servedBy !== null);
  const unwritten = kept.filter((row) => row.servedBy === null);
  const deploy = fewest(today, null, false);
  const best = fewest(unwritten, deploy, deploy !== null);
  // What nobody measured here may decide: the other end of it is told beside.
  const fastest = transferRate(null, linkRate(settings[0]!.setting.link, 2), 'low');
  const faster = settings.map(({ setting, plan }) => ({
    plan,
    setting: { ...setting, server: { ...setting.server, transferBytesPerSecond: fastest } },
  }));
  const tuned = transfersUnknown(server) ? fewest(today, null, false, faster) : null;
  return {
    workload: workload.lengthsLabel,
    thinkSeconds: workload.thinkSeconds,
    targets: reportedTargets(targets, scenario),
    replicas: server.replicas,
    prefillReplicas: server.prefillReplicas,
    notes: [...arrivalNotes(scenario), ...transferNotes(server), ...tunedNotes(tuned, deploy, fastest)],
    tried: { today: today.map((row) => row.name), unwritten: unwritten.map((row) => row.name) },
    deploy,
    upside: best === deploy ? null : best,
    tested,
  };
}

/** Fewer GPUs where the cache goes as fast as the fastest published transfer: a reason to measure before buying. */
const tunedNotes = (tuned: FleetService | null, deploy: FleetService | null, bytesPerSecond: number): string[] =>
  tuned === null || (deploy !== null && tuned.gpus >= deploy.gpus)
    ? []
    : [
        `if the cache moved at ${formatDecimalBytes(bytesPerSecond)}/s, ${tuned.gpus} GPUs would be enough ` +
          `(${tuned.slowEnd ? 'at the slow end too' : 'by the estimate'}): measure your rate before you buy`,
      ];

/**
 * The fewest replicas that serve the users; null where not one user gets the targets, and where it is no better than
 * what is known: less sure, or as sure and no fewer GPUs.
 */
function serviceOf(
  users: number,
  row: FleetRow,
  setting: Setting,
  plans: readonly Plan[],
  known: FleetService | null,
  onlySure: boolean,
): FleetService | null {
  const plan = plans.find((p) => p.id === row.planId);
  const { request, server } = setting;
  const candidate = candidateOf(request, row.planId);
  if (!plan || !candidate || isUnfit(plan) || plan.maxBatch.exact < 1) return null;
  const service = new Service(setting, candidate, plan);
  if (service.options.blocks < 1) return null;
  // A group is a replica, or with those that prefill the question's replicas.
  const gpusOfGroup = request.gpus * (server.replicas + server.prefillReplicas);
  const requested = (n: number): Requested =>
    setting.workload.closed!(n, rampOf(setting), enoughFor(1 - setting.targets.share));
  const holds = (bound: Bound, n: number): boolean => trial(service, setting.targets, bound, requested(n)).meets;
  // Where slow prices keep sequences away from decoding, the estimate is the harder of both.
  const meets = (bound: Bound, n: number): boolean => holds(bound, n) && (bound !== 'high' || holds('estimate', n));
  if (known?.slowEnd) {
    const fewer = Math.ceil(known.gpus / gpusOfGroup) - 1;
    if (fewer < 1 || !meets('high', Math.ceil(users / fewer))) return null;
  }
  const most = (bound: Bound): number =>
    mostUsers(users, row.mostUsersPerReplica * server.replicas, (n) => meets(bound, n));
  const sure = most('high');
  if (sure === 0 && onlySure) return null;
  const bound = sure > 0 ? 'high' : 'estimate';
  const mostOfGroup = sure > 0 ? sure : most('estimate');
  if (mostOfGroup === 0) return null;
  let groups = Math.ceil(users / mostOfGroup);
  // Fewer users than one that meets the targets meet them too, but for chance.
  while (groups < users && !meets(bound, Math.ceil(users / groups))) groups++;
  const usersPerGroup = Math.ceil(users / groups);
  const figures = (of: Bound) => figuresOf(service.run(of, requested(usersPerGroup), () => false).metrics);
  const gpus = groups * gpusOfGroup;
  if (known && known.slowEnd === sure > 0 && known.gpus <= gpus) return null;
  const estimate = figures('estimate');
  return {
    planId: row.planId,
    name: row.name,
    servedBy: service.servedBy,
    tensorParallel: request.gpus,
    usersPerReplica: Math.ceil(usersPerGroup / server.replicas),
    mostUsersPerReplica: Math.max(
      Math.ceil(usersPerGroup / server.replicas),
      Math.floor(mostOfGroup / server.replicas),
    ),
    replicas: groups * server.replicas,
    prefillReplicas: groups * server.prefillReplicas,
    gpus,
    usdPerHour: request.usdPerHour === null ? null : request.usdPerHour * gpus,
    slowEnd: sure > 0,
    serve: served(request, plan, server).serve ?? null,
    outputTokensPerSecond: groups * throughputOf(usersPerGroup, estimate, setting),
    estimate,
    high: figures('high'),
  };
}

/** Tokens a second of users who are all there: the run's own begins before they are, and ends with the last of them. */
const throughputOf = (
  users: number,
  { mean_e2el_ms, completed, total_output_tokens, output_throughput }: RunFigures,
  { workload }: Setting,
): number =>
  mean_e2el_ms === null || completed === 0
    ? output_throughput
    : ((users / (workload.thinkSeconds + mean_e2el_ms / 1e3)) * total_output_tokens) / completed;

/** Users begin within the time that a request takes which just meets its target of TPOT: not all prompts at once. */
const rampOf = ({ workload, targets }: Setting): number =>
  workload.thinkSeconds + targets.ttftSeconds + workload.meanOutputTokens * targets.tpotSeconds;

/** The most users for whom `meets` holds; 0 for none. @param start is tried first */
function mostUsers(most: number, start: number, meets: (users: number) => boolean): number {
  let [good, bad] = [0, most + 1];
  let users = Math.max(1, Math.min(most, start));
  while (bad - good > Math.max(1, PRECISION * good)) {
    if (meets(users)) good = users;
    else bad = users;
    if (good === 0) users = Math.ceil(bad / 4);
    else if (bad > most) users = Math.min(most, 2 * good);
    else users = Math.floor((good + bad) / 2);
  }
  return good;
}
