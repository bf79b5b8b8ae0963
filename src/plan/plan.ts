/** The main question: what fits, how fast, how good, and what to take. */
import type { Answer } from './answer-types.js';
import { parameterCount } from '../geometry/geometry.js';
import { weightBytes } from '../cost/memory.js';
import type { Configuration } from '../schedule/schedule.js';
import { contradictionsFor } from '../quality/contradictions.js';
import { isBuilt, withAsPublished, withBreakEven } from './evaluate/as-published.js';
import { choicesOf, decide, FULL_MISSES, fullDoesNotFit, NOTHING_ELSE, type ServingMost } from './decide/decide.js';
import { configurationOf, evaluate, unlikeWanted } from './evaluate/evaluate.js';
import { nearestPlans, relaxations } from './decide/nearest.js';
import { operate } from './evaluate/operating.js';
import { isUseless, MOST_ROWS, markPareto, representatives, settingOf, withoutRoom } from './decide/representatives.js';
import { withPrompts } from './decide/risks.js';
import { promptPricer } from './evaluate/prompt-time.js';
import { withSlowKernels } from './evaluate/slow-kernels.js';
import { applyTargets } from './evaluate/targets.js';
import { warningsOf } from './words/warnings.js';
import type { Fidelity } from './evaluate/fidelity.js';
import type { Candidate, Plan, PlanReport, PlanRequest, Removed } from './types.js';

/** Which rows have an operating point and a priced prompt. */
export interface Rows {
  /** False: those of a short table only, which saves the prices of the others. */
  readonly everyRow?: boolean;
}

/**
 * Plans every candidate of a request.
 *
 * Plans that miss a target are left out of `plans` and listed in `removed` with the reason; without targets every
 * candidate stays, also one of which not a single sequence fits.
 */
export function makePlan(
  r: PlanRequest,
  refused: PlanReport['refused'] = [],
  { everyRow = true }: Rows = {},
): PlanReport {
  const prompts = promptPricer(r);
  const configurations = new Map<string, Configuration>();
  const configured = (p: Plan): Configuration => configurations.get(p.id) as Configuration;
  const run = (p: Plan): Plan => (p.knee ? p : operate(r, configured(p), p));
  const early = r.targets.secondsToFirstToken !== null;
  const unseen = everyRow || hasTargets(r) ? () => false : neverShown(r);
  const evaluated = r.candidates.map((c) => {
    const plan = evaluate(r, c, { step: !unseen(c), ...(early ? { prompts } : {}) });
    configurations.set(plan.id, configurationOf(r, c));
    return plan;
  });
  // A target of time decides by the operating point, so every row has one; else those that are shown.
  const timed = r.targets.secondsPerToken === null ? evaluated : evaluated.map(run);
  const { kept, removed } = hasTargets(r) ? applyTargets(r, timed) : { kept: timed, removed: [] as Removed[] };
  const shown = new Set(everyRow || kept.length <= MOST_ROWS ? kept : representatives(kept));
  // A row has what kernels that exist would make of its codec, by the path that is the fastest where each is run.
  const codecs = new Set([...shown].filter(isBuilt).map(settingOf));
  const isRun = (p: Plan): boolean => shown.has(p) || (isBuilt(p) && codecs.has(settingOf(p)));
  const compared = (plans: readonly Plan[]): Plan[] => withAsPublished(withBreakEven(plans));
  let ranked = markPareto(compared(kept.map((p) => (isRun(p) ? run(p) : p))));
  let answer = decide(r, ranked);
  for (;;) {
    // A path that the short table does not show: where it is run another one may be faster.
    const unsure = ranked.find((p) => p.id === answer.unsure?.planId);
    const point = unsure && !unsure.knee ? run(unsure) : null;
    if (!point?.knee) break;
    ranked = compared(ranked.map((p) => (p === unsure ? point : p)));
    answer = decide(r, ranked);
  }
  answer = withSlowKernels(r, ranked, answer);
  const named = new Set(choicesOf(answer).map((c) => c.planId));
  const plans = ranked.map((p) =>
    early || !(everyRow || named.has(p.id)) ? p : { ...p, prefill: { ...p.prefill, ...prompts(configured(p), p) } },
  );
  answer = withRemoved(r, withRoom(r, withPrompts(r, plans, answer), plans), timed, removed);
  const g = r.geometry;
  const report = {
    schema: 'lla-sim/plan' as const,
    schemaVersion: 2 as const,
    scenario: r.scenario,
    model: { ...g, parameters: parameterCount(g), weightsBytes: weightBytes(g, 1) },
    device: { ...r.device, pricing: r.pricer?.source ?? 'none', stack: r.stack },
    contextTokens: r.contextTokens,
    stack: r.tables,
    ...(r.fidelity ? { fidelity: headOf(r.fidelity) } : {}),
    settings: {
      cacheType: r.cacheType,
      groupSize: r.choice.groupSize,
      utilization: r.utilization,
      reserveBytes: r.reserveBytes,
      server: r.server,
      pageTokens: r.pageTokens,
      gpus: r.gpus,
      prefill: r.prefill,
      batch: r.batch,
      usdPerHour: r.usdPerHour,
      targets: r.targets,
      confidence: r.confidence,
      keep: r.keep,
    },
    answer,
    plans,
    removed,
    nearest: kept.length > 0 ? null : nearestPlans(r, timed, onlyLate(removed)),
    refused,
    contradictions: r.publishedAs === null ? [] : contradictionsFor(r.publishedAs),
    tested: r.tested,
    notes: r.notes,
  };
  return { ...report, warnings: warningsOf(report) };
}

/** The report with an answer that a workload's simulation chose. */
export function decidedAgain(r: PlanRequest, report: PlanReport, simulated: ServingMost): PlanReport {
  const { warnings: _warnings, ...planned } = {
    ...report,
    answer: withSlowKernels(r, report.plans, decide(r, report.plans, simulated)),
  };
  return { ...planned, warnings: warningsOf(planned) };
}

/** Where a target removed the full cache, that is why nothing is deployed, whatever keeps the others. */
function withRemoved(r: PlanRequest, answer: Answer, timed: readonly Plan[], removed: readonly Removed[]): Answer {
  const full = removed.find(({ id, target }) => id.startsWith('full/') && /^(--t|--batch|memory)/.test(target));
  if (answer.deploy || answer.reason === null || !full) return answer;
  const plan = timed.find(({ id }) => id === full.id);
  const ways = plan && plan.servedBy !== null && onlyLate(removed).has(plan.id) ? relaxations(r, plan) : [];
  const others = answer.reason === FULL_MISSES ? NOTHING_ELSE : `of the others ${answer.reason}`;
  if (full.target === 'memory') return plan ? { ...answer, reason: `${fullDoesNotFit(r, plan)}; ${others}` } : answer;
  const meets = ways.length > 0 ? ` and meets the targets at ${ways.join(', or ')}` : '';
  return { ...answer, reason: `the full cache misses ${full.target} (${full.reason})${meets}; ${others}` };
}

/** Where what fits lacks room for a prompt, the way of reading it that has room. */
function withRoom(r: PlanRequest, answer: Answer, plans: readonly Plan[]): Answer {
  if (answer.verdict !== 'nothing' || answer.reason === null || withoutRoom(plans).length === 0) return answer;
  const kind = (['chunked', 'by-layer'] as const).find((prefill) =>
    r.candidates.some((c) => {
      const p = c.beside ? null : evaluate({ ...r, prefill }, c, { step: false });
      return p !== null && p.maxBatch.exact >= 1 && !isUseless(p);
    }),
  );
  return kind ? { ...answer, reason: `${answer.reason}; --prefill ${kind} has room` } : answer;
}

/** Tells the paths that a short table never shows: those that nobody would take, where the codec has another. */
function neverShown(r: PlanRequest): (c: Candidate) => boolean {
  const key = ({ codec, eviction }: Candidate): string => JSON.stringify([codec, eviction]);
  const others = new Set(r.candidates.filter((c) => unlikeWanted(r, c) === null).map(key));
  return (c) => unlikeWanted(r, c) !== null && others.has(key(c));
}

/** Plans that targets of time alone removed. */
function onlyLate(removed: readonly Removed[]): ReadonlySet<string> {
  const late = (target: string): boolean => /^--t(pot|tft)/.test(target);
  const other = new Set(removed.filter((x) => !late(x.target)).map((x) => x.id));
  return new Set(removed.map((x) => x.id).filter((id) => !other.has(id)));
}

function headOf({ rows: _rows, ...head }: Fidelity): NonNullable<PlanReport['fidelity']> {
  return head;
}

/** Whether a target says which quality a plan must keep. */
export const asksQuality = ({ targets }: PlanRequest): boolean =>
  targets.minimums.length > 0 ||
  targets.retrievalTokens !== null ||
  targets.maxKl !== undefined ||
  targets.minRecall !== undefined;

const hasTargets = (r: PlanRequest): boolean =>
  r.batch !== null || asksQuality(r) || r.targets.secondsPerToken !== null || r.targets.secondsToFirstToken !== null;

/** True when the question has an answer: at least one plan that holds a sequence. */
export const hasSolution = (report: PlanReport): boolean =>
  report.plans.some((p: Plan) => !p.beside && p.maxBatch.exact >= 1);
