/** When no plan meets the time targets: how near they come, and what would help. */
import { SERVER_GPUS } from '../../devices/catalogue.js';
import { gpuCounts } from '../../geometry/geometry.js';
import { furthest } from '../../numbers/halving.js';
import { counted, formatTokens } from '../../numbers/units.js';
import { present } from '../../present.js';
import { candidateOf } from '../ask/candidates.js';
import { chanceWithin, timeAt, type Timed } from '../evaluate/chance.js';
import { configurationOf, evaluate } from '../evaluate/evaluate.js';
import { operate } from '../evaluate/operating.js';
import { promptPricer } from '../evaluate/prompt-time.js';
import { planName } from '../words/words.js';
import { applyTargets, confidenceWords, timeLabel } from '../evaluate/targets.js';
import { MATERIAL, runsToday } from './decide.js';
import { isUnfit } from './representatives.js';
import type { Plan, PlanRequest } from '../types.js';

/** The plan that misses the time targets by least. */
export interface Nearest {
  readonly planId: string;
  /** Probability of its time targets together, at the batch that comes nearest (or --batch). */
  readonly chance: number | null;
  /** Its time at the wanted confidence over the target, the larger of both; null where one is unknown. */
  readonly times: number | null;
  readonly text: string;
}

/** Probability of all time targets of a plan: the smallest; null where one cannot be told. */
function chanceOf(r: PlanRequest, p: Plan): number | null {
  const { secondsPerToken, secondsToFirstToken } = r.targets;
  const tpot = secondsPerToken === null ? 1 : p.chances.tpot;
  const ttft = secondsToFirstToken === null ? 1 : p.chances.ttft;
  return tpot === null || ttft === null ? null : Math.min(tpot, ttft);
}

/** By what the time targets have to be relaxed for a plan: the larger of both; infinite where a time is unknown. */
function excessOf(r: PlanRequest, p: Plan): number {
  const over = (time: Timed | null, target: number | null): number =>
    target === null ? 0 : time === null ? Infinity : timeAt(time, r.confidence) / target;
  return Math.max(over(stepOf(p), r.targets.secondsPerToken), over(promptOf(p), r.targets.secondsToFirstToken));
}

/** Those for which targets have to be relaxed least first; before them what runs today and is hardly farther. */
function byExcess(r: PlanRequest, plans: readonly Plan[]): Plan[] {
  const rows = plans.map((p) => ({ p, excess: excessOf(r, p), seconds: stepOf(p)?.seconds.estimate ?? Infinity }));
  const limit = MATERIAL * Math.min(...rows.map(({ excess }) => excess));
  const later = ({ p, excess }: (typeof rows)[number]): number => (excess <= limit && runsToday(r, p) ? 0 : 1);
  const compare = (a: number, b: number): number => (a === b ? 0 : a - b);
  return rows
    .sort((a, b) => later(a) - later(b) || compare(a.excess, b.excess) || compare(a.seconds, b.seconds))
    .map(({ p }) => p);
}

/**
 * Of plans that miss nothing but time: the closest, what would pass at even odds, and what to relax.
 * @param missed ids of the plans that no other target removed
 * @returns null without prices, and where nobody would take any of them
 */
export function nearestPlans(r: PlanRequest, plans: readonly Plan[], missed: ReadonlySet<string>): Nearest | null {
  const candidates = byExcess(
    r,
    plans.filter((p) => missed.has(p.id) && p.maxBatch.exact >= 1 && !isUnfit(p)),
  );
  const [closest] = candidates;
  if (!closest || !r.pricer) return null;
  const chance = chanceOf(r, closest);
  const sure = confidenceWords(r.confidence);
  const batch = batchOf(r, closest);
  const lines = [
    `closest: ${planName(closest)}${r.gpus > 1 ? ` on ${r.gpus} GPUs` : ''}` +
      `${batch === null ? '' : ` with ${counted(batch, 'sequence')}`}, ` +
      `${chance === null ? 'cannot tell' : `${Math.floor(chance * 100)} % likely`}: ` +
      missesOf(r, closest).join(', '),
  ];
  const even = candidates.filter((p) => passesEvenly(r, p));
  lines.push(
    even.length > 0
      ? `at --confidence 0.5 ${counted(even.length, 'row')} would pass, such as ${planName(even[0]!)}`
      : 'no row would pass even at --confidence 0.5',
  );
  const relax = relaxations(r, closest);
  if (relax.length > 0) lines.push(`${planName(closest)} meets the targets with ${sure} at ${relax.join(', or ')}`);
  const times = excessOf(r, closest);
  const text = lines.map((l) => `  ${l}`).join('\n');
  return { planId: closest.id, chance, times: Number.isFinite(times) ? times : null, text };
}

/** Sequences where it is run, or else those that miss --tpot by least; null where neither is wanted. */
const batchOf = (r: PlanRequest, p: Plan): number | null =>
  r.targets.secondsPerToken === null ? r.batch : (p.knee?.batch ?? p.nearest?.batch ?? null);

/** Whether a plan would stay at even odds, with the batch that is found then. */
const passesEvenly = ({ targets }: PlanRequest, { chances, knee, nearest }: Plan): boolean =>
  (targets.secondsPerToken === null || knee !== null || (nearest?.likeliest ?? 0) >= 0.5) &&
  (targets.secondsToFirstToken === null || (chances.ttft ?? 0) >= 0.5);

/** The time that a plan takes there. */
const stepOf = (p: Plan): Timed | null =>
  p.knee?.secondsPerStep && p.knee.evidence ? { seconds: p.knee.secondsPerStep, evidence: p.knee.evidence } : p.nearest;

const promptOf = ({ prefill: { secondsToFirstToken: seconds, evidence } }: Plan): Timed | null =>
  seconds && evidence ? { seconds, evidence } : null;

/** Targets of time that a plan misses, with what it takes. */
function missedBy({ targets, confidence }: PlanRequest, p: Plan) {
  const asked = [
    { flag: '--tpot', what: 'a token', time: stepOf(p), target: targets.secondsPerToken },
    { flag: '--ttft', what: 'to the first token', time: promptOf(p), target: targets.secondsToFirstToken },
  ];
  return asked.flatMap(({ time, target, ...words }) =>
    time && target !== null && (chanceWithin(time, target) ?? 0) < confidence ? [{ ...words, time, target }] : [],
  );
}

/** By how much each target fails. */
const missesOf = (r: PlanRequest, p: Plan): string[] =>
  missedBy(r, p).map(
    ({ what, time: { seconds }, target }) =>
      `${timeLabel(seconds.estimate, true)} ${what} (${timeLabel(seconds.low, true)} to ` +
      `${timeLabel(seconds.high, true)}) against ${timeLabel(target, true)}`,
  );

/** Changes of one thing at a time with which a plan meets its time targets; where it misses both, both are relaxed. */
export function relaxations(r: PlanRequest, p: Plan): string[] {
  const own = missedBy(r, p).map(({ flag, time }) => `${flag} ${timeLabel(upward(timeAt(time, r.confidence)))}`);
  const shorter = shorterContext(r, p);
  const gpus = moreGpus(r, p);
  return present([
    Number.isFinite(excessOf(r, p)) && own.length > 0 && own.join(' with '),
    shorter !== null && `--ctx ${formatTokens(shorter)}`,
    gpus !== null && `--gpus ${gpus}`,
  ]);
}

/** Three digits, never less than the value. */
function upward(seconds: number): number {
  const unit = 10 ** (Math.floor(Math.log10(seconds)) - 2);
  return Math.ceil(seconds / unit) * unit;
}

/** Whether a plan meets every target of a request that was changed. */
function meets(r: PlanRequest, { id }: Pick<Plan, 'id'>): boolean {
  const candidate = candidateOf(r, id);
  if (!candidate) return false;
  const prompts = r.targets.secondsToFirstToken === null ? {} : { prompts: promptPricer(r) };
  const evaluated = evaluate(r, candidate, { step: false, ...prompts });
  const run = r.targets.secondsPerToken === null ? evaluated : operate(r, configurationOf(r, candidate), evaluated);
  return applyTargets(r, [run]).kept.length > 0;
}

/** The longest context of whole kilotokens at which a plan meets the targets; null where none does. */
function shorterContext(r: PlanRequest, p: Plan): number | null {
  const isMet = (kilotokens: number): boolean => meets({ ...r, contextTokens: kilotokens * 1024 }, p);
  const fits = furthest(0, Math.ceil(r.contextTokens / 1024), isMet);
  return fits === 0 ? null : fits * 1024;
}

/** The fewest GPUs, by doubling, over which a plan meets the targets; null where none of one server do. */
function moreGpus(r: PlanRequest, p: Pick<Plan, 'id'>): number | null {
  const counts = gpuCounts(r.geometry);
  if (r.runtime) return null;
  for (let gpus = r.gpus * 2; gpus <= SERVER_GPUS && counts.includes(gpus); gpus *= 2)
    if (meets({ ...r, gpus }, p)) return gpus;
  return null;
}
