/** How many GPUs serve so many users: replicas of one or several GPUs that share the model. Pure. */
import { least, rollup } from 'd3-array';
import { priceStep } from '../../cost/latency.js';
import { UserError } from '../../errors.js';
import { gpuCounts } from '../../geometry/geometry.js';
import type { Scenario } from '../../schema/settings.js';
import { parseNumber } from '../../numbers/units.js';
import { prepare, type Sources } from '../ask/prepare.js';
import { candidateOf } from '../ask/candidates.js';
import { chanceWithin } from '../evaluate/chance.js';
import { knownTo, likelySpeed, verdictOn } from './decide.js';
import { answersBesidePrompts, type AnswersBesidePrompts } from './risks.js';
import { served } from './served.js';
import { configurationOfPlan } from '../evaluate/evaluate.js';
import { lastWithin } from '../evaluate/operating.js';
import { promptPricer } from '../evaluate/prompt-time.js';
import { planName } from '../words/words.js';
import { makePlan } from '../plan.js';
import { isUnfit, representatives } from './representatives.js';
import type { Choice } from '../answer-types.js';
import type { Plan, PlanReport, PlanRequest, QualityKept, Score } from '../types.js';
import type { Evidence, Interval } from '../../cost/evidence.js';

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

/** The report of the replica that a fleet's answer names. */
export function reportOfReplica({ fleet: { deploy, upside, cheapest }, reports }: PlannedFleet): PlanReport {
  const gpus = (deploy ?? upside ?? cheapest)?.tensorParallel;
  return reports.find(({ settings }) => settings.gpus === gpus) ?? reports[0]!;
}

/** Plans for every number of GPUs that may share the model; --gpus leaves one. @throws UserError as `prepare` does */
export function planFleet(scenario: Scenario, users: number, sources: Sources): PlannedFleet {
  const degrees =
    scenario.gpus !== undefined ? [scenario.gpus] : sources.gpu?.runtime ? [1] : degreesFor(sources.model.geometry);
  const planned = degrees.map((gpus): Planned => {
    const { request, refused } = prepare({ ...scenario, gpus }, sources);
    return { request, report: makePlan(request, refused, { everyRow: false }) };
  });
  const asked = scenario.gpus === undefined ? null : (planned[0]?.request.gpus ?? null);
  const fleet = fleetOf(users, planned, asked);
  return {
    fleet: asked === null ? fleet : { ...fleet, fewest: fewestOf(scenario, fleet, sources) },
    reports: planned.map(({ report }) => report),
  };
}

/** The fewest GPUs with the plan of `deploy`, however many share the model; null where the asked ones serve all. */
function fewestOf(scenario: Scenario, { users, deploy }: Fleet, sources: Sources): Fleet['fewest'] {
  if (!deploy || deploy.mostUsersPerReplica >= users) return null;
  const others = (sources.gpu?.runtime ? [] : degreesFor(sources.model.geometry)).filter(
    (gpus) => gpus !== deploy.tensorParallel,
  );
  const rows = others.flatMap((gpus) => {
    const { request } = prepare({ ...scenario, gpus }, sources);
    const candidate = candidateOf(request, deploy.planId);
    if (!candidate) return [];
    const times = timesOf(request);
    return makePlan({ ...request, candidates: [candidate] }).plans.flatMap((p) => rowOf(users, request, p, times));
  });
  const { gpus, tensorParallel } = [deploy, ...rows].reduce((a, b) => (b.gpus < a.gpus ? b : a));
  return { gpus, tensorParallel };
}

/** Plans of one number of GPUs that share the model. */
export interface Planned {
  readonly request: PlanRequest;
  readonly report: PlanReport;
}

/** Numbers of GPUs over which heads divide. */
export const degreesFor = (g: PlanRequest['geometry']): number[] => DEGREES.filter((n) => gpuCounts(g).includes(n));

/**
 * Users that one replica serves at once, and what keeps another out: the largest batch that meets --tpot, else the
 * largest that fits; beside the prefill of one prompt, because users come and go.
 */
function usersOf(p: Plan, r: PlanRequest): { most: number; limitedBy: FleetRow['limitedBy'] } {
  const room = Math.min(p.maxBatch.exact, p.prefill.batchBesidePrefill);
  const allowed = Math.min(room, r.mostSequences ?? room);
  const most = r.targets.secondsPerToken === null ? allowed : Math.min(allowed, p.knee?.batch ?? 0);
  return {
    most,
    limitedBy: most < allowed ? 'tpot' : allowed < room ? 'max-num-seqs' : 'memory',
  };
}

/**
 * The fewest GPUs for each codec, over replicas and tensor parallelism.
 * @param planned of one device, each for another number of GPUs that share the model
 */
export function fleetOf(users: number, planned: readonly Planned[], asked: number | null = null): Fleet {
  const all = planned.flatMap(({ request, report }) => {
    const times = timesOf(request);
    return representatives(report.plans.filter((p) => !p.beside)).flatMap((p) => rowOf(users, request, p, times));
  });
  const requestOf = ({ tensorParallel }: FleetRow): PlanRequest =>
    planned.find(({ request }) => request.gpus === tensorParallel)!.request;
  // A kernel may take longer for few sequences than for many: the batch that meets the target says nothing of them.
  const late = (row: FleetRow): number => (isLate(requestOf(row), row) ? 1 : 0);
  const fewestFirst = (a: FleetRow, b: FleetRow): number => late(a) - late(b) || a.gpus - b.gpus;
  // Of as many GPUs those whose slow end leaves time for prompts.
  const unsure = ({ besidePrompts: answers }: FleetRow): number => (answers?.end === 'estimate' ? 1 : 0);
  const ofCodec = (a: FleetRow, b: FleetRow): number =>
    fewestFirst(a, b) || unsure(a) - unsure(b) || a.tensorParallel - b.tensorParallel;
  const best = rollup(
    all,
    (of) => least(of, ofCodec)!,
    ({ planId }) => planId.replace(/\/[^/]*/, ''),
  );
  const rows = [...best.values()].sort((a, b) => fewestFirst(a, b) || b.tokensPerSecond - a.tokensPerSecond);
  // Where an answer recommends nothing at all, as beyond the published contexts, neither does a fleet.
  const known = planned.some(({ report: { answer } }) => answer.deploy !== null || answer.upside !== null);
  const kept = known ? rows.filter((row) => row.quality === 'kept') : [];
  const deploy = kept.find((row) => row.servedBy !== null) ?? null;
  const upside =
    kept.find((row) => row.servedBy === null && (!deploy || (row.gpus < deploy.gpus && late(row) <= late(deploy)))) ??
    null;
  const fails = rows.find((row) => row.quality === 'lost' && row.gpus < ((upside ?? deploy)?.gpus ?? 0)) ?? null;
  const same = (degree: number): FleetRow | undefined =>
    all.find((row) => row.tensorParallel === degree && deploy !== null && row.name === deploy.name);
  const [one, eight] = [same(1), same(8)];
  const plan = deploy && planned.flatMap(({ report }) => report.plans).find((p) => p.id === deploy.planId);
  return {
    users,
    asked,
    rows,
    deploy,
    upside,
    cheapest: kept.length > 0 ? null : (rows.find((row) => row.servedBy !== null) ?? rows[0] ?? null),
    fails,
    serve: (deploy && plan && commandOf(deploy, requestOf(deploy), plan)) ?? null,
    fewest: null,
    eightGpus:
      deploy && planned.some(({ request }) => request.gpus === 1) && planned.some(({ request }) => request.gpus === 8)
        ? { oneReplica: eight?.mostUsersPerReplica ?? 0, eightReplicas: 8 * (one?.mostUsersPerReplica ?? 0) }
        : null,
  };
}

/** The server is set to as many users as a replica serves: routers do not divide them evenly. */
const commandOf = (row: FleetRow, r: PlanRequest, plan: Plan): string | undefined =>
  served({ ...r, mostSequences: row.mostUsersPerReplica }, plan).serve;

type Times = Pick<FleetRow, 'secondsPerStep' | 'evidence' | 'chance' | 'besidePrompts'>;
const UNKNOWN: Times = { secondsPerStep: null, evidence: null, chance: null, besidePrompts: null };

/** True where users miss --tpot, or no answer that fits --ctx keeps it beside prompts. */
const isLate = ({ contextTokens, targets, confidence }: PlanRequest, { chance, besidePrompts }: Times): boolean =>
  (targets.secondsPerToken !== null && chance !== null && chance < confidence) ||
  (besidePrompts !== null && besidePrompts.tokens > contextTokens);

/** The step of a replica with so many users, and what prompts between its steps leave. */
function timesOf(r: PlanRequest): (p: Plan, usersOfReplica: number) => Times {
  const prompts = promptPricer(r);
  const { pricer, targets, contextTokens } = r;
  const target = targets.secondsPerToken;
  return (p, usersOfReplica) => {
    const c = configurationOfPlan(r, p.id);
    if (!pricer || !c) return UNKNOWN;
    const { estimate, low, high, evidence } = priceStep(c, pricer, usersOfReplica, contextTokens);
    const seconds = { estimate, low, high };
    const prompt = target === null ? null : prompts(c, p).secondsPerPrompt;
    return {
      secondsPerStep: seconds,
      evidence,
      chance: target === null ? null : chanceWithin({ seconds, evidence }, target),
      besidePrompts: answersBesidePrompts(r, usersOfReplica, seconds, prompt),
    };
  };
}

function rowOf(users: number, r: PlanRequest, p: Plan, times: ReturnType<typeof timesOf>): FleetRow[] {
  const { most, limitedBy } = usersOf(p, r);
  if (isUnfit(p) || most < 1) return [];
  // As many as are in time beside prompts; where no number is, they stand last.
  const late = (n: number): number => (isLate(r, times(p, n)) ? 1 : -1);
  const inTime = r.targets.secondsPerToken === null ? most : lastWithin(late, most);
  const mostUsersPerReplica = inTime < 1 ? most : inTime;
  const replicas = Math.ceil(users / mostUsersPerReplica);
  const gpus = replicas * r.gpus;
  const usersPerReplica = Math.ceil(users / replicas);
  return [
    {
      planId: p.id,
      name: planName(p),
      label: p.codec.label,
      tensorParallel: r.gpus,
      usersPerReplica,
      mostUsersPerReplica,
      limitedBy: mostUsersPerReplica < most ? 'tpot' : limitedBy,
      replicas,
      gpus,
      usdPerHour: r.usdPerHour === null ? null : r.usdPerHour * gpus,
      ...times(p, usersPerReplica),
      tokensPerSecond: likelySpeed(p),
      quality: r.contextTokens > knownTo(r) ? 'unknown' : verdictOn(p, r.keep),
      worst: p.qualityKept?.scores[0] ?? null,
      kept: p.qualityKept,
      servedBy: p.servedBy,
    },
  ];
}

/** One codec for a number of users: how many GPUs, and how they are divided. */
export interface FleetRow {
  readonly planId: string;
  readonly name: string;
  readonly label: string;
  /** GPUs that share the model: one replica. */
  readonly tensorParallel: number;
  /** Where the users are divided evenly: of the fullest replica. */
  readonly usersPerReplica: number;
  /**
   * Largest batch that meets --tpot and leaves time for prompts, without that target the largest that fits; beside the
   * prefill of a prompt.
   */
  readonly mostUsersPerReplica: number;
  /** What keeps one more user out of a replica: memory, --tpot, or the server's --max-num-seqs. */
  readonly limitedBy: 'memory' | 'tpot' | 'max-num-seqs';
  readonly replicas: number;
  readonly gpus: number;
  /** Of all GPUs; null without a price. */
  readonly usdPerHour: number | null;
  /** With `usersPerReplica`. Null where no speed is known. */
  readonly secondsPerStep: Interval | null;
  readonly evidence: Evidence | null;
  /** Probability that --tpot is met. */
  readonly chance: number | null;
  /** Answers with which --tpot is kept beside prompts of --ctx tokens; null without that target, or without times. */
  readonly besidePrompts: AnswersBesidePrompts | null;
  /** Of one replica at its operating point. */
  readonly tokensPerSecond: number;
  readonly quality: Choice['quality'];
  readonly worst: Score | null;
  /** Of all checkpoints. */
  readonly kept: QualityKept | null;
  readonly servedBy: string | null;
}

/** The GPUs that a number of users needs. */
export interface Fleet {
  readonly users: number;
  /** GPUs that share the model, where the question names them. */
  readonly asked: number | null;
  /** Of each codec the fewest GPUs, fewest first; last those that --tpot leaves no time for prompts. */
  readonly rows: readonly FleetRow[];
  /** Fewest GPUs with what runs today and keeps quality. */
  readonly deploy: FleetRow | null;
  /** Fewer with kernels that would have to be written. */
  readonly upside: FleetRow | null;
  /** Where nothing keeps quality: the fewest GPUs that hold the users, with what runs today if anything does. */
  readonly cheapest: FleetRow | null;
  /** Fewer still with a codec whose scores fail. */
  readonly fails: FleetRow | null;
  /** The command of a replica of `deploy`; null where no stack is known to run it. */
  readonly serve: string | null;
  /** Where the GPUs that the question names do not suffice: the fewest with the plan of `deploy`, however grouped. */
  readonly fewest: Pick<FleetRow, 'gpus' | 'tensorParallel'> | null;
  /** Users of eight GPUs with the plan of `deploy`: as one replica, and as eight; null where not both were planned. */
  readonly eightGpus: { readonly oneReplica: number; readonly eightReplicas: number } | null;
}
