/** Fields of a row as text, for every printer of a plan. */
import { LATENT_KINDS } from '../codecs/registry.js';
import { isEstimate } from '../cost/evidence.js';
import { evictionLabel } from '../eviction/policy.js';
import { isBuilt, savesNothing } from '../plan/evaluate/as-published.js';
import { choicesOf } from '../plan/decide/decide.js';
import { HERE, klLabel } from '../plan/evaluate/fidelity.js';
import { isOtherThanPublished, isFullCache, MOST_ROWS, representatives } from '../plan/decide/representatives.js';
import type { DecodeFigures, LimitedBy, Plan, PlanReport } from '../plan/types.js';
import { guessMark, pathLabel, shownDecode, timeLabel } from '../plan/words/words.js';
import { formatBytes, formatCount, formatNumber, formatTokens } from '../numbers/units.js';
import { shareText, type Column } from './text/text.js';

/** A device as users name it, else by its full name. */
export const deviceName = ({ device }: Pick<PlanReport, 'device'>): string => device.id ?? device.name;

/** What is known of a row, as text, and as what a table sorts by; what is not known sorts last. */
export interface Field extends Omit<Column<Plan>, 'title'> {
  readonly value: (p: Plan) => string | number | null | undefined;
}

const words = (cell: Field['cell']): Field => ({ align: 'left', cell, value: cell });
const figure = (of: Omit<Field, 'align'>): Field => ({ align: 'right', ...of });

export const rateLabel = (d: Pick<DecodeFigures, 'tokensPerSecond'>): string =>
  d.tokensPerSecond ? `${guessMark(d.tokensPerSecond)}${formatCount(d.tokensPerSecond.estimate)}` : '–';

export const usdLabel = ({ usdPerMillionTokens: usd }: Pick<DecodeFigures, 'usdPerMillionTokens'>): string =>
  usd ? formatNumber(usd.estimate) : '–';

const batchLabel = ({ maxBatch: { exact, onGrid } }: Plan): string =>
  exact === onGrid ? String(exact) : `${exact} (${onGrid})`;

/** A figure of the step that is shown. */
const ofStep = (
  key: 'secondsPerStep' | 'tokensPerSecond' | 'usdPerMillionTokens',
  label: (d: DecodeFigures) => string,
): Field => figure({ cell: (p) => label(shownDecode(p)), value: (p) => shownDecode(p)[key]?.estimate });

/** Columns of every table of rows; each printer gives them titles. */
export const FIELDS = {
  codec: words((p) => p.codec.label),
  path: words(pathLabel),
  eviction: words((p) => evictionLabel(p.eviction)),
  ratio: figure({ cell: (p) => formatNumber(p.codec.ratio), value: (p) => p.codec.ratio }),
  kvToken: figure({ cell: (p) => formatBytes(p.memory.kvBytesPerToken), value: (p) => p.memory.kvBytesPerToken }),
  kvMillion: figure({ cell: (p) => formatBytes(p.memory.kvBytesAt1M), value: (p) => p.memory.kvBytesAt1M }),
  batch: figure({ cell: batchLabel, value: (p) => p.maxBatch.exact }),
  run: figure({ cell: (p) => String(shownDecode(p).batch), value: (p) => shownDecode(p).batch }),
  time: ofStep('secondsPerStep', (d) => timeLabel(d.secondsPerStep)),
  rate: ofStep('tokensPerSecond', rateLabel),
  published: figure({ cell: asPublishedLabel, value: (p) => p.asPublished?.tokensPerSecond.estimate }),
  usd: ofStep('usdPerMillionTokens', usdLabel),
  keeps: figure({ cell: (p) => keepsLabel(p), value: (p) => p.qualityKept?.share }),
  kernels: words(kernelsLabel),
  paysAt: figure({ cell: breakEvenLabel, value: (p) => p.breakEven?.estimate }),
  limit: words(({ limitedBy }) => LIMITS[limitedBy].label ?? LIMITS[limitedBy].words),
} as const satisfies Record<string, Field>;

/** A column of a table in text or Markdown. */
export const titled = (title: string, field: Omit<Field, 'value'>): Column<Plan> => ({ ...field, title });

/** What the column `run` holds. */
export const runWords = ({ settings: { targets, batch } }: PlanReport): string =>
  targets.secondsPerToken !== null
    ? 'the largest batch that meets --tpot'
    : batch !== null
      ? 'the batch asked for'
      : 'the smallest batch with 90 % of its best throughput';

/** Why a report has no row. */
export const nothingLeft = ({ removed }: Pick<PlanReport, 'removed'>): string =>
  removed.some(({ target }) => target !== 'memory') ? 'No combination meets the targets' : 'Nothing fits';

/** Most of a time is priced by these kernels. */
const MOST = 0.5;

/**
 * Whose kernels a row's time is: `vLLM 0.24.0` where that stack runs the plan; in parentheses where it has the kernels
 * and does not run the plan; `attainable` where nobody has measured such kernels.
 */
export function kernelsLabel(p: Plan): string {
  const d = shownDecode(p);
  if (!d.pricedBy || d.evidence === null) return '–';
  if (isEstimate(d.evidence)) return d.evidence;
  const by = Object.entries(d.pricedBy).find(([, share]) => share >= MOST)?.[0] ?? 'several';
  return p.servedBy !== null || by === 'lla-sim' ? by : `(${by})`;
}

/** Share of the attainable rate from which a row without measured kernels beats the full cache. */
function breakEvenLabel({ breakEven }: Plan): string {
  if (!breakEven) return '';
  return breakEven.cannot ? 'cannot' : `${Math.ceil(breakEven.estimate * 100)} %`;
}

/** The metric of the quality column: the one a target names, else GSM8K, else the first that is published. */
export function shownMetric(report: PlanReport): string {
  const target = report.settings.targets.minimums[0]?.metric;
  if (target) return target;
  const metrics = new Set(report.plans.flatMap((p) => p.quality.map((q) => q.metric)));
  if (metrics.has('gsm8k') || metrics.size === 0) return 'gsm8k';
  return metrics.has('mc-avg') ? 'mc-avg' : ([...metrics][0] as string);
}

/** The quality column of a report: the published metric that is shown, or the KL that was measured here. */
export function qualityColumn(report: PlanReport): Field & { readonly title: string } {
  if (report.fidelity)
    return {
      align: 'right',
      title: `KL, nats (${HERE})`,
      cell: (p) => klLabel(p.measured?.kl ?? null),
      value: (p) => p.measured?.kl?.estimate ?? null,
    };
  const metric = shownMetric(report);
  return {
    align: 'right',
    title: metric,
    cell: (p) => qualityLabel(p, metric, report.contextTokens),
    value: (p) => p.quality.find((q) => q.metric === metric)?.value ?? null,
  };
}

/** `0.800`, `0.590–0.800` where tables differ, `unknown` where nothing is published. */
export function qualityLabel(p: Plan, metric: string, contextTokens = Infinity): string {
  const values = p.quality
    .filter((q) => q.metric === metric && (q.contextTokens ?? 0) <= contextTokens)
    .map((q) => q.value);
  if (values.length === 0) return 'unknown';
  const low = Math.min(...values).toFixed(3);
  const high = Math.max(...values).toFixed(3);
  return low === high ? low : `${low.replace(/0$/, '')}–${high.replace(/0$/, '')}`;
}

/** What limits a batch, in full and as a narrow table abbreviates it. */
const LIMITS: Record<LimitedBy, { readonly words: string; readonly label?: string }> = {
  'kv-cache': { words: 'KV cache', label: 'KV' },
  workspace: { words: 'workspace', label: 'work' },
  'in-flight': { words: 'state of sequences', label: 'state' },
  weights: { words: 'weights' },
  'codec-parameters': { words: 'codec parameters', label: 'codec' },
  prefill: { words: 'prefill' },
};

export const limitInFull = ({ limitedBy }: Plan): string => LIMITS[limitedBy].words;

/** The ratio that the paper puts forward (Table memory), with what it loses beside it. */
const PAPER_RATIO = 'lla-21.33x';

/**
 * The rows of a short table, at most MOST_ROWS, in this order of right: the full cache, what the answer names, the
 * paper's ratio and its eviction, Pareto-optimal ones, then those that serve most users where they are run. They stand
 * in the report's order.
 */
export function shortList(report: PlanReport): Plan[] {
  if (report.plans.length <= MOST_ROWS) return [...report.plans];
  // What the answer names may be another path than the surest one of its codec.
  const namedIds = choicesOf(report.answer).map((c) => c.planId);
  const surest = new Set(representatives(report.plans));
  // Such paths of a codec are left out where a target removed another path of it.
  const removed = new Set(report.removed.map(({ id }) => id.split('/')[0]));
  const isRest = (p: Plan): boolean => isOtherThanPublished(p) && removed.has(p.id.split('/')[0]);
  const rows = report.plans.filter((p) => (surest.has(p) && !isRest(p)) || namedIds.includes(p.id));
  const rights: readonly ((p: Plan) => boolean)[] = [
    isFullCache,
    (p) => namedIds.includes(p.id),
    (p) => p.codec.label === PAPER_RATIO && p.eviction === null,
    (p) => p.beside === true,
    // Where quality was measured here, rows of which it is known.
    (p) => Boolean(p.measured),
    (p) => p.pareto,
  ];
  const right = (p: Plan): number => {
    const found = rights.findIndex((has) => has(p));
    return found === -1 ? rights.length : found;
  };
  const users = (p: Plan): number => (p.maxBatch.exact < 1 ? 0 : shownDecode(p).batch || p.maxBatch.exact);
  const chosen = new Set([...rows].sort((a, b) => right(a) - right(b) || users(b) - users(a)).slice(0, MOST_ROWS));
  return rows.filter((p) => chosen.has(p));
}

/** Marks a score that was generated with two passes a token. */
export const TWO_PASSES = '†';

/**
 * `93 %† math500, others 58 %`: the worst published score that counts at this context, of the checkpoint that is named
 * and of the others; `0 % passkey, at 64k` where it was measured at a shorter one.
 * @param short without the task
 */
export function keepsLabel({ qualityKept }: Pick<Plan, 'qualityKept'>, short = false): string {
  if (!qualityKept) return 'unknown';
  if (qualityKept.metric === 'all') return '100 %';
  const { share, metric, value, atMost, contextTokens, others, twoPasses, times } = qualityKept;
  if (times) return `lost (${value} × the error)`;
  const at = atMost && !short ? `, at ${formatTokens(contextTokens ?? 0)}` : '';
  const worst = shareText(others[0]?.share ?? share);
  return (
    `${shareText(share)}${twoPasses ? TWO_PASSES : ''}${short ? '' : ` ${metric}`}${at}` +
    (worst === shareText(share) ? '' : `, others ${worst}`)
  );
}

/**
 * Tokens a second with kernels of latents as they have been built: `190`; `none` where nobody has built any, `–`
 * without a price.
 */
export function asPublishedLabel(p: Plan | null): string {
  if (p?.asPublished) return rateLabel(p.asPublished);
  if (!p || !LATENT_KINDS.includes(p.codec.kind) || savesNothing(p)) return '';
  return isBuilt(p) ? '–' : 'none';
}
