/** A plan report as CSV (one row a plan, base units) and as Markdown. */
import type { Plan, PlanReport } from '../plan/types.js';
import { evictionLabel } from '../eviction/policy.js';
import { formatBytes, formatDecimalBytes, formatTokens } from '../units.js';
import {
  batchLabel,
  breakEvenLabel,
  kernelsLabel,
  LIMIT_LABEL,
  contradictionsAbout,
  pathLabel,
  qualityLabel,
  rateLabel,
  shownDecode,
  shownMetric,
  timeLabel,
} from './plan-rows.js';

type Cell = string | number | boolean | null | undefined;

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
  ['evidence', (p) => shownDecode(p).evidence],
  ['kernels', (p) => kernelsLabel(p)],
  ['servedBy', (p) => p.servedBy],
  ['breakEvenShare', (p) => p.breakEven?.estimate],
  ['usdPerMillionTokens', (p) => shownDecode(p).usdPerMillionTokens?.estimate],
  ['gsm8k', (p) => qualityLabel(p, 'gsm8k')],
  ['reliableRetrievalTokens', (p) => p.reliableRetrieval?.tokens],
  ['pareto', (p) => p.pareto],
  ['marks', (p) => p.marks.map((m) => m.code).join(' ')],
];

/** Text that a spreadsheet would take for a formula is preceded by an apostrophe; quotes are doubled. */
export function csvCell(value: Cell): string {
  if (value === null || value === undefined) return '';
  if (typeof value !== 'string') return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export function planCsv(report: PlanReport): string {
  const lines = [CSV_COLUMNS.map(([name]) => name).join(',')];
  for (const p of report.plans) lines.push(CSV_COLUMNS.map(([, cell]) => csvCell(cell(p))).join(','));
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
  const metric = shownMetric(report);
  const each = report.settings.gpus > 1 ? '/GPU' : '';
  const head = [
    '',
    'codec',
    'path',
    'eviction',
    `KV/token${each}`,
    `KV at 1M${each}`,
    'max batch (grid)',
    'ms/token (interval)',
    'tok/s',
    'first token ms (interval)',
    metric,
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
    `|${head.map((_, i) => (i >= 4 && i <= 10 ? '--:' : '---')).join('|')}|`,
  ];
  for (const p of report.plans) {
    const d = shownDecode(p);
    const cells = [
      p.id === report.recommendation?.planId ? '**>**' : p.pareto ? '\\*' : '',
      p.id.split('/')[0] as string,
      pathLabel(p),
      evictionLabel(p.eviction),
      formatBytes(p.memory.kvBytesPerToken),
      formatBytes(p.memory.kvBytesAt1M),
      batchLabel(p),
      timeLabel(d.secondsPerStep),
      rateLabel(d),
      timeLabel(p.prefill.secondsPerPrompt),
      qualityLabel(p, metric, report.contextTokens),
      LIMIT_LABEL[p.limitedBy],
      kernelsLabel(p),
      breakEvenLabel(p),
    ];
    lines.push(`| ${cells.join(' | ')} |`);
  }
  lines.push('', '**>** recommended, \\* Pareto-optimal.');
  if (report.recommendation) {
    lines.push('', `**Recommended:** ${markdownText(report.recommendation.text)}`);
    if (report.recommendation.alternative)
      lines.push('', `**Larger:** ${markdownText(report.recommendation.alternative.text)}`);
    if (report.recommendation.deployable)
      lines.push('', `**Runs today:** ${markdownText(report.recommendation.deployable.text)}`);
  }
  const notes = [
    ...report.notes,
    ...contradictionsAbout(report, metric).map((c) => `published figures disagree on ${c.subject}: ${c.explanation}`),
  ];
  if (notes.length > 0) lines.push('', ...notes.map((n) => `- ${markdownText(n)}`));
  return `${lines.join('\n')}\n`;
}
