/** The decision: what to deploy today, what compression would bring, what it loses, what can go wrong. Pure. */
import { leavesEarly } from '../evaluate/evaluate.js';
import { confidenceWords } from '../evaluate/targets.js';
import { isUncompressed } from '../../codecs/registry.js';
import { isEstimate } from '../../cost/evidence.js';
import { longestContext } from '../../quality/quality.js';
import { isRuntime, listedAs, RUNTIMES, servedBy, stackLabel, STACKS } from '../../stacks/serving.js';
import { best as bestOf } from '../../numbers/best.js';
import { counted, formatDecimalBytes, formatNumber, formatTokens } from '../../numbers/units.js';
import { present } from '../../present.js';
import { planName } from '../words/words.js';
import { isFullCache, isRuined, isUnfit, isUseless, representatives, withoutRoom } from './representatives.js';
import { served } from './served.js';
import { risksOf } from './risks.js';
import type { Alternative, Answer, Choice } from '../answer-types.js';
import type { Plan, PlanRequest } from '../types.js';

/** Differences of a tenth decide nothing: within them the safer plan is taken, beyond them a plan is worth a line. */
export const MATERIAL = 1.1;

/**
 * Tokens per second where the plan is run, at the slow end of the interval; sequences where nothing is known about
 * speed. Plans are compared by it, because an estimate says nothing where its interval is wide.
 */
const sureSpeed = (p: Plan): number => (p.knee ?? p.decode).tokensPerSecond?.low ?? p.maxBatch.exact;

/** The same by the estimate. */
export const likelySpeed = (p: Plan): number => (p.knee ?? p.decode).tokensPerSecond?.estimate ?? p.maxBatch.exact;

/** Faster at the slow end, which ranks plans, and by the estimate, which is printed. */
const isFaster = (p: Plan, than: Plan): boolean =>
  sureSpeed(p) > MATERIAL * sureSpeed(than) && likelySpeed(p) > MATERIAL * likelySpeed(than);

/** What stands behind a time: a stack that serves the plan, or kernels measured on this very device. */
export const runsToday = (r: PlanRequest, p: Plan): boolean =>
  p.servedBy !== null || (r.stack === 'lla-sim' && p.decode.evidence !== null && !isEstimate(p.decode.evidence));

/** Whether published scores say that quality is kept; unknown without any. */
export function verdictOn(p: Plan, keep: number): 'kept' | 'lost' | 'unknown' {
  if (p.qualityKept === null) return 'unknown';
  return p.qualityKept.share >= keep ? 'kept' : 'lost';
}

/** The longest context at which anything is known about quality. */
export const knownTo = (r: PlanRequest): number =>
  Math.min(longestContext(r.publishedAs) ?? Infinity, r.geometry.maxPositions);

/** The first of those with the highest value. */
const best = (plans: readonly Plan[], value: (p: Plan) => number): Plan | null => bestOf(plans, value) ?? null;

/** Of the plans that are not materially slower than the fastest, the one of which most is known. */
function bestKnown(plans: readonly Plan[]): Plan | null {
  const fastest = best(plans, sureSpeed);
  if (!fastest) return null;
  const close = plans.filter((p) => sureSpeed(p) * MATERIAL >= sureSpeed(fastest));
  const known = (p: Plan): number =>
    (p.qualityKept?.generationTasks ?? 0) + (p.qualityKept?.retrievalKnown === true ? 1 : 0);
  const most = Math.max(...close.map(known));
  return best(
    close.filter((p) => known(p) === most),
    sureSpeed,
  );
}

/** Plans that an answer may recommend, the fastest at their slow ends first. */
export interface Contenders {
  /** Run today. */
  readonly today: readonly Plan[];
  /** Need kernels that would have to be written. */
  readonly unwritten: readonly Plan[];
}

/**
 * What a workload's simulation chose of the contenders, by the rate of requests that each serves within the targets.
 */
export interface ServingMost {
  readonly deploy: string | null;
  readonly upside: string | null;
}

const usableOf = (r: PlanRequest, plans: readonly Plan[]): Plan[] =>
  representatives(plans).filter(
    (p) => p.maxBatch.exact >= 1 && (r.pricer === null || p.knee !== null) && !isUseless(p),
  );

/** Plans whose quality is kept at the asked context. */
const keptOf = (r: PlanRequest, plans: readonly Plan[]): Plan[] =>
  r.contextTokens > knownTo(r) ? [] : plans.filter((p) => verdictOn(p, r.keep) === 'kept' && !isUnfit(p));

/**
 * The fastest by the estimate, where that is faster than `sure`. Of any path, since a short table has the surest one of
 * each codec; each where it is run. A path that has no operating point yet counts with its largest batch.
 */
function mayBeFaster(kept: readonly Plan[], sure: Plan): Plan | null {
  const rate = (p: Plan): number => (p.knee ?? p.decode).tokensPerSecond?.estimate ?? 0;
  return best(
    kept.filter((p) => p.servedBy === null && rate(p) > MATERIAL * rate(sure)),
    rate,
  );
}

/** A compressed cache that may be faster, where none surely is: beside what runs today, or an estimated full cache. */
function unsureOf(
  r: PlanRequest,
  { deploy, upside, simulated }: { deploy: Plan | null; upside: Plan | null; simulated: boolean },
  kept: readonly Plan[],
  plans: readonly Plan[],
): Plan | null {
  if (simulated) return upside || !deploy ? null : chooseByStep(r, kept).upside;
  const sure = upside ?? deploy;
  if (!sure || (upside && !isUncompressed(upside.codec))) return null;
  return mayBeFaster(keptOf(r, plans), sure);
}

/** The plans that `decide` chooses among. */
export function contenders(r: PlanRequest, all: readonly Plan[]): Contenders {
  const plans = all.filter((p) => !p.beside);
  const kept = keptOf(r, usableOf(r, plans)).sort((a, b) => sureSpeed(b) - sureSpeed(a));
  return { today: kept.filter((p) => runsToday(r, p)), unwritten: kept.filter((p) => !runsToday(r, p)) };
}

/**
 * Decides over the evaluated plans that meet the targets.
 * @param simulated unless given, plans are chosen by one decode step
 */
export function decide(r: PlanRequest, all: readonly Plan[], simulated: ServingMost | null = null): Answer {
  const plans = all.filter((p) => !p.beside);
  const usable = usableOf(r, plans);
  const beyond = r.contextTokens > knownTo(r);
  const kept = keptOf(r, usable);
  const { deploy, upside, faster } = simulated ? chosenOf(kept, simulated) : chooseByStep(r, kept);
  const unsure = unsureOf(r, { deploy, upside, simulated: simulated !== null }, kept, plans);
  const main = upside ?? deploy;
  const sound = usable.filter((p) => !isRuined(p));
  const fallback = main === null ? fallbackOf(r, sound) : null;
  const reference = main ?? fallback;
  const lost = sound.filter((p) => verdictOn(p, r.keep) === 'lost');
  const failing = beyond ? null : best(lost, sureSpeed);
  const fails = failing && failing.id !== fallback?.id && (!reference || isFaster(failing, reference)) ? failing : null;
  const alternatives = main === null ? [] : alternativesTo(r, main, faster);
  return {
    question: questionOf(r),
    chosenBy: simulated ? 'simulation' : 'step',
    verdict: main === null ? (fallback ? 'not-recommended' : 'nothing') : deploy ? 'deploy' : 'estimates-only',
    reason: deploy ? null : reasonOf(r, { main, usable, plans }),
    deploy: deploy && choiceOf(r, deploy),
    upside: upside && { ...choiceOf(r, upside), breakEven: upside.breakEven },
    unsure: unsure && { ...choiceOf(r, unsure), breakEven: unsure.breakEven },
    fallback: fallback && choiceOf(r, fallback),
    fails: fails && choiceOf(r, fails),
    alternatives,
    risks: risksOf(r, present([upside, deploy, fallback])),
    qualityLost: deploy?.qualityKept?.scores ?? [],
    ...(deploy
      ? served(r, deploy)
      : fallback && fallback.servedBy !== null
        ? served(r, fallback)
        : servedUnmeasured(r, usable)),
  };
}

/** The command for the full cache where the server is known, and its kernels were never measured on the GPU. */
function servedUnmeasured(r: PlanRequest, plans: readonly Plan[]): Pick<Answer, 'serve'> {
  const full = plans.find((p) => isFullCache(p) && p.cacheType === 'f16');
  const host = STACKS.find((stack) => r.server?.server.startsWith(stackLabel(stack)));
  if (r.servingStack !== null || !full || host === undefined || isRuntime(r.stack ?? undefined)) return {};
  const { serve } = served({ ...r, servingStack: host }, full);
  return serve === undefined ? {} : { serve: `${serve}; full cache, whose time there is an estimate` };
}

/** Where nothing is recommended: the fastest that runs today, else the fastest. */
const fallbackOf = (r: PlanRequest, plans: readonly Plan[]): Plan | null =>
  best(
    plans.filter((p) => runsToday(r, p)),
    sureSpeed,
  ) ?? best(plans, sureSpeed);

/** What an answer recommends, and plans that are surely faster than `deploy`. */
interface Recommended {
  readonly deploy: Plan | null;
  readonly upside: Plan | null;
  readonly faster: readonly Plan[];
}

/** One decode step decides, at the slow end of its interval. */
function chooseByStep(r: PlanRequest, kept: readonly Plan[]): Recommended {
  const deploy = best(
    kept.filter((p) => runsToday(r, p)),
    sureSpeed,
  );
  const faster = kept.filter((p) => p.id !== deploy?.id && (!deploy || sureSpeed(p) > MATERIAL * sureSpeed(deploy)));
  return { deploy, upside: bestKnown(faster), faster };
}

function chosenOf(kept: readonly Plan[], { deploy, upside }: ServingMost): Recommended {
  const named = (id: string | null): Plan | null => kept.find((p) => p.id === id) ?? null;
  return { deploy: named(deploy), upside: named(upside), faster: [] };
}

/** Every plan that an answer names. */
export const choicesOf = ({ deploy, upside, unsure, fallback, fails, alternatives }: Answer): Choice[] =>
  present([deploy, upside, unsure, fallback, fails, ...alternatives]);

function choiceOf(r: PlanRequest, p: Plan): Choice {
  const quality = verdictOn(p, r.keep);
  return {
    planId: p.id,
    name: planName(p),
    batch: (p.knee ?? p.decode).batch || p.maxBatch.exact,
    quality,
    // Where no checkpoint keeps quality none is named.
    checkpoint: quality === 'kept' ? (p.qualityKept?.checkpoint ?? null) : null,
    qualityLost: p.qualityKept?.scores ?? [],
  };
}

/**
 * Cheapest, safest and largest, each where it differs by more than a tenth; the largest where it is no slower.
 * @param faster plans that keep quality and are surely faster than `deploy`
 */
function alternativesTo(r: PlanRequest, main: Plan, faster: readonly Plan[]): Alternative[] {
  const others = faster.filter((p) => p.id !== main.id);
  const cost = (p: Plan): number => 1 - (p.qualityKept?.share ?? 0);
  // Every plan of a report has the same GPUs, so the most tokens a second are the cheapest.
  const cheapest = best(others, sureSpeed);
  const safest = best(others, (p) => (p.qualityKept?.retrievalKnown === true ? 1 : 0) - cost(p));
  const largest = best(others, (p) => p.maxBatch.exact + sureSpeed(p) * 1e-9);
  const found: Alternative[] = [];
  const add = (kind: Alternative['kind'], p: Plan | null): void => {
    if (p && !found.some((a) => a.planId === p.id)) found.push({ kind, ...choiceOf(r, p) });
  };
  if (cheapest && sureSpeed(cheapest) > MATERIAL * sureSpeed(main)) add('cheapest', cheapest);
  if (safest && cost(main) > MATERIAL * cost(safest)) add('safest', safest);
  if (
    largest &&
    largest.maxBatch.exact > MATERIAL * main.maxBatch.exact &&
    MATERIAL * sureSpeed(largest) > sureSpeed(main)
  )
    add('largest', largest);
  return found;
}

/** The targets as understood: `; at most 50 ms a token, 90 % sure`; empty without any. */
export function wantedWords({
  targets,
  batch,
  confidence,
}: Pick<PlanRequest, 'targets' | 'batch' | 'confidence'>): string {
  const ms = (seconds: number): string => `${Number((seconds * 1e3).toPrecision(6))} ms`;
  const { secondsPerToken: token, secondsToFirstToken: first } = targets;
  const wanted = present([
    token !== null && `at most ${ms(token)} a token`,
    first !== null && `the first token within ${Number(first.toPrecision(6))} s`,
    batch !== null && `${counted(batch, 'sequence')} at once`,
    ...targets.minimums.map((m) => `${m.metric}${m.table === undefined ? '' : `@${m.table}`} at least ${m.value}`),
    targets.maxKl !== undefined && `KL measured here at most ${targets.maxKl} nats`,
    targets.minRecall !== undefined && `recall measured here at least ${targets.minRecall}`,
    targets.retrievalTokens !== null && `reliable retrieval to ${formatTokens(targets.retrievalTokens)}`,
    (token !== null || first !== null) && `${confidenceWords(confidence)} sure`,
  ]);
  return wanted.length === 0 ? '' : `; ${wanted.join(', ')}`;
}

/** The question as understood. */
function questionOf(r: PlanRequest): string {
  const { device, gpus } = r;
  const size = formatDecimalBytes(device.vramBytes);
  const gpu = `${gpus === 1 ? 'one' : `${gpus} ×`} ${device.name}${device.name.startsWith(size) ? '' : ` (${size})`}`;
  const { name, loops } = r.geometry;
  const early = r.meanLoops === undefined ? '' : `, ${formatNumber(r.meanLoops)} of ${loops} loops a token`;
  return `${name} on ${gpu}, ${formatTokens(r.contextTokens)} tokens a sequence${early}${wantedWords(r)}`;
}

/** Why nothing is recommended, or not with confidence. */
function reasonOf(
  r: PlanRequest,
  o: { readonly main: Plan | null; readonly usable: readonly Plan[]; readonly plans: readonly Plan[] },
): string {
  if (o.usable.length === 0)
    return o.plans.some((p) => p.maxBatch.exact >= 1) ? uselessReason(r, o.plans) : 'nothing fits';
  if (r.contextTokens > knownTo(r))
    return r.contextTokens > r.geometry.maxPositions
      ? `${r.geometry.name} was trained for ${formatTokens(r.geometry.maxPositions)} positions, and no quality is ` +
          `${r.fidelity ? 'known' : 'published'} beyond ${formatTokens(knownTo(r))}`
      : `no quality is published beyond ${formatTokens(knownTo(r))}`;
  if (o.main) return noStackReason(r, o.plans);
  const share = `${Math.round(r.keep * 100)} %`;
  return o.usable.every((p) => verdictOn(p, r.keep) === 'unknown')
    ? leavesEarly(r)
      ? 'quality is unknown where tokens leave before their last loop (depth of the workload)'
      : r.fidelity
        ? `${r.fidelity.file} says nothing about these plans at ${formatTokens(r.contextTokens)} tokens`
        : "nothing is published about these plans' quality"
    : `no plan keeps ${share} of the scores ` +
        (r.geometry.trained ? `with all ${r.geometry.trained.loops} loops` : 'of the uncompressed model');
}

/** Why nobody would take any of the plans that fit. */
function uselessReason({ contextTokens }: PlanRequest, plans: readonly Plan[]): string {
  const least = best(withoutRoom(plans), (p) => -p.prefill.peakBytes);
  if (least) {
    const { usableBytes, weightsBytes, codecBytes } = least.memory;
    return (
      `what fits has no room for a prompt: ${least.prefill.kind} prefill of ${formatTokens(contextTokens)} tokens ` +
      `takes at least ${formatDecimalBytes(least.prefill.peakBytes)} (${planName(least)}), ` +
      `${formatDecimalBytes(usableBytes - weightsBytes - codecBytes)} are free`
    );
  }
  const codes = new Set(plans.filter((p) => p.maxBatch.exact >= 1).flatMap((p) => p.marks.map((m) => m.code)));
  const reasons = (
    [
      ['no-memory-saved', 'saves no memory'],
      ['unfaithful-post-hoc', 'computes something else than was published'],
    ] as const
  ).flatMap(([code, words]) => (codes.has(code) ? [words] : []));
  return `what fits ${reasons.length > 0 ? reasons.join(', or ') : 'has no price'}`;
}

export const NOTHING_ELSE = 'nothing else runs today';
/** A target removed the full cache. */
export const FULL_MISSES = `the full cache misses the targets, and ${NOTHING_ELSE}`;

/** Why the full cache does not fit, and whether half of it would. */
export function fullDoesNotFit({ runtime }: PlanRequest, { memory: m, cacheType }: Plan): string {
  const free = Math.max(0, m.usableBytes - m.weightsBytes);
  const halved = m.kvBytesPerSequence / 2 + m.workspaceBytesPerSequence;
  return (
    'the full cache does not fit (one sequence takes ' +
    `${formatDecimalBytes(m.kvBytesPerSequence + m.workspaceBytesPerSequence)}, ${formatDecimalBytes(free)} are free` +
    `${cacheType === 'f16' && halved <= free && !runtime ? '; in 8 bits it fits: --cache-type fp8' : ''})`
  );
}

/** Why no plan of these runs today. */
function noStackReason(r: PlanRequest, plans: readonly Plan[]): string {
  if (r.pricer === null) return `nothing is known about the speed of ${r.device.name}`;
  if (!STACKS.some((stack) => servedBy(listedAs(r), stack))) {
    const others = RUNTIMES.filter((runtime) => servedBy(listedAs(r), runtime));
    return others.length === 0
      ? `no serving stack is known to run ${r.geometry.name}`
      : `of servers ${others.map(stackLabel).join(' and ')} alone ${others.length === 1 ? 'runs' : 'run'} ` +
          `${r.geometry.name} (--stack ${others[0]})`;
  }
  if (r.servingStack === null)
    return isRuntime(r.stack ?? undefined)
      ? `${r.stack} was never measured on ${r.device.name} or its like`
      : r.tablesLeftOut
        ? '--stack attainable leaves the kernels of serving stacks out'
        : `no kernels of a serving stack were measured on ${r.device.name}`;
  const full = plans.find((p) => isFullCache(p) && p.cacheType === 'f16');
  if (!full) return r.candidates.some(isFullCache) ? FULL_MISSES : 'no serving stack runs a compressed cache';
  return full.maxBatch.exact < 1
    ? `${fullDoesNotFit(r, full)}, and ${NOTHING_ELSE}`
    : STACKS.some((stack) => stack === r.servingStack)
      ? `${stackLabel(r.servingStack)} does not run ${r.geometry.name}`
      : `the times are of ${stackLabel(r.servingStack)}, which is not known to run ${r.geometry.name}`;
}
