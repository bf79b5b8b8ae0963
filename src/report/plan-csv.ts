/** A plan report as CSV (one row a plan, base units) and as Markdown. */
import type { Interval } from '../cost/evidence.js';
import type { Plan, PlanReport } from '../plan/types.js';
import { evictionLabel } from '../eviction/policy.js';
import { formatDecimalBytes, formatTokens } from '../numbers/units.js';
import { deviceName, FIELDS, kernelsLabel, qualityColumn, titled } from './plan-rows.js';
import { guessWords, shownDecode, timeColumn } from '../plan/words/words.js';
import type { SustainedRate } from '../serving/types.js';
import { VERSION } from '../version.js';
import { shownOf } from './simulation-words.js';
import { csvTable, markdownTable, markdownText, type Cell, type CsvColumn } from './tables.js';
import { answerLines, upsideLabel } from './text/answer-text.js';
import { left, right } from './text/text.js';

/** What tells the rows of one run from those of another, so that files can be stacked. */
const RUN_COLUMNS: readonly CsvColumn<PlanReport>[] = [
  ['version', () => VERSION],
  ['model', (r) => r.model.name],
  ['device', deviceName],
  ['vramBytes', (r) => r.device.vramBytes],
  ['gpus', (r) => r.settings.gpus],
  ['stack', (r) => r.device.stack],
  ['contextTokens', (r) => r.contextTokens],
];

/** An estimate and the ends of its interval. */
const ends = (name: string, of: (p: Plan) => Interval | null | undefined): CsvColumn<Plan>[] => [
  [name, (p) => of(p)?.estimate],
  [`${name}Low`, (p) => of(p)?.low],
  [`${name}High`, (p) => of(p)?.high],
];

/** Figures of a part of the plan under their own names. */
const under = <K extends 'codec' | 'memory'>(part: K, names: readonly (string & keyof Plan[K])[]): CsvColumn<Plan>[] =>
  names.map((name) => [name, (p) => p[part][name] as Cell]);

const CSV_COLUMNS: readonly CsvColumn<Plan>[] = [
  ['id', (p) => p.id],
  ['codec', (p) => p.codec.kind],
  ...under('codec', ['rankK', 'rankV', 'ratio', 'modelRatio', 'storedRatio']),
  ['cacheType', (p) => p.cacheType],
  ['path', (p) => p.path],
  ['variant', (p) => p.variant],
  ['eviction', (p) => evictionLabel(p.eviction)],
  ...under('memory', ['weightsBytes', 'codecBytes', 'reservedBytes', 'workspaceBytes', 'kvBytesPerToken']),
  ...under('memory', ['kvBytesPerSequence', 'inFlightBytesPerSequence', 'kvBytesAt1M', 'prefillPeakBytes']),
  ...ends('secondsPerPrompt', (p) => p.prefill.secondsPerPrompt),
  ...ends('secondsToFirstToken', (p) => p.prefill.secondsToFirstToken),
  ['promptEvidence', (p) => p.prefill.evidence],
  ['maxBatchExact', (p) => p.maxBatch.exact],
  ['maxBatchOnGrid', (p) => p.maxBatch.onGrid],
  ['limitedBy', (p) => p.limitedBy],
  ['decodeBatch', (p) => shownDecode(p).batch],
  ...ends('secondsPerStep', (p) => shownDecode(p).secondsPerStep),
  ...ends('tokensPerSecond', (p) => shownDecode(p).tokensPerSecond),
  ['tokensPerSecondPerUser', (p) => p.knee?.tokensPerSecondPerUser?.estimate],
  ['evidence', (p) => shownDecode(p).evidence],
  ['kernels', (p) => kernelsLabel(p)],
  ['servedBy', (p) => p.servedBy],
  ['breakEvenShare', (p) => p.breakEven?.estimate],
  ...ends('asPublishedTokensPerSecond', (p) => p.asPublished?.tokensPerSecond),
  ...ends('usdPerMillionTokens', (p) => shownDecode(p).usdPerMillionTokens),
  ['gsm8kLow', (p) => extreme(p, Math.min)],
  ['gsm8kHigh', (p) => extreme(p, Math.max)],
  ['worstScoreShare', (p) => p.qualityKept?.share],
  ['worstScoreMetric', (p) => p.qualityKept?.metric],
  ['checkpoint', (p) => p.qualityKept?.checkpoint],
  ['worstShareOfOtherCheckpoints', (p) => p.qualityKept?.others[0]?.share],
  ['reliableRetrievalTokens', (p) => p.reliableRetrieval?.tokens],
  ['pareto', (p) => p.pareto],
  ['marks', (p) => p.marks.map((m) => m.code).join(' ')],
];

/** Beside the others where quality was measured (`--fidelity`). */
const MEASURED_COLUMNS: typeof CSV_COLUMNS = [
  ...ends('klMeasured', (p) => p.measured?.kl),
  ...ends('recallMeasured', (p) => p.measured?.recall),
];

/** The lowest or highest published GSM8K. */
function extreme({ quality }: Plan, of: (...values: number[]) => number): number | null {
  const values = quality.filter((q) => q.metric === 'gsm8k').map((q) => q.value);
  return values.length === 0 ? null : of(...values);
}

/** Rows of one or several reports, one value a cell, base units. */
export function planCsv(...reports: readonly PlanReport[]): string {
  const columns = [...CSV_COLUMNS, ...(reports.some((r) => r.fidelity) ? MEASURED_COLUMNS : [])];
  type Row = { readonly report: PlanReport; readonly plan: Plan };
  return csvTable<Row>(
    [
      ...RUN_COLUMNS.map(([name, cell]): CsvColumn<Row> => [name, ({ report }) => cell(report)]),
      ...columns.map(([name, cell]): CsvColumn<Row> => [name, ({ plan }) => cell(plan)]),
    ],
    reports.flatMap((report) => report.plans.map((plan) => ({ report, plan }))),
  );
}

/** Sustained rates, a row a candidate. */
const RATES: readonly CsvColumn<SustainedRate>[] = [
  ['id', (s) => s.id],
  ['served_by', (s) => s.servedBy],
  ['requests_per_second_low', (s) => s.requestsPerSecond.low],
  ['requests_per_second', (s) => s.requestsPerSecond.estimate],
  ['requests_per_second_high', (s) => s.requestsPerSecond.high],
  ['replicas', (s) => s.replicasFor?.replicas.high],
  ['usd_per_million_output_tokens', (s) => s.usdPerMillionOutputTokens?.estimate],
  ['missed_first', (s) => s.missedFirst],
  ['limited_by', (s) => s.limitedBy],
  ['p99_ttft_ms', (s) => s.atEstimate && shownOf(s.atEstimate, 'p99', 'ttft')],
  ['p99_tpot_ms', (s) => s.atEstimate && shownOf(s.atEstimate, 'p99', 'tpot')],
  ['output_throughput', (s) => (s.atEstimate ? s.outputTokensPerSecond : '')],
];

export const ratesCsv = (candidates: readonly SustainedRate[]): string => csvTable(RATES, candidates);

/** The rows as a Markdown table. */
export function planRowsMarkdown(report: PlanReport, plans: readonly Plan[] = report.plans): string[] {
  const quality = qualityColumn(report);
  const each = report.settings.gpus > 1 ? '/GPU' : '';
  const step = timeColumn(plans.map((p) => shownDecode(p).secondsPerStep));
  const first = timeColumn(plans.map((p) => p.prefill.secondsToFirstToken));
  const cellOf =
    ({ cells }: { readonly cells: readonly string[] }) =>
    (p: Plan): string =>
      cells[plans.indexOf(p)]!;
  return markdownTable<Plan>(
    [
      left<Plan>('', ({ id, pareto }) =>
        id === report.answer.deploy?.planId
          ? '**>**'
          : id === report.answer.upside?.planId
            ? '**+**'
            : pareto
              ? '\\*'
              : '',
      ),
      left<Plan>('codec', (p) => p.id.split('/')[0] as string),
      titled('path', FIELDS.path),
      titled('eviction', FIELDS.eviction),
      titled(`KV/token${each}`, FIELDS.kvToken),
      titled(`KV at 1M${each}`, FIELDS.kvMillion),
      titled('max batch (grid)', FIELDS.batch),
      titled('run', FIELDS.run),
      right(`${step.unit}/token (interval)`, cellOf(step)),
      titled('tok/s', FIELDS.rate),
      ...(report.settings.usdPerHour === null ? [] : [titled('$/Mtok', FIELDS.usd)]),
      titled('as published', FIELDS.published),
      right(`first token ${first.unit} (interval)`, cellOf(first)),
      titled('keeps', FIELDS.keeps),
      { ...quality, align: 'left' },
      titled('limit', FIELDS.limit),
      titled('kernels', FIELDS.kernels),
      { ...titled('pays at', FIELDS.paysAt), align: 'left' },
    ],
    plans,
    (text) => text,
  );
}

export const planTitleMarkdown = ({ model, device, contextTokens }: PlanReport): string =>
  `## ${markdownText(model.name)} on ${markdownText(device.name)}, ${formatDecimalBytes(device.vramBytes)}, ` +
  `${formatTokens(contextTokens)} tokens`;

export function planMarkdown(report: PlanReport): string {
  const { name, description } = report.scenario;
  const about = description === null ? '' : `: ${markdownText(description)}`;
  const rows = planRowsMarkdown(report);
  const lines = [
    planTitleMarkdown(report),
    '',
    ...(name === null ? [] : [`**${markdownText(name)}**${about}`, '']),
    ...rows,
    '',
    `**>** deploy, **+** ${upsideLabel(report).toLowerCase()}, \\* Pareto-optimal. Times are at the operating ` +
      ['batch.', AS_PUBLISHED, ...guessWords(rows)].join(' '),
    '',
    `**${markdownText(report.answer.question)}**`,
    ...answerLines(report).flatMap(({ label, text }) => ['', `**${label}:** ${markdownText(text)}`]),
    ...(report.warnings.length > 0 ? ['', ...report.warnings.map((w) => `- ${markdownText(w.message)}`)] : []),
  ];
  return `${lines.join('\n')}\n`;
}

const AS_PUBLISHED = 'As published: tok/s with kernels of latents as fast as those that exist.';
