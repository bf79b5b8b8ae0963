/** The first page of a report as data: the plans that a decision is about, what they lose, what to check. */
import { groups as groupBy } from 'd3-array';
import { LATENT_KINDS } from '../codecs/registry.js';
import type { Interval } from '../cost/evidence.js';
import { best } from '../numbers/best.js';
import { contradictedMetrics } from '../plan/evaluate/evaluate.js';
import { planName, shownDecode, timeColumn, timeWords } from '../plan/words/words.js';
import type { Choice, Warning } from '../plan/answer-types.js';
import type { Plan, PlanReport, Score } from '../plan/types.js';
import { present } from '../present.js';
import { perMillion } from '../serving/price/usd.js';
import { formatCount, formatDecimalBytes, formatNumber, formatTokens } from '../numbers/units.js';
import { hadWords, upsideLabel, valueWords } from './text/answer-text.js';
import { isFullCache } from '../plan/decide/representatives.js';
import { asPublishedLabel, kernelsLabel } from './plan-rows.js';
import { left, right, shareText, type Column } from './text/text.js';
import { neededOf } from './simulation-words.js';
import type { Simulated } from './simulation.js';
import type { View } from './view.js';

/** A plan that the answer names, and as what. */
export interface DecisionRow {
  readonly role: string;
  readonly choice: Choice;
  readonly plan: Plan;
}

/** The role of the fastest plan whose scores fail. */
export const FAILS = 'loses too much';

/** The role of a plan that would be the upside, were its kernels surer or its workload another. */
const UNSURE = 'no upside';

/** What the answer names, in its order: deployed, the fastest that fits, upside, alternatives, one that fails. */
export function decisionRows(report: PlanReport): DecisionRow[] {
  const { answer } = report;
  const named: readonly (readonly [string, Choice | null])[] = [
    ['deploy', answer.deploy],
    ['fastest that fits', answer.fallback],
    ['upside', answer.upside],
    [UNSURE, answer.unsure],
    ...answer.alternatives.map((a) => [a.kind, a] as const),
    [FAILS, answer.fails],
  ];
  return named.flatMap(([role, choice]) => {
    const plan = choice && report.plans.find((p) => p.id === choice.planId);
    return choice && plan ? [{ role, choice, plan }] : [];
  });
}

/** Most plans in a picture: more bands cannot be told apart. */
const MOST_DRAWN = 3;

/**
 * The plans that pictures compare: deployed, upside and the full cache; where these are fewer than three, an
 * alternative. Without an answer, the plans that hold most.
 */
export function drawnPlans(report: PlanReport): Plan[] {
  const rows = decisionRows(report).filter((r) => r.role !== FAILS);
  const rank = (role: string): number => ['deploy', 'fastest that fits', 'upside', UNSURE].indexOf(role);
  const first = rows.filter((r) => rank(r.role) >= 0).map((r) => r.plan);
  const full = report.plans.find((p) => isFullCache(p) && p.maxBatch.exact >= 1);
  const others = rows.filter((r) => rank(r.role) < 0).map((r) => r.plan);
  return [...new Set(present([...first, full, ...others]))].slice(0, MOST_DRAWN);
}

/** Sequences at which pictures compare plans: those of the plan that the answer puts first, as far as all hold them. */
export function commonBatch(report: PlanReport): number {
  const [first] = decisionRows(report);
  const held = drawnPlans(report).map(({ maxBatch }) => Math.max(1, maxBatch.exact));
  return report.settings.batch ?? Math.min(first?.choice.batch ?? 1, ...held);
}

/** The sheet's table, a row a plan of the answer. */
export function sheetColumns(rows: readonly DecisionRow[]): Column<DecisionRow>[] {
  const step = timeColumn(rows.map(({ plan }) => shownDecode(plan).secondsPerStep));
  const first = timeColumn(rows.map(({ plan }) => plan.prefill.secondsToFirstToken));
  const around = (i: Interval | null, text: (n: number) => string): string =>
    i ? `${text(i.estimate)} (${text(i.low)}–${text(i.high)})` : '–';
  return [
    left('plan', ({ role, choice }) => `${role}: ${choice.name}`),
    right('fit', ({ plan }) => String(plan.maxBatch.exact)),
    right('run', ({ plan }) => String(shownDecode(plan).batch)),
    right(`a token, ${step.unit}`, (row) => step.cells[rows.indexOf(row)]!),
    right('tok/s a user', ({ plan: p }) => perUserLabel(shownDecode(p).secondsPerStep)),
    right('tok/s', ({ plan: p }) => around(shownDecode(p).tokensPerSecond, formatCount)),
    right('as published', ({ plan }) => asPublishedLabel(plan) || '–'),
    right(`first token, ${first.unit}`, (row) => first.cells[rows.indexOf(row)]!),
    right('$/M tokens', ({ plan: p }) => around(shownDecode(p).usdPerMillionTokens, formatNumber)),
    right('kernels', ({ plan }) => kernelsLabel(plan)),
  ];
}

const perUserLabel = (s: Interval | null): string => (s ? formatNumber(1 / s.estimate) : '–');

/** What a decision costs; the price of a GPU is the reader's. */
export function costWords({ report, fleet }: Pick<View, 'report' | 'fleet'>, simulated: Simulated | null): string {
  const { usdPerHour } = report.settings;
  if (usdPerHour === null) return 'No price of a GPU-hour was given: add --usd-per-hour and the table has dollars.';
  const { gpus, replicas } = boughtFor(report, fleet, simulated);
  const hour = usdPerHour * gpus;
  const of = replicas > 1 ? ` of ${replicas} replicas` : '';
  const all = gpus > 1 ? `${gpus} GPUs${of} at $${formatNumber(usdPerHour)} an hour each` : 'One GPU';
  const million = simulatedUsd(simulated, hour, replicas);
  return (
    `${all}: $${formatNumber(hour)} an hour, $${formatCount(hour * 730)} a month, busy or not. $/M tokens counts ` +
    'output tokens and the time of decoding alone, of so many sequences all the time; ' +
    (million === null
      ? 'prompts take time too.'
      : `as the workload was simulated, with its prompts, a million output tokens cost $${formatNumber(million)}.`)
  );
}

/** Dollars of a million output tokens of the workload; null where none was simulated. */
function simulatedUsd(simulated: Simulated | null, usdPerHour: number, replicas: number): number | null {
  const service = simulated?.fleet?.deploy ?? simulated?.fleet?.upside;
  if (service) return perMillion(usdPerHour / 3600, service.outputTokensPerSecond);
  const [served, run] = [simulated?.report, simulated?.report?.runs[0]];
  if (!served || !run || run.completed === 0) return null;
  // More replicas than were simulated answer all that comes; those that were simulated what they did answer.
  const { requestsPerSecond: comes } = served.workload;
  const tokensEach = run.estimate.total_output_tokens / run.completed;
  const tokens =
    replicas > served.server.replicas && comes !== null ? comes * tokensEach : run.estimate.output_throughput;
  return perMillion(usdPerHour / 3600, tokens);
}

/** Risks that a page has room for. */
const MOST_RISKS = 4;

/** Risks of the answer; where the workload was simulated, none of prompts as long as the table's sequences. */
export const shownRisks = ({ answer }: PlanReport, simulated: Simulated | null): readonly Warning[] =>
  answer.risks
    .filter(({ code }) => code !== 'prompts-between' || !(simulated?.report ?? simulated?.fleet))
    .slice(0, MOST_RISKS);

/** The GPUs of the answer: those of all users, of the rate of requests, or else of one replica. */
function boughtFor(
  { settings }: PlanReport,
  fleet: View['fleet'],
  simulated: Simulated | null,
): { readonly gpus: number; readonly replicas: number } {
  const [service, rows, served] = [simulated?.fleet, fleet?.fleet, simulated?.report];
  const row = service?.deploy ?? service?.upside ?? rows?.deploy ?? rows?.upside ?? rows?.cheapest;
  return row ?? (served ? neededOf(served) : { gpus: settings.gpus, replicas: 1 });
}

export interface LossTable {
  /** Names of the plans compared. */
  readonly plans: readonly string[];
  readonly rows: readonly {
    readonly task: string;
    readonly teacher: number;
    /** Score of each plan and its share of the uncompressed model's; null where nothing is published. */
    readonly scores: readonly (Score | null)[];
  }[];
  /** Tasks that were left out because the table has no more room. */
  readonly more: number;
}

const taskOf = (s: Score): string =>
  s.contextTokens === null ? s.metric : `${s.metric} at ${formatTokens(s.contextTokens)}`;

/** Scores by task of the plans that an answer names and that lose something, worst first. Null where none does. */
export function lossTable(report: PlanReport, most = 6): LossTable | null {
  const named = decisionRows(report).filter((r) => r.choice.qualityLost.length > 0);
  const plans = named.filter((r, i) => r.role !== FAILS && i < MOST_DRAWN);
  if (plans.length === 0) return null;
  const lost = plans.flatMap(({ choice }) => choice.qualityLost);
  const worst = groupBy(lost, taskOf)
    .map(([, scores]) => best(scores, (s) => -s.share)!)
    .sort((a, b) => a.share - b.share);
  return {
    plans: plans.map((r) => r.choice.name),
    rows: worst.slice(0, most).map((score) => ({
      task: taskOf(score),
      teacher: score.teacher,
      scores: plans.map((r) => r.choice.qualityLost.find((s) => taskOf(s) === taskOf(score)) ?? null),
    })),
    more: Math.max(0, worst.length - most),
  };
}

export const lossColumns = ({ plans }: LossTable): Column<LossTable['rows'][number]>[] => [
  left('task', (r) => r.task),
  right('uncompressed', (r) => String(r.teacher)),
  ...plans.map((name, i): Column<LossTable['rows'][number]> =>
    right(name, ({ scores }) => (scores[i] ? scoreCell(scores[i]) : 'unknown')),
  ),
];

/** `0.69 (93 %)`; measured here `0.92 (0.89–0.95), 89 %`: the share is that of the low end. */
const scoreCell = (s: Score): string =>
  s.interval ? `${valueWords(s)}, ${shareText(s.share)}` : `${valueWords(s)} (${shareText(s.share)})`;

/** What to check before money is spent (docs/trust.md), answered for the plans of this report as far as it can. */
export function beforeSigning(report: PlanReport): string[] {
  const { answer } = report;
  const [first] = decisionRows(report);
  if (!first) return [];
  const { plan, choice } = first;
  const d = shownDecode(plan);
  const { upside } = answer;
  const disputed = contradictedMetrics(plan.quality);
  const runnable = plan.servedBy !== null || report.device.stack === 'lla-sim';
  const runs =
    plan.servedBy !== null
      ? `${plan.servedBy} runs it`
      : report.device.stack === 'lla-sim'
        ? 'lla-sim’s own kernels ran it'
        : 'no server is known to run it: its kernels have to be written and tuned first';
  const room = plan.prefill.fits
    ? `${plan.prefill.batchBesidePrefill} fit beside one prompt`
    : 'a prompt does not fit beside it';
  return present([
    `Kernels: the time of ${choice.name} is ${d.evidence ?? 'not known'}; ${runs}.`,
    d.secondsPerStep &&
      `Measure: ${runnable ? '' : 'once these kernels exist, '}run ${d.batch} sequences of ` +
        `${formatTokens(report.contextTokens)} tokens on your machine and expect ${timeWords(d.secondsPerStep)} ` +
        'a token. One hour of this is worth more than this page.',
    `Memory: ${plan.maxBatch.exact} fit beside ${keptWords(report.settings, plan.memory.reservedBytes)}; ${room}. ` +
      `Set --reserve and --utilization to what your server's log says.`,
    plan.measured
      ? `Quality: measured here on ${report.fidelity?.model.name ?? ''}, up to ` +
        `${report.fidelity?.contextTokens ?? 0} tokens (${plan.measured.id}). Score it on your task.`
      : choice.qualityLost.length > 0
        ? 'Quality: the scores are those of one published ' +
          `checkpoint${choice.checkpoint === null ? '' : ` (${choice.checkpoint})`}` +
          `${disputed.length > 0 ? `, and tables differ for ${disputed.join(', ')}` : ''}. Score yours on your task.`
        : isFullCache(plan)
          ? 'Quality: that of the uncompressed model; whether it is enough for your task is not asked here.'
          : `Quality: nothing that counts at this context is ${report.fidelity ? 'in that file' : 'published'} for ` +
            `${planName(plan)}.`,
    upside &&
      (upsideLabel(report) === 'Estimate'
        ? `Estimate: the time of ${upside.name} is not that of a server ` +
          `(${answer.reason ?? 'none was measured there'}). Do not buy by it.`
        : `Upside: ${kernelsWords(report, upside)}` +
          `${upside.checkpoint === null ? '' : `; it also needs the checkpoint of ${upside.checkpoint}`}. Do not ` +
          'buy by it.'),
  ]);
}

/** Why an upside cannot be deployed: `no server has kernels of lla-4x; published ones had 7–14 % of …`. */
function kernelsWords({ plans }: PlanReport, { planId, name }: Choice): string {
  const plan = plans.find((p) => p.id === planId);
  if (plan?.asPublished)
    return `no server has kernels of ${name}; published ones had ${hadWords(plan.asPublished)} speed`;
  return plan && LATENT_KINDS.includes(plan.codec.kind)
    ? `${name} needs kernels that nobody has published`
    : `no kernels of ${name} were measured`;
}

/** What is kept of the memory: by a server's rules, or a plain reserve. */
function keptWords({ server, utilization, reserveBytes }: PlanReport['settings'], reservedBytes: number): string {
  if (!server) return `a reserve of ${formatDecimalBytes(reservedBytes)}, and a server keeps more`;
  const left = Number((100 * (1 - utilization)).toFixed(1));
  const own = `${formatDecimalBytes(reserveBytes)} (${server.parts.map((p) => p.what).join(', ')})`;
  return `what ${server.server} keeps by default: ${left} % of the memory, and ${own}`;
}
