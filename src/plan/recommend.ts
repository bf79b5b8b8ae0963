/** One sentence for the person who signs: which plan, and why. */
import { choiceOf } from '../codecs/paths.js';
import { isUncompressed } from '../codecs/registry.js';
import { isEstimate } from '../cost/evidence.js';
import { formatCount, formatNumber, formatTokens } from '../units.js';
import { PUBLISHED_SHARES } from './break-even.js';
import type { BreakEven, DecodeFigures, Plan, PlanRequest, Recommendation } from './types.js';

/**
 * A plan keeps the model's quality when every published accuracy is at least this share of the uncompressed model's.
 */
export const KEEPS_QUALITY = 0.9;
/** Below this share the larger alternative is not worth naming: something that the model could do is lost. */
const WORTH_NAMING = 0.5;
/**
 * Generation or retrieval tasks that must be published before quality counts as known: one good figure proves little.
 */
const TASKS_WANTED = 2;

const speed = (p: Plan): number => (p.atTarget ?? p.decode).tokensPerSecond?.estimate ?? p.maxBatch.exact;
const figures = (p: Plan): DecodeFigures => p.atTarget ?? p.decode;
const best = (plans: readonly Plan[], value: (p: Plan) => number): Plan | undefined =>
  plans.reduce<Plan | undefined>((a, b) => (a && value(a) >= value(b) ? a : b), undefined);

/**
 * Recommends the plan with the most tokens per second (the most sequences, where nothing is known about speed) among
 * those whose quality is known to be kept, or, where the caller set quality targets, among all that meet them; and
 * names the plan with the most capacity beyond it. Beyond the positions that a model was trained for no published
 * quality holds.
 */
export function recommend(r: PlanRequest, plans: readonly Plan[]): Recommendation | null {
  const usable = plans.filter(
    (p) =>
      p.maxBatch.exact >= 1 &&
      !p.marks.some((m) => m.code === 'destroys-generation' || m.code === 'prefill-does-not-fit'),
  );
  const byTargets = r.targets.minimums.length > 0 || r.targets.retrievalTokens !== null;
  if (!byTargets && r.contextTokens > r.geometry.maxPositions) return null;
  // Models for which less is published are judged by what there is.
  const tasks = Math.min(
    TASKS_WANTED,
    Math.max(0, ...plans.filter((p) => !isUncompressed(p.codec)).map((p) => p.qualityKept?.generationTasks ?? 0)),
  );
  const known = (p: Plan): boolean => p.qualityKept !== null && p.qualityKept.generationTasks >= tasks;
  const faithful = byTargets ? usable : usable.filter((p) => known(p) && (p.qualityKept?.share ?? 0) >= KEEPS_QUALITY);
  const choice = best(faithful, speed);
  if (!choice) return null;
  const full = plans.find((p) => isUncompressed(p.codec) && p.eviction === null);
  // With a batch or a time target capacity is not the question, so no larger plan is named.
  const capacityAsked = !byTargets && r.batch === null && r.targets.secondsPerToken === null;
  const larger = usable.filter(
    (p) =>
      p.maxBatch.exact > choice.maxBatch.exact &&
      p.codec.label !== choice.codec.label &&
      known(p) &&
      (p.qualityKept?.share ?? 0) >= WORTH_NAMING &&
      !p.marks.some((m) => m.code === 'unfaithful-post-hoc'),
  );
  const alternative = capacityAsked ? best(larger, (p) => p.maxBatch.onGrid * 1e9 + speed(p)) : undefined;
  const runs =
    choice.servedBy === null
      ? best(
          usable.filter((p) => p.servedBy !== null),
          speed,
        )
      : undefined;
  return {
    planId: choice.id,
    text: `${describe(choice)}: ${capacity(choice, full)}${pace(choice)}; ${reason(choice, { byTargets, priced: r.pricer !== null, tasks })}.`,
    alternative: alternative
      ? {
          planId: alternative.id,
          text: `${describe(alternative)} holds ${alternative.maxBatch.exact} sequences${pace(alternative)}, if this loss is acceptable: ${loss(alternative)}.`,
        }
      : null,
    deployable: runs
      ? {
          planId: runs.id,
          text: `${describe(runs)} on ${runs.servedBy}: ${capacity(runs, undefined)}${pace(runs)}. Kernels for ${describe(choice)} would have to be written${worth(choice)}.`,
        }
      : null,
  };
}

/** What kernels must reach for a plan to beat the full cache. */
function worth({ breakEven }: Plan): string {
  if (!breakEven) return '';
  if (breakEven.cannot) return '; not even at the rate of tuned kernels do its tokens per second reach the full cache';
  return `; it is faster than the full cache once they reach ${breakEvenWords(breakEven)} of what tuned kernels reach on this GPU (${PUBLISHED_SHARES.map((p) => `${p.what} reached ${Math.round(p.share * 100)} % of ${p.of}`).join(', ')})`;
}

const percent = (share: number): string => String(Math.ceil(share * 100));

/** `31 % (24–45)`. */
export const breakEvenWords = ({ estimate, low, high }: BreakEven): string =>
  `${percent(estimate)} % (${percent(low)}–${percent(high)})`;

const describe = (p: Plan): string =>
  isUncompressed(p.codec)
    ? `the full cache${p.eviction ? ' with eviction' : ''}`
    : `${p.codec.label} by ${p.path}${p.variant && choiceOf(p.path, true) === p.variant ? ` (${p.variant})` : ''}${p.eviction ? ' with eviction' : ''}`;

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
  const s = f.secondsPerStep;
  const unit = s.high >= 10 ? { of: 1, name: 's' } : { of: 1e3, name: 'ms' };
  const [estimate, low, high] = [s.estimate, s.low, s.high].map((x) => formatNumber(x * unit.of));
  const usd = f.usdPerMillionTokens ? `, $${formatNumber(f.usdPerMillionTokens.estimate)} per million tokens` : '';
  return `, ${formatCount(f.tokensPerSecond.estimate)} tok/s at ${estimate} ${unit.name} a token (${low}–${high}, ${f.evidence})${usd}`;
}

function reason(p: Plan, o: { byTargets: boolean; priced: boolean; tasks: number }): string {
  const most = o.priced
    ? `the most tokens per second${isEstimate(figures(p).evidence ?? 'measured') ? ' by estimates of kernels that nobody has measured' : ''}`
    : 'the most sequences';
  if (o.byTargets) return `${most} among the plans that meet the targets`;
  if (isUncompressed(p.codec)) return `${most} among the plans whose published quality is kept`;
  const kept = `${most} among the plans with a checkpoint whose every published accuracy keeps at least ${KEEPS_QUALITY * 100} % of the uncompressed model's (worst here: ${loss(p)})`;
  return o.tasks === 0 ? `${kept}; no generation or retrieval task is published for this model` : kept;
}

function loss(p: Plan): string {
  const q = p.qualityKept;
  if (!q) return 'unknown';
  return `${q.metric}${q.contextTokens === null ? '' : ` at ${formatTokens(q.contextTokens)} tokens`} ${q.value} against ${q.teacher}, ${q.source}`;
}
