/** Which plans meet what was asked, and what removed the others. */
import { timeAt, type Timed } from './chance.js';
import type { Interval } from '../../cost/evidence.js';
import { formatMilliseconds, formatTokens } from '../../numbers/units.js';
import type { QualityFigure } from '../../quality/figure.js';
import { isTable } from '../../quality/quality.js';
import { isReference, klLabel, reaches, shareLabel } from './fidelity.js';
import type { MinimumTarget, Plan, PlanRequest, Removed } from '../types.js';

/**
 * Splits plans into those that meet every target and the reasons why the others do not (all reasons, not just the
 * first).
 */
export function applyTargets(r: PlanRequest, plans: readonly Plan[]): { kept: Plan[]; removed: Removed[] } {
  const kept: Plan[] = [];
  const removed: Removed[] = [];
  for (const plan of plans) {
    const reasons = [
      ...capacityReasons(r, plan),
      ...qualityReasons(r, plan),
      ...timeReasons(r, plan),
      ...promptReasons(r, plan),
    ];
    if (reasons.length === 0) kept.push(plan);
    else removed.push(...reasons.map(([target, reason]) => ({ id: plan.id, target, reason })));
  }
  return { kept, removed };
}

type Reason = [target: string, reason: string];

function capacityReasons(r: PlanRequest, p: Plan): Reason[] {
  if (p.maxBatch.exact < 1) return [['memory', `not one sequence fits (limited by ${p.limitedBy})`]];
  if (r.batch !== null && p.maxBatch.exact < r.batch)
    return [[`--batch ${r.batch}`, `at most ${p.maxBatch.exact} sequences fit`]];
  return [];
}

/**
 * Figures that speak for a context: those without one, and cells up to the first that is at least as long. Where every
 * cell is shorter nothing is known.
 */
export function atContext(figures: readonly QualityFigure[], contextTokens: number): QualityFigure[] {
  const enough = Math.min(...figures.map((f) => f.contextTokens ?? 0).filter((t) => t === 0 || t >= contextTokens));
  return figures.filter((f) => (f.contextTokens ?? 0) <= enough && enough < Infinity);
}

const targetLabel = (m: MinimumTarget): string => `--min ${m.metric}${m.table ? `@${m.table}` : ''}=${m.value}`;

function qualityReasons(r: PlanRequest, p: Plan): Reason[] {
  const reasons = r.targets.minimums.flatMap((m): Reason[] => {
    const reason = missedBy(m, p, r.contextTokens);
    return reason === null ? [] : [[targetLabel(m), reason]];
  });
  const retrieval = r.targets.retrievalTokens;
  const reached = p.reliableRetrieval?.tokens;
  if (retrieval !== null && (reached ?? 0) < retrieval)
    reasons.push([
      `--retrieval ${formatTokens(retrieval)}`,
      reached === undefined
        ? 'unknown: no published retrieval length'
        : `published reliable retrieval ends at ${formatTokens(reached)}`,
    ]);
  return [...reasons, ...measuredReasons(r, p)];
}

/** Why published scores do not meet a minimum; null where they do. */
function missedBy({ metric, table, value }: MinimumTarget, p: Plan, contextTokens: number): string | null {
  const published = p.quality.filter((f) => f.metric === metric && (table === undefined || isTable(f.source, table)));
  const figures = atContext(published, contextTokens);
  if (figures.length === 0)
    return published.length > 0
      ? `unknown: nothing is published for ${formatTokens(contextTokens)} tokens`
      : 'unknown: no published figure for this combination';
  const missed = figures.filter((f) => (f.higherIsBetter ? f.value < value : f.value > value));
  if (missed.length === 0) return null;
  const list = missed.map((f) => `${f.value} (${f.source})`).join(', ');
  return missed.length < figures.length
    ? `contradicted: ${list} miss it, other tables meet it; choose one with ${metric}@TABLE`
    : `published ${list}`;
}

/** Targets of what was measured of this model. The bad end of the interval decides; the full cache has no KL. */
function measuredReasons(r: PlanRequest, p: Plan): Reason[] {
  const { maxKl, minRecall } = r.targets;
  const reasons: Reason[] = [];
  const check = (label: string, value: Interval | null | undefined, misses: (i: Interval) => string | null): void => {
    const unknown = unknownHere(r, p, value);
    const reason = unknown ?? misses(value as Interval);
    if (reason !== null) reasons.push([label, reason]);
  };
  if (maxKl !== undefined && !isReference(p, p.cacheType))
    check(`--max-kl ${maxKl}`, p.measured?.kl, (kl) =>
      kl.high > maxKl ? `KL measured here is ${klLabel(kl)}: its upper end is too high` : null,
    );
  if (minRecall !== undefined)
    check(`--min-recall ${minRecall}`, p.measured?.recall, (recall) =>
      recall.low < minRecall ? `recall measured here is ${shareLabel(recall)}: its lower end is too low` : null,
    );
  return reasons;
}

/** Why a measured value says nothing here; null where it does. */
function unknownHere(r: PlanRequest, p: Plan, value: Interval | null | undefined): string | null {
  if (!p.measured) return `unknown: ${r.fidelity?.file} does not hold this combination`;
  if (!value) return `unknown: ${r.fidelity?.file} does not hold it, as its texts ask no such question`;
  return reaches(r)
    ? null
    : `unknown: measured up to ${r.fidelity?.contextTokens} tokens, and ${r.contextTokens} are asked`;
}

/** `80ms`, `12s`; spaced `80 ms`. */
export const timeLabel = (seconds: number, spaced = false): string =>
  seconds >= 10 ? formatMilliseconds(seconds) : `${formatMilliseconds(seconds)}${spaced ? ' ' : ''}ms`;

/** `99.9 %`: rounded, a confidence could be said to be certainty. */
export const confidenceWords = (confidence: number): string => `${Number((confidence * 100).toPrecision(6))} %`;

/** `a 71 % chance, 58.2 ms at 90 %`, or what a bracket says. */
function chanceWords(r: PlanRequest, chance: number | null, time: Timed | null): string {
  if (time === null) return 'an unknown time';
  const { estimate, low, high } = time.seconds;
  if (chance === null)
    return `${timeLabel(low, true)} to ${timeLabel(high, true)}, a bracket of the datasheet's rates, which cannot tell`;
  const sure = `${timeLabel(timeAt(time, r.confidence), true)} at ${confidenceWords(r.confidence)}`;
  return `${timeLabel(estimate, true)} by the estimate, ${Math.floor(chance * 100)} % likely to meet it; ${sure}`;
}

function timeReasons(r: PlanRequest, p: Plan): Reason[] {
  const target = r.targets.secondsPerToken;
  // What does not fit takes no time: that it does not is the reason.
  if (target === null || p.atTarget || capacityReasons(r, p).length > 0) return [];
  const label = `--tpot ${timeLabel(target)}`;
  if (!r.pricer) return [[label, 'unknown: nothing is known about the speed of this device']];
  const who = (p.nearest?.batch ?? 1) === 1 ? 'one sequence' : `a batch of ${p.nearest?.batch}`;
  return [[label, `${who} takes ${chanceWords(r, p.chances.tpot, p.nearest)}`]];
}

function promptReasons(r: PlanRequest, { prefill, chances }: Plan): Reason[] {
  const target = r.targets.secondsToFirstToken;
  if (target === null || (chances.ttft ?? -1) >= r.confidence) return [];
  const label = `--ttft ${timeLabel(target)}`;
  const { notPriced, secondsToFirstToken: seconds, evidence } = prefill;
  if (notPriced !== null || seconds === null || evidence === null) return [[label, `unknown: ${notPriced}`]];
  const first = `the first token after ${formatTokens(r.contextTokens)} tokens`;
  return [[label, `${first} takes ${chanceWords(r, chances.ttft, { seconds, evidence })}`]];
}
