/** When no plan meets the time targets: how near they come, and what would help. */
import { priceStep } from '../../cost/latency.js';
import { SERVER_GPUS } from '../../devices/catalogue.js';
import { gpuCounts } from '../../geometry/geometry.js';
import { formatTokens } from '../../numbers/units.js';
import { candidateOf } from '../ask/candidates.js';
import { chanceWithin, timeAt, type Timed } from '../evaluate/chance.js';
import { configurationOf } from '../evaluate/evaluate.js';
import { planName } from '../words/words.js';
import { timeLabel } from '../evaluate/targets.js';
import type { Plan, PlanRequest } from '../types.js';

/** The plan that misses the time targets by least. */
export interface Nearest {
  readonly planId: string;
  /** Probability of its time targets together, at the batch that comes nearest (or --batch). */
  readonly chance: number | null;
  readonly text: string;
}

/** Probability of all time targets of a plan: the smallest; null where one cannot be told. */
function chanceOf(r: PlanRequest, p: Plan): number | null {
  const { secondsPerToken, secondsToFirstToken } = r.targets;
  const asked = [
    ...(secondsPerToken === null ? [] : [p.chances.tpot]),
    ...(secondsToFirstToken === null ? [] : [p.chances.ttft]),
  ];
  return asked.some((c) => c === null) ? null : Math.min(...(asked as number[]));
}

/**
 * Of plans that miss nothing but time: the likeliest, what would pass at even odds, and what to relax.
 * @param missed ids of the plans that no other target removed
 */
export function nearestPlans(r: PlanRequest, plans: readonly Plan[], missed: ReadonlySet<string>): Nearest | null {
  const candidates = plans.filter((p) => missed.has(p.id) && p.maxBatch.exact >= 1);
  const chances = new Map(candidates.map((p) => [p, chanceOf(r, p)]));
  const speed = (p: Plan): number => stepOf(p)?.seconds.estimate ?? Infinity;
  const order = (a: Plan, b: Plan): number => (chances.get(b) ?? 0) - (chances.get(a) ?? 0) || speed(a) - speed(b);
  const [closest] = [...candidates].sort(order);
  if (!closest || !r.pricer) return null;
  const chance = chances.get(closest) ?? null;
  const sure = `${Math.round(r.confidence * 100)} %`;
  const batch = batchOf(r, closest);
  const lines = [
    `closest: ${planName(closest)}${r.gpus > 1 ? ` on ${r.gpus} GPUs` : ''} with ${batch} ` +
      `sequence${batch === 1 ? '' : 's'}, ` +
      `${chance === null ? 'cannot tell' : `${Math.floor(chance * 100)} % likely`}: ` +
      missesOf(r, closest).join(', '),
  ];
  const even = candidates.filter((p) => passesEvenly(r, p));
  lines.push(
    even.length > 0
      ? `at --confidence 0.5 ${even.length} row${even.length === 1 ? '' : 's'} would pass, such as ` +
          `${planName(even[0] as Plan)}`
      : 'no row would pass even at --confidence 0.5',
  );
  const relax = relaxations(r, closest);
  if (relax.length > 0) lines.push(`${planName(closest)} meets the targets with ${sure} at ${relax.join(', or ')}`);
  return { planId: closest.id, chance, text: lines.map((l) => `  ${l}`).join('\n') };
}

/** Sequences at the operating point; where no batch meets --tpot, those that miss it by least. */
const batchOf = (r: PlanRequest, p: Plan): number => p.knee?.batch ?? p.nearest?.batch ?? r.batch ?? 1;

/** Whether a plan would stay at even odds, with the batch that is found then. */
const passesEvenly = ({ targets }: PlanRequest, { chances, knee, nearest }: Plan): boolean =>
  (targets.secondsPerToken === null || knee !== null || (nearest?.likeliest ?? 0) >= 0.5) &&
  (targets.secondsToFirstToken === null || (chances.ttft ?? 0) >= 0.5);

/** The time that a plan takes there. */
const stepOf = (p: Plan): Timed | null =>
  p.knee?.secondsPerStep && p.knee.evidence ? { seconds: p.knee.secondsPerStep, evidence: p.knee.evidence } : p.nearest;

const promptOf = ({ prefill: { secondsPerPrompt: seconds, evidence } }: Plan): Timed | null =>
  seconds && evidence ? { seconds, evidence } : null;

/** By how much each target fails. */
function missesOf(r: PlanRequest, p: Plan): string[] {
  const { secondsPerToken, secondsToFirstToken } = r.targets;
  const list: string[] = [];
  const add = (what: string, time: Timed | null, target: number | null): void => {
    if (target === null || time === null || (chanceWithin(time, target) ?? 0) >= r.confidence) return;
    const { seconds } = time;
    list.push(
      `${timeLabel(seconds.estimate, true)} ${what} (${timeLabel(seconds.low, true)} to ` +
        `${timeLabel(seconds.high, true)}) against ${timeLabel(target, true)}`,
    );
  };
  add('a token', stepOf(p), secondsPerToken);
  add('to the first token', promptOf(p), secondsToFirstToken);
  return list;
}

/** Changes of one thing at a time with which a plan meets its time per token. */
function relaxations(r: PlanRequest, p: Plan): string[] {
  const { secondsPerToken: target, secondsToFirstToken } = r.targets;
  const found: string[] = [];
  const time = stepOf(p);
  const prompt = promptOf(p);
  if (target !== null && time && (chanceWithin(time, target) ?? 0) < r.confidence) {
    found.push(`--tpot ${timeLabel(upward(timeAt(time, r.confidence)))}`);
    const shorter = shorterContext(r, p, target);
    if (shorter !== null) found.push(`--ctx ${formatTokens(shorter)}`);
    const gpus = moreGpus(r, p, target);
    if (gpus !== null) found.push(`--gpus ${gpus}`);
  }
  if (secondsToFirstToken !== null && prompt && (chanceWithin(prompt, secondsToFirstToken) ?? 0) < r.confidence)
    found.push(`--ttft ${timeLabel(upward(timeAt(prompt, r.confidence)))}`);
  return found;
}

/** Three digits, never less than the value. */
function upward(seconds: number): number {
  const unit = 10 ** (Math.floor(Math.log10(seconds)) - 2);
  return Math.ceil(seconds / unit) * unit;
}

/** Seconds of a step with the wanted probability, for a change of the request. */
function stepAt(r: PlanRequest, p: Plan, context: number): number {
  const candidate = candidateOf(r, p.id);
  if (!candidate || !r.pricer) return Infinity;
  const { estimate, low, high, evidence } = priceStep(configurationOf(r, candidate), r.pricer, batchOf(r, p), context);
  return timeAt({ seconds: { estimate, low, high }, evidence }, r.confidence);
}

/** The longest context of whole kilotokens at which the batch meets the target; null where none does. */
function shorterContext(r: PlanRequest, p: Plan, target: number): number | null {
  let [fits, fails] = [0, Math.ceil(r.contextTokens / 1024)];
  while (fails - fits > 1) {
    const middle = Math.floor((fits + fails) / 2);
    if (stepAt(r, p, middle * 1024) <= target) fits = middle;
    else fails = middle;
  }
  return fits === 0 ? null : fits * 1024;
}

/** The fewest GPUs, by doubling, over which the batch meets the target. */
function moreGpus(r: PlanRequest, p: Plan, target: number): number | null {
  const counts = gpuCounts(r.geometry);
  for (let gpus = r.gpus * 2; gpus <= SERVER_GPUS && counts.includes(gpus); gpus *= 2)
    if (stepAt({ ...r, gpus }, p, r.contextTokens) <= target) return gpus;
  return null;
}
