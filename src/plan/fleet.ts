/** How many GPUs serve so many users: replicas of one or several GPUs that share the model. Pure. */
import { UserError } from '../errors.js';
import type { Scenario } from '../schema/settings.js';
import { parseNumber } from '../units.js';
import { prepare, type Sources } from './answer.js';
import { likelySpeed, verdictOn } from './decide.js';
import { planName } from './names.js';
import { makePlan } from './plan.js';
import { representatives } from './representatives.js';
import { isUnfit } from './unfit.js';
import type { Fleet, FleetRow, Plan, PlanReport, PlanRequest } from './types.js';

/** GPUs that share a model within one server. */
const DEGREES = [1, 2, 4, 8] as const;

/** The users of a question; null where it names none. @throws UserError for no such number, and beside --batch */
export function readUsers({ users, batch }: Scenario): number | null {
  if (users === undefined) return null;
  if (batch !== undefined)
    throw new UserError(
      '--users and --batch ask two questions',
      'leave --batch out: --tpot decides how many share a replica',
    );
  return parseNumber(users, '--users', { min: 1, max: 1e7, whole: true });
}

/** A fleet, and the plans that it is chosen from. */
export interface PlannedFleet {
  readonly fleet: Fleet;
  /** By the GPUs that share the model. */
  readonly reports: readonly PlanReport[];
}

/** Plans for every number of GPUs that may share the model; --gpus leaves one. @throws UserError as `prepare` does */
export function planFleet(scenario: Scenario, users: number, sources: Sources): PlannedFleet {
  const degrees = scenario.gpus === undefined ? degreesFor(sources.model.geometry) : [scenario.gpus];
  const reports = degrees.map((gpus) => {
    const { request, refused } = prepare({ ...scenario, gpus }, sources);
    return makePlan(request, refused, { everyRow: false });
  });
  return { fleet: fleetOf(users, reports), reports };
}

/** Numbers of GPUs over which heads divide. */
export const degreesFor = ({ heads, kvHeads }: PlanRequest['geometry']): number[] =>
  DEGREES.filter((n) => heads % n === 0 && kvHeads % n === 0);

/**
 * Users that one replica serves at once: the largest batch that meets --tpot, else the largest that fits; beside the
 * prefill of one prompt, because users come and go.
 */
const usersOf = (p: Plan, timed: boolean): number =>
  Math.min(timed ? (p.knee?.batch ?? 0) : p.maxBatch.exact, p.prefill.batchBesidePrefill);

/**
 * The fewest GPUs for each codec, over replicas and tensor parallelism.
 * @param reports of one device, each for another number of GPUs that share the model
 */
export function fleetOf(users: number, reports: readonly PlanReport[]): Fleet {
  const all = reports.flatMap((report) => representatives(report.plans).flatMap((p) => rowOf(users, report, p)));
  const best = new Map<string, FleetRow>();
  for (const row of all) {
    const key = row.planId.replace(/\/[^/]*/, '');
    const known = best.get(key);
    if (!known || row.gpus < known.gpus || (row.gpus === known.gpus && row.tensorParallel < known.tensorParallel))
      best.set(key, row);
  }
  const rows = [...best.values()].sort((a, b) => a.gpus - b.gpus || b.tokensPerSecond - a.tokensPerSecond);
  // Where an answer recommends nothing at all, as beyond the published contexts, neither does a fleet.
  const known = reports.some(({ answer }) => answer.deploy !== null || answer.upside !== null);
  const kept = known ? rows.filter((row) => row.quality === 'kept') : [];
  const deploy = kept.find((row) => row.servedBy !== null) ?? null;
  const upside = kept.find((row) => row.servedBy === null && (!deploy || row.gpus < deploy.gpus)) ?? null;
  const fails = rows.find((row) => row.quality === 'lost' && row.gpus < ((upside ?? deploy)?.gpus ?? 0)) ?? null;
  const same = (degree: number): FleetRow | undefined =>
    all.find((row) => row.tensorParallel === degree && deploy !== null && row.name === deploy.name);
  const [one, eight] = [same(1), same(8)];
  return {
    users,
    rows,
    deploy,
    upside,
    cheapest: kept.length > 0 ? null : (rows[0] ?? null),
    fails,
    eightGpus: deploy && { oneReplica: eight?.usersPerReplica ?? 0, eightReplicas: 8 * (one?.usersPerReplica ?? 0) },
  };
}

function rowOf(users: number, { settings }: PlanReport, p: Plan): FleetRow[] {
  const timed = settings.targets.secondsPerToken !== null;
  const usersPerReplica = usersOf(p, timed);
  // Without a time target memory decides, and the time is that of all who fit.
  const point = timed ? (p.knee ?? p.decode) : p.decode;
  if (isUnfit(p)) return [];
  if (usersPerReplica < 1) return [];
  const replicas = Math.ceil(users / usersPerReplica);
  const gpus = replicas * settings.gpus;
  return [
    {
      planId: p.id,
      name: planName(p),
      label: p.codec.label,
      tensorParallel: settings.gpus,
      usersPerReplica,
      replicas,
      gpus,
      usdPerHour: settings.usdPerHour === null ? null : settings.usdPerHour * gpus,
      secondsPerStep: point.secondsPerStep,
      evidence: point.evidence,
      chance: p.chances.tpot,
      tokensPerSecond: likelySpeed(p),
      quality: verdictOn(p, settings.keep),
      worst: p.qualityKept?.scores[0] ?? null,
      servedBy: p.servedBy,
    },
  ];
}
