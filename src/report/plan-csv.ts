/** A plan report as CSV (one row a plan, base units) and as Markdown. */
import { pathLabel } from '../plan/words/names.js';
import type { Plan, PlanReport } from '../plan/types.js';
import { evictionLabel } from '../eviction/policy.js';
import { formatBytes, formatDecimalBytes, formatTokens } from '../numbers/units.js';
import {
  asPublishedLabel,
  batchLabel,
  breakEvenLabel,
  keepsLabel,
  kernelsLabel,
  LIMIT_LABEL,
  qualityColumn,
  rateLabel,
} from './plan-rows.js';
import { shownDecode, timeColumn } from '../plan/words/words.js';
import { VERSION } from '../version.js';
import { answerLines } from './text/answer-text.js';

type Cell = string | number | boolean | null | undefined;

/** What tells the rows of one run from those of another, so that files can be stacked. */
const RUN_COLUMNS: readonly (readonly [string, (r: PlanReport) => Cell])[] = [
  ['version', () => VERSION],
  ['model', (r) => r.model.name],
  ['device', (r) => r.device.id ?? r.device.name],
  ['vramBytes', (r) => r.device.vramBytes],
  ['gpus', (r) => r.settings.gpus],
  ['stack', (r) => r.device.stack],
  ['contextTokens', (r) => r.contextTokens],
];

const CSV_COLUMNS: readonly (readonly [string, (p: Plan) => Cell])[] = [
  ['id', (p) => p.id],
  ['codec', (p) => p.codec.kind],
  ['rankK', (p) => p.codec.rankK],
  ['rankV', (p) => p.codec.rankV],
  ['ratio', (p) => p.codec.ratio],
  ['modelRatio', (p) => p.codec.modelRatio],
  ['storedRatio', (p) => p.codec.storedRatio],
  ['cacheType', (p) => p.cacheType],
  ['path', (p) => p.path],
  ['variant', (p) => p.variant],
  ['eviction', (p) => evictionLabel(p.eviction)],
  ['weightsBytes', (p) => p.memory.weightsBytes],
  ['codecBytes', (p) => p.memory.codecBytes],
  ['reservedBytes', (p) => p.memory.reservedBytes],
  ['workspaceBytes', (p) => p.memory.workspaceBytes],
  ['kvBytesPerToken', (p) => p.memory.kvBytesPerToken],
  ['kvBytesPerSequence', (p) => p.memory.kvBytesPerSequence],
  ['inFlightBytesPerSequence', (p) => p.memory.inFlightBytesPerSequence],
  ['kvBytesAt1M', (p) => p.memory.kvBytesAt1M],
  ['prefillPeakBytes', (p) => p.memory.prefillPeakBytes],
  ['secondsPerPrompt', (p) => p.prefill.secondsPerPrompt?.estimate],
  ['secondsPerPromptLow', (p) => p.prefill.secondsPerPrompt?.low],
  ['secondsPerPromptHigh', (p) => p.prefill.secondsPerPrompt?.high],
  ['promptEvidence', (p) => p.prefill.evidence],
  ['maxBatchExact', (p) => p.maxBatch.exact],
  ['maxBatchOnGrid', (p) => p.maxBatch.onGrid],
  ['limitedBy', (p) => p.limitedBy],
  ['decodeBatch', (p) => shownDecode(p).batch],
  ['secondsPerStep', (p) => shownDecode(p).secondsPerStep?.estimate],
  ['secondsPerStepLow', (p) => shownDecode(p).secondsPerStep?.low],
  ['secondsPerStepHigh', (p) => shownDecode(p).secondsPerStep?.high],
  ['tokensPerSecond', (p) => shownDecode(p).tokensPerSecond?.estimate],
  ['tokensPerSecondLow', (p) => shownDecode(p).tokensPerSecond?.low],
  ['tokensPerSecondHigh', (p) => shownDecode(p).tokensPerSecond?.high],
  ['tokensPerSecondPerUser', (p) => p.knee?.tokensPerSecondPerUser?.estimate],
  ['evidence', (p) => shownDecode(p).evidence],
  ['kernels', (p) => kernelsLabel(p)],
  ['servedBy', (p) => p.servedBy],
  ['breakEvenShare', (p) => p.breakEven?.estimate],
  ['asPublishedTokensPerSecond', (p) => p.asPublished?.tokensPerSecond.estimate],
  ['asPublishedTokensPerSecondLow', (p) => p.asPublished?.tokensPerSecond.low],
  ['asPublishedTokensPerSecondHigh', (p) => p.asPublished?.tokensPerSecond.high],
  ['usdPerMillionTokens', (p) => shownDecode(p).usdPerMillionTokens?.estimate],
  ['usdPerMillionTokensLow', (p) => shownDecode(p).usdPerMillionTokens?.low],
  ['usdPerMillionTokensHigh', (p) => shownDecode(p).usdPerMillionTokens?.high],
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
  ['klMeasured', (p) => p.measured?.kl?.estimate],
  ['klMeasuredLow', (p) => p.measured?.kl?.low],
  ['klMeasuredHigh', (p) => p.measured?.kl?.high],
  ['recallMeasured', (p) => p.measured?.recall?.estimate],
  ['recallMeasuredLow', (p) => p.measured?.recall?.low],
  ['recallMeasuredHigh', (p) => p.measured?.recall?.high],
];

/** Text that a spreadsheet would take for a formula is preceded by an apostrophe; quotes are doubled. */
export function csvCell(value: Cell): string {
  if (value === null || value === undefined) return '';
  if (typeof value !== 'string') return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** The lowest or highest published GSM8K. */
function extreme({ quality }: Plan, of: (...values: number[]) => number): number | null {
  const values = quality.filter((q) => q.metric === 'gsm8k').map((q) => q.value);
  return values.length === 0 ? null : of(...values);
}

/** Rows of one or several reports, one value a cell, base units. */
export function planCsv(...reports: readonly PlanReport[]): string {
  const columns = [...CSV_COLUMNS, ...(reports.some((r) => r.fidelity) ? MEASURED_COLUMNS : [])];
  const lines = [[...RUN_COLUMNS, ...columns].map(([name]) => name).join(',')];
  for (const r of reports)
    for (const p of r.plans)
      lines.push(
        [...RUN_COLUMNS.map(([, cell]) => cell(r)), ...columns.map(([, cell]) => cell(p))].map(csvCell).join(','),
      );
  return `${lines.join('\n')}\n`;
}

/** Escapes what Markdown or HTML inside it would interpret. */
export const markdownText = (text: string): string =>
  text
    .replace(/[\\`*_{}[\]<>#|!&]/g, (ch) =>
      ch === '<' ? '&lt;' : ch === '>' ? '&gt;' : ch === '&' ? '&amp;' : `\\${ch}`,
    )
    .replace(/\s+/g, ' ');

export function planMarkdown(report: PlanReport): string {
  const quality = qualityColumn(report);
  const each = report.settings.gpus > 1 ? '/GPU' : '';
  const step = timeColumn(report.plans.map((p) => shownDecode(p).secondsPerStep));
  const first = timeColumn(report.plans.map((p) => p.prefill.secondsPerPrompt));
  const head = [
    '',
    'codec',
    'path',
    'eviction',
    `KV/token${each}`,
    `KV at 1M${each}`,
    'max batch (grid)',
    'run',
    `${step.unit}/token (interval)`,
    'tok/s',
    'as published',
    `first token ${first.unit} (interval)`,
    'keeps',
    quality.title,
    'limit',
    'kernels',
    'pays at',
  ];
  const lines = [
    `## ${markdownText(report.model.name)} on ${markdownText(report.device.name)}, ${formatDecimalBytes(report.device.vramBytes)}, ${formatTokens(report.contextTokens)} tokens`,
    '',
    ...(report.scenario.name === null
      ? []
      : [
          `**${markdownText(report.scenario.name)}**${report.scenario.description === null ? '' : `: ${markdownText(report.scenario.description)}`}`,
          '',
        ]),
    `| ${head.join(' | ')} |`,
    `|${head.map((_, i) => (i >= 4 && i <= 12 ? '--:' : '---')).join('|')}|`,
  ];
  for (const [i, p] of report.plans.entries()) {
    const d = shownDecode(p);
    const cells = [
      p.id === report.answer.deploy?.planId
        ? '**>**'
        : p.id === report.answer.upside?.planId
          ? '**+**'
          : p.pareto
            ? '\\*'
            : '',
      p.id.split('/')[0] as string,
      pathLabel(p),
      evictionLabel(p.eviction),
      formatBytes(p.memory.kvBytesPerToken),
      formatBytes(p.memory.kvBytesAt1M),
      batchLabel(p),
      String(d.batch),
      step.cells[i]!,
      rateLabel(d),
      asPublishedLabel(p),
      first.cells[i]!,
      keepsLabel(p),
      quality.cell(p),
      LIMIT_LABEL[p.limitedBy],
      kernelsLabel(p),
      breakEvenLabel(p),
    ];
    lines.push(`| ${cells.join(' | ')} |`);
  }
  lines.push(
    '',
    '**>** deploy, **+** upside, \\* Pareto-optimal. Times are at the operating batch. As published: tok/s with kernels of latents as fast as those that exist.',
  );
  lines.push('', `**${markdownText(report.answer.question)}**`);
  for (const { label, text } of answerLines(report)) lines.push('', `**${label}:** ${markdownText(text)}`);
  if (report.warnings.length > 0) lines.push('', ...report.warnings.map((w) => `- ${markdownText(w.message)}`));
  return `${lines.join('\n')}\n`;
}
