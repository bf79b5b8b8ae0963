/** From a scenario with a workload to what happens when its requests come. */
import { takesPositions, takesWhole } from '../codecs/registry.js';
import { verificationRefusal } from '../codecs/verification.js';
import { EXIT, UserError } from '../errors.js';
import { hostOf } from '../plan/ask/server.js';
import { prepare, type Sources } from '../plan/ask/prepare.js';
import { candidateOf } from '../plan/ask/candidates.js';
import { testedSimulation } from '../plan/ask/tested.js';
import { asksQuality, makePlan } from '../plan/plan.js';
import { isFullCache, representatives } from '../plan/decide/representatives.js';
import type { Plan, PlanReport, PlanRequest } from '../plan/types.js';
import type { Scenario } from '../schema/settings.js';
import { turn } from '../io/turn.js';
import { present } from '../present.js';
import { stackLabel } from '../stacks/serving.js';
import { Service, type Setting } from './candidate.js';
import { findRate } from './find-rate.js';
import { raisedNote } from './trial.js';
import { refusedSkipping, type Depth } from './depth.js';
import type { Ended } from './metrics.js';
import {
  allRefused,
  beyondNotes,
  readServer,
  readTargets,
  reportedTargets,
  wholePrompts,
  withUsers,
  type ServerChoice,
} from './question.js';
import { readWorkload, type WorkloadChoice } from './workload/read.js';
import type { Bound } from './price/price.js';
import { RELATIVE_ERROR } from './sketch.js';
import { fastestOf, frontEnd, frontEndOf } from './price/front-end.js';
import { transferNotes } from './price/transfer.js';
import type { FirstRun, Run, SimulationReport, SustainedRate } from './types.js';

export interface SimulationOptions {
  readonly findRate: boolean;
  readonly skipBad: boolean;
  /** With `findRate`: latency at more rates, for a picture. */
  readonly curve?: boolean;
  /** These candidates, in this order; unless given, those that are worth simulating. */
  readonly only?: readonly string[];
  /** Only every n-th candidate from the i-th on (1 ≤ i ≤ n). */
  readonly shard: { readonly index: number; readonly of: number } | null;
  /** Called with the share that is done and what is being done; true ends the work early. */
  readonly progress: (share: number, doing: string) => boolean;
  /** Ends of the cost model's interval that are run; all unless given. The others' figures are then the estimate's. */
  readonly bounds?: readonly Bound[];
  /** Called for every request of the first candidate's estimate. */
  readonly onEnd?: (ended: Ended) => void;
}

/** Without --find-rate, most candidates that are simulated. */
const FEW = 4;

/**
 * What a simulation rests on, and the still picture of the same plans.
 * @throws UserError for settings that cannot be
 */
export function settle(
  scenario: Scenario,
  sources: Sources,
  o: Pick<SimulationOptions, 'skipBad'>,
): { setting: Setting; plan: PlanReport } {
  const targets = readTargets(scenario);
  // Targets of time are met, or not, by the simulation.
  const { ttft: _ttft, tpot: _tpot, batch: _batch, ...still } = scenario;
  const { request: asked, refused } = prepare(still, sources);
  // Candidates are chosen by what their codec keeps, whether tokens leave early or not.
  const { meanLoops: _early, ...request } = asked;
  if (!request.pricer)
    throw new UserError('nothing is known about the speed of this device', 'name one of lla-sim models --devices');
  const plan = makePlan(request, refused);
  const { spec, stack } = sources;
  const host = hostOf(sources, still);
  const read = readServer(scenario.server ?? {}, scenario.workload ?? {}, request, spec, host);
  if (request.runtime && !request.runtime.source.terms.serves && (read.maxNumSeqs > 1 || read.replicas > 1))
    throw new UserError(
      `${stackLabel(request.runtime.source.name)} generates one batch from end to end: requests are simulated one ` +
        'at a time',
      'leave --max-num-seqs and --replicas out, or plan a batch with plan --batch',
    );
  const choice = request.runtime?.choice;
  if (read.speculation && choice?.asynchronous && choice.attention.packsQueries)
    throw new UserError(
      'with --draft-tokens signals are read later only where Triton computes attention',
      'add --attention triton, or --async-scheduling off',
    );
  // Contexts beyond the model's own limit are planned where they are asked for.
  // vllm-rlt computes no position for an answer's last token (engine/llm_engine.py, add_request).
  const more = request.runtime?.source.terms.serves ? 1 : 0;
  const positions = Math.max(request.geometry.maxPositions + more, request.contextTokens);
  const workload = readWorkload(scenario.workload ?? {}, read.maxModelLen, positions, o.skipBad);
  const server = wholePrompts(
    { ...read, maxModelLen: read.maxModelLen ?? workload.longest },
    host,
    scenario.server?.maxNumBatchedTokens !== undefined,
  );
  const { geometry, device } = request;
  const tested = testedSimulation(sources.judged ?? [], { stack, server: host, geometry, device });
  return { setting: { request, link: spec?.interconnect ?? null, workload, server, targets, tested }, plan };
}

/**
 * Simulates the candidates of a scenario.
 * @throws UserError for settings that cannot be, and where nothing is left to simulate (exit code 3)
 */
export async function simulate(asked: Scenario, sources: Sources, o: SimulationOptions): Promise<SimulationReport> {
  const scenario = o.findRate ? asked : withUsers(asked);
  const { setting, plan } = settle(scenario, sources, o);
  const { request, workload, server, targets, tested } = setting;
  const host = hostOf(sources, scenario);
  if (o.findRate && workload.requestsPerSecond === null)
    throw new UserError(
      `--find-rate asks for a rate, and ${workload.atOnce ? 'requests at once' : 'users who wait'} have none`,
      `leave ${workload.atOnce ? '--rate inf' : '--arrivals closed'} out`,
    );
  if (o.findRate && workload.mostOpen !== null)
    throw new UserError(
      '--find-rate asks for a rate, and a client of --max-concurrency sends no faster than it is answered',
      'leave --max-concurrency out',
    );
  const all = o.only
    ? o.only.flatMap((id) => plan.plans.filter((p) => p.id === id))
    : choose(plan, request, server, o.findRate);
  const chosen = all.filter((_, i) => o.shard === null || i % o.shard.of === o.shard.index - 1);
  if (all.length === 0) throw await nothingLeft(plan, scenario, sources);
  const runs: Run[] = [];
  const rates: SustainedRate[] = [];
  let partial = false;
  for (const [i, row] of chosen.entries()) {
    const candidate = candidateOf(request, row.id)!;
    const service = new Service(setting, candidate, row);
    const ended = (share: number): boolean => o.progress((i + share) / chosen.length, row.id);
    if (o.findRate) {
      const pause = async (share: number): Promise<boolean> => {
        await turn();
        return ended(share);
      };
      const wider = (maxNumBatchedTokens: number): Service =>
        new Service({ ...setting, server: { ...server, maxNumBatchedTokens } }, candidate, row);
      const found = await findRate(service, setting, pause, wider, o.curve);
      if (found) rates.push(found);
      partial = found === null || ended(1);
    } else if (service.options.blocks < 1) {
      if (chosen.length === 1)
        throw new UserError(
          `nothing is left for the cache of ${row.id}`,
          'lower --max-num-seqs, --max-num-batched-tokens or --max-model-len, or take a larger GPU',
          EXIT.noSolution,
        );
    } else {
      const done = await service.runAll(ended, i === 0 && o.onEnd ? o.onEnd : () => {}, o.bounds);
      runs.push(done.run);
      partial = done.partial;
    }
    if (partial) break;
  }
  if (runs.length > 0 && !partial && runs.every((run) => run.completed === 0 && run.rejected > 0))
    throw allRefused(runs, setting, scenario);
  return {
    schema: 'lla-sim/simulation',
    schemaVersion: 1,
    scenario: plan.scenario,
    model: { name: request.geometry.name },
    device: plan.device,
    gpus: request.gpus,
    usdPerHour: request.usdPerHour,
    workload: {
      label: workload.label,
      requests: workload.requests,
      requestsPerSecond: workload.requestsPerSecond,
      atOnce: workload.atOnce,
      maxConcurrency: workload.mostOpen,
      meanPromptTokens: workload.meanPromptTokens,
      meanOutputTokens: workload.meanOutputTokens,
      skippedLines: workload.skippedLines,
      seed: workload.seed,
    },
    server: { ...server, depth: withoutRecord(server.depth) },
    targets: reportedTargets(targets, scenario),
    tested,
    percentileError: RELATIVE_ERROR,
    ...(runs[0] ? firstRun(runs[0]) : {}),
    runs,
    ...(o.findRate ? { candidates: sorted(rates) } : {}),
    ...(o.shard ? { shard: { ...o.shard, all: all.map((p) => p.id) } } : {}),
    partial,
    notes: [
      // Shards are asked together (merge.ts).
      ...(o.findRate && !o.shard ? frontEndOf(rates, server) : []),
      ...(o.findRate && scenario.workload?.requests !== undefined ? raisedNote(targets, workload.requests) : []),
      ...leftOut(plan, o, all, server, scenario.codec !== undefined),
      ...takenWhole(chosen, server),
      ...transferNotes(server),
      ...watermarkNote(host?.stack, scenario.server?.watermark),
      ...(runs[0] ? fewAtOnce(runs[0], workload) : []),
      ...beyondNotes(scenario.server ?? {}, server, request.geometry, runs),
      ...(o.findRate
        ? []
        : frontEnd(host?.stack, fastestOf(workload, runs), server, workload.atOnce ? workload.requests : null)),
      ...request.notes,
    ],
  };
}

/** Share of its users that a run has in it on average, below which its throughput is not that of a long one. */
const ALL_THERE = 0.95;

/** Says of a run whose users were not all there for much of it. By Little's law. */
function fewAtOnce(run: Run, { users, thinkSeconds, requests }: WorkloadChoice): string[] {
  const { request_throughput: rate, mean_e2el_ms: latency } = run.estimate;
  if (users === null || latency === null || rate === 0) return [];
  const there = (rate * (latency / 1e3 + thinkSeconds)) / users;
  if (there >= ALL_THERE) return [];
  const least = (requests * (1 - there)) / (1 - ALL_THERE);
  const digit = 10 ** Math.floor(Math.log10(least));
  const enough = digit * Math.ceil(least / digit);
  return [
    `on average ${Math.floor(100 * there)} % of the ${users} users were there, as they begin one after the other and ` +
      `the last ones end alone: a longer run, as of --requests ${enough}, has more throughput and later first tokens`,
  ];
}

/** What is simulated for a server that has no such flag. */
const watermarkNote = (stack: string | undefined, asked: unknown): string[] =>
  asked === undefined || stack === undefined || stack === 'vllm'
    ? []
    : [`--watermark is a flag of vLLM: ${stackLabel(stack)} has none, and is simulated as if it had`];

/** Recorded depths of all tokens are the file's, and no part of an answer. */
function withoutRecord(depth: Depth | null): Omit<Depth, 'recorded'> | null {
  if (depth === null) return null;
  const { recorded: _recorded, ...told } = depth;
  return told;
}

/** Says of which plans prompts are neither divided nor shared, where the server would. */
function takenWhole(chosen: readonly Plan[], server: ServerChoice): string[] {
  const ids = chosen.filter((p) => takesWhole(p.codec)).map((p) => p.id);
  return ids.length > 0 && (server.chunkedPrefill || server.prefixCaching)
    ? [`${ids.join(', ')}: prompts in whole, without chunked prefill and prefix caching`]
    : [];
}

/** How a server lets tokens leave early, or proposes others. */
type Ways = Pick<ServerChoice, 'depth' | 'speculation'>;

/**
 * Whether a server takes a plan: not with prompts that go position by position, codecs that miss what a token that left
 * early did not compute, and caches whose proposals cannot be verified.
 */
const goes = ({ codec, eviction }: Plan, { depth, speculation }: Ways): boolean =>
  !takesPositions(codec) &&
  (depth === null || refusedSkipping(codec, depth.skippedKv) === null) &&
  (speculation === null || verificationRefusal(codec, eviction, speculation) === undefined);

/**
 * Says what else the question names, where not all of it is simulated.
 * @param namesCodecs whether it names codecs: else a search for rates takes those that keep quality, unsaid
 */
function leftOut(
  plan: PlanReport,
  o: SimulationOptions,
  chosen: readonly Plan[],
  server: Ways,
  namesCodecs: boolean,
): string[] {
  const known = new Set(chosen.map((p) => p.id));
  const others = plan.plans.filter((p) => !known.has(p.id));
  if (o.only || others.length === 0) return [];
  if (o.findRate) {
    const searched = new Set(chosen.map((p) => p.codec.label));
    const lost = namesCodecs ? others.filter((p) => !searched.has(p.codec.label)) : [];
    const fitting = lost.filter((p) => p.maxBatch.exact >= 1 && goes(p, server));
    return fitting.length === 0
      ? []
      : [`not searched, as quality is not kept: ${lostWords(fitting)}; ${SEARCH_ANYWAY}`];
  }
  const names = (plans: readonly Plan[]): string =>
    [...plans.slice(0, 2).map((p) => p.id), ...(plans.length > 2 ? ['…'] : [])].join(', ');
  const refused = others.filter((p) => !goes(p, server));
  const open = others.filter((p) => goes(p, server));
  const all = plan.plans.length;
  return present([
    open.length > 0 &&
      `${chosen.length} of ${all} plans are simulated, not ${names(open)}: choose with --codec, --ratio and --path`,
    refused.length > 0 &&
      `${refused.length} of ${all} plans cannot run on this server: ${names(refused)}; simulated alone, each says why`,
  ]);
}

const firstRun = ({ low, estimate, high, completed, preemptions, limitedBy }: Run): FirstRun => {
  return { low, estimate, high, completed, preemptions, limitedBy };
};

/** What runs today first, then by the rate that is sure. */
export const sorted = <R extends SustainedRate>(rates: readonly R[], nameOf = ({ id }: R): string => id): R[] =>
  [...rates].sort(
    (a, b) =>
      Number(b.servedBy !== null) - Number(a.servedBy !== null) ||
      b.requestsPerSecond.low - a.requestsPerSecond.low ||
      b.requestsPerSecond.estimate - a.requestsPerSecond.estimate ||
      (nameOf(a) < nameOf(b) ? -1 : 1),
  );

/**
 * Plans that are worth simulating. For rates: all whose quality is kept, or that meet the quality targets. Else all of
 * a few, a path each of a few codecs, or the recommended one and the full cache.
 * @param server whose tokens may leave early, or be proposed
 */
export function choose(plan: PlanReport, r: PlanRequest, server: Ways, all: boolean): Plan[] {
  // What the server refuses is left out, unless nothing else was asked for.
  const together = plan.plans.filter((p) => goes(p, server));
  const plans = together.length > 0 ? together : plan.plans;
  const fitting = fittingOf(plans);
  // Of a model without published or measured figures nothing is known, and nothing is left out.
  const keeps = (p: Plan): boolean =>
    asksQuality(r) ||
    (r.publishedAs === null && !r.fidelity) ||
    isFullCache(p) ||
    (p.qualityKept?.share ?? 0) >= r.keep;
  if (all) return fitting.filter(keeps);
  const few = [plans, representatives(plans)].find((some) => some.length <= FEW);
  if (few) return few.filter((p) => p.maxBatch.exact >= 1);
  const { upside, deploy } = plan.answer;
  const recommended = (upside ?? deploy)?.planId;
  const full = fitting.find(isFullCache);
  const named = fitting.filter((p) => p.id === recommended || p === full);
  return named.length > 0 ? named : fitting.slice(0, 1);
}

/** Why nothing is simulated: a target removed all, none fits, or none of those that fit keeps quality. */
async function nothingLeft(plan: PlanReport, scenario: Scenario, sources: Sources): Promise<UserError> {
  const none = (why: string, cure: string): UserError => new UserError(why, cure, EXIT.noSolution);
  const [removed] = plan.removed;
  const fitting = fittingOf(plan.plans);
  if (removed)
    return none(
      `no candidate is left to simulate: ${removed.target} removed ${removed.id}: ${removed.reason}`,
      'relax the target, or take another codec or GPU',
    );
  if (fitting.length > 0) return none(`no candidate keeps quality: ${lostWords(fitting)}`, SEARCH_ANYWAY);
  const { remedyWords } = await import('../plan/decide/remedies.js');
  return none('no candidate fits', remedyWords(scenario, sources));
}

const SEARCH_ANYWAY = '--keep 0 searches it anyway';

/** `lla-21.33x keeps 0 %, cla-2x: unknown`: the score that each codec keeps. */
const lostWords = (plans: readonly Plan[]): string =>
  [
    ...new Set(
      representatives(plans).map(({ codec, eviction, qualityKept: kept }) => {
        const name = eviction === null ? codec.label : `${codec.label} with eviction`;
        return kept === null ? `${name}: unknown` : `${name} keeps ${Math.round(100 * kept.share)} %`;
      }),
    ),
  ].join(', ');

const fittingOf = (plans: readonly Plan[]): Plan[] =>
  plans.filter(
    (p) =>
      p.maxBatch.exact >= 1 && !p.marks.some((m) => m.code === 'destroys-generation' || m.code === 'no-memory-saved'),
  );
