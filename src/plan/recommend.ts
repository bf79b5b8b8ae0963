/** One sentence for the person who signs: which plan, and why. */
import { formatCount, formatMilliseconds, formatNumber } from '../units.js';
import type { DecodeFigures, Plan, PlanRequest, Recommendation } from './types.js';

/** A plan keeps the model's quality when every published accuracy is at least this share of the uncompressed model's. */
export const KEEPS_QUALITY = 0.9;
/** Below this share the larger alternative is not worth naming: something that the model could do is lost. */
const WORTH_NAMING = 0.5;
/** Generation or retrieval tasks that must be published before quality counts as known: one good figure proves little. */
const TASKS_WANTED = 2;

const speed = (p: Plan): number => (p.atTarget ?? p.decode).tokensPerSecond?.estimate ?? p.maxBatch.exact;
const figures = (p: Plan): DecodeFigures => p.atTarget ?? p.decode;
const best = (plans: readonly Plan[], value: (p: Plan) => number): Plan | undefined => plans.reduce<Plan | undefined>((a, b) => (a && value(a) >= value(b) ? a : b), undefined);

/**
 * Recommends the plan with the most tokens per second among those whose quality is known to be kept (or, where the
 * caller set quality targets, among all that meet them), and names the plan with the most capacity beyond it.
 */
export function recommend(r: PlanRequest, plans: readonly Plan[]): Recommendation | null {
  const usable = plans.filter((p) => p.maxBatch.exact >= 1 && !p.marks.some((m) => m.code === 'destroys-generation' || m.code === 'prefill-does-not-fit'));
  const byTargets = r.targets.minimums.length > 0 || r.targets.retrievalTokens !== null;
  // Models for which less is published are judged by what there is.
  const tasks = Math.min(TASKS_WANTED, Math.max(0, ...plans.filter((p) => p.codec.kind !== 'full').map((p) => p.qualityKept?.generationTasks ?? 0)));
  const known = (p: Plan): boolean => p.qualityKept !== null && p.qualityKept.generationTasks >= tasks;
  const faithful = byTargets ? usable : usable.filter((p) => known(p) && (p.qualityKept?.share ?? 0) >= KEEPS_QUALITY);
  const choice = best(faithful, speed);
  if (!choice) return null;
  const full = plans.find((p) => p.codec.kind === 'full' && p.eviction === null);
  const larger = usable.filter((p) => p.maxBatch.exact > choice.maxBatch.exact && known(p) && (p.qualityKept?.share ?? 0) >= WORTH_NAMING && !p.marks.some((m) => m.code === 'unfaithful-post-hoc'));
  const alternative = byTargets ? undefined : best(larger, (p) => p.maxBatch.onGrid * 1e9 + speed(p));
  return {
    planId: choice.id,
    text: `${describe(choice)}: ${capacity(choice, full)}${pace(choice)}; ${reason(choice, byTargets)}.`,
    alternative: alternative ? { planId: alternative.id, text: `${describe(alternative)} holds ${alternative.maxBatch.exact} sequences${pace(alternative)}, if this loss is acceptable: ${loss(alternative)}.` } : null,
  };
}

const describe = (p: Plan): string =>
  p.codec.kind === 'full' ? `the full cache${p.eviction ? ' with eviction' : ''}` : `${p.codec.label} by ${p.path}${p.variant === 'materialised' ? ' (materialised)' : ''}${p.eviction ? ' with eviction' : ''}`;

function capacity(p: Plan, full: Plan | undefined): string {
  const batch = figures(p).batch || p.maxBatch.exact;
  const besides: string[] = [];
  if (batch !== p.maxBatch.exact) besides.push(`${p.maxBatch.exact} fit`);
  if (p.prefill.batchBesidePrefill < batch) besides.push(`${p.prefill.batchBesidePrefill} while a prompt is prefilled`);
  if (full && full.id !== p.id && full.maxBatch.exact >= 1) besides.push(`the full cache holds ${full.maxBatch.exact}`);
  return `${batch} sequence${batch === 1 ? '' : 's'}${besides.length > 0 ? ` (${besides.join('; ')})` : ''}`;
}

function pace(p: Plan): string {
  const f = figures(p);
  if (!f.secondsPerStep || !f.tokensPerSecond) return '';
  const range = `${formatMilliseconds(f.secondsPerStep.low)}–${formatMilliseconds(f.secondsPerStep.high)}`;
  const usd = f.usdPerMillionTokens ? `, $${formatNumber(f.usdPerMillionTokens.estimate)} per million tokens` : '';
  return `, ${formatCount(f.tokensPerSecond.estimate)} tok/s at ${formatMilliseconds(f.secondsPerStep.estimate)} ms a token (${range}, ${f.evidence})${usd}`;
}

function reason(p: Plan, byTargets: boolean): string {
  if (p.codec.kind === 'full') return byTargets ? 'the full cache is the fastest that meets the targets' : 'no compressed cache is faster with its published quality kept';
  if (byTargets) return 'the most tokens per second among the plans that meet the targets';
  return `every published accuracy keeps at least ${KEEPS_QUALITY * 100} % of the uncompressed model's (worst: ${loss(p)})`;
}

const loss = (p: Plan): string => (p.qualityKept ? `${p.qualityKept.metric} ${p.qualityKept.value} against ${p.qualityKept.teacher}, ${p.qualityKept.source}` : 'unknown');
