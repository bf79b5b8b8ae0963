/** The report in Markdown, with its pictures beside it: the decision first, appendices last. */
import type { Plan, PlanReport } from '../plan/types.js';
import { guessWords, shownDecode, timeWords } from '../plan/words/words.js';
import { figuresText } from '../quality/contradictions.js';
import {
  beforeSigning,
  costWords,
  decisionRows,
  lossColumns,
  lossTable,
  sheetColumns,
  shownRisks,
} from './decision.js';
import { upsideLabel } from './text/answer-text.js';
import { fleetLines, questionWords, replicaWords } from './text/fleet-text.js';
import { decisionPicture } from './pictures/index.js';
import { batchOf, memoryColumns, PARTS } from './pictures/memory-breakdown.js';
import { EVIDENCE_WORDS, type Picture } from './pictures/picture.js';
import { planRowsMarkdown, planTitleMarkdown } from './plan-csv.js';
import { markdownTable, markdownText } from './tables.js';
import { limitInFull, nothingLeft, rateLabel, shortList } from './plan-rows.js';
import { firstPage, simulationMarkdown, type Simulated } from './simulation.js';
import { shownPlan, type View } from './view.js';

/** Everything after this heading is for reference. */
export const APPENDICES = '## Appendices';

/** @param drawn false where the pictures could not be written: then their words stand alone */
export function reportMarkdown(
  view: View,
  command: string,
  pictures: readonly Picture[],
  drawn: boolean,
  simulated: Simulated | null,
): string {
  const { report } = view;
  const decision = decisionPicture(pictures);
  const rows = planRowsMarkdown(report, shortList(report));
  return [
    `# ${markdownText(report.scenario.name ?? `${report.model.name} on ${report.device.name}`)}`,
    '',
    `**${markdownText(questionWords(view, simulated?.fleet))}**`,
    '',
    ...answer(view, simulated),
    ...(decision ? picture(decision, drawn) : []),
    ...numbers(report),
    ...losses(report),
    ...section(
      'Risk',
      shownRisks(report, simulated).map((r) => `- ${markdownText(r.message)}`),
    ),
    ...section('Cost', [markdownText(costWords(view, simulated))]),
    ...section(
      'Before you sign',
      beforeSigning(report).map((c, i) => `${i + 1}. ${markdownText(c)}`),
    ),
    ...(report.scenario.description === null ? [] : [markdownText(report.scenario.description), '']),
    ...['The same from the command line:', '', '```sh', command, '```', ''],
    // The table as plan --format markdown has it, of the rows that a short table shows.
    planTitleMarkdown(report),
    '',
    ...rows,
    '',
    `**>** deploy, **+** ${upsideLabel(report).toLowerCase()}, \\* Pareto-optimal. KV at 1M: one sequence of 2^20 ` +
      ['tokens. plans.csv has every combination.', ...guessWords(rows)].join(' '),
    '',
    ...['## The plan and its memory', '', ...memory(view), ''],
    ...(simulated ? simulationMarkdown(simulated) : []),
    '## Pictures',
    '',
    'Solid and filled: counted or measured. Dashed and hollow: an estimate of kernels that nobody has measured.',
    '',
    ...pictures.filter((p) => p !== decision).flatMap((p) => picture(p, drawn)),
    '## Before you believe it',
    '',
    ...report.warnings.map(({ message }) => `- ${markdownText(message)}`),
    '',
    APPENDICES,
    '',
    ...appendices(report),
  ].join('\n');
}

const section = (title: string, body: readonly string[]): string[] =>
  body.length === 0 ? [] : [`### ${title}`, '', ...body, ''];

function answer(view: View, simulated: Simulated | null): string[] {
  const { report, fleet } = view;
  if (fleet)
    return [
      ...fleetLines(fleet.fleet, report, simulated?.fleet).flatMap(({ label, text }) => [
        `**${label}** ${markdownText(text)}`,
        '',
      ]),
      markdownText(replicaWords(view)),
      '',
    ];
  const failure = view.failure === undefined ? [] : ['```text', view.failure, '```', ''];
  if (report.plans.length === 0)
    return ['No combination meets the targets; the appendix says what removed each.', '', ...failure];
  return [
    ...firstPage(report, simulated).flatMap(({ label, text }) => [`**${label}** ${markdownText(text)}`, '']),
    ...failure,
  ];
}

function picture(p: Picture, drawn: boolean): string[] {
  return [
    `### ${markdownText(p.title)}`,
    '',
    ...(drawn ? [`![${markdownText(p.title)}](${p.id}.png)`, ''] : []),
    `${markdownText(p.summary)} *Evidence: ${EVIDENCE_WORDS[p.evidence]}. Source: ${markdownText(p.source)}.*`,
    '',
  ];
}

function numbers(report: PlanReport): string[] {
  const rows = decisionRows(report);
  return rows.length === 0 ? [] : [...markdownTable(sheetColumns(rows), rows), ''];
}

function losses(report: PlanReport): string[] {
  const table = lossTable(report);
  if (table === null) return [];
  return section('What it loses, by task', [
    ...markdownTable(lossColumns(table), table.rows),
    ...(table.more > 0 ? ['', `${table.more} more tasks lose less.`] : []),
  ]);
}

const firstToken = ({ prefill: { secondsToFirstToken: first, evidence } }: Plan): string =>
  first ? `; the first token of a prompt after ${timeWords(first)} (${evidence ?? 'not priced'})` : '';

function memory(view: View): string[] {
  const plan = shownPlan(view);
  if (!plan) return [`${nothingLeft(view.report)}.`];
  const vram = view.report.device.vramBytes;
  const d = shownDecode(plan);
  return [
    `**${markdownText(plan.id)}**: largest batch ${plan.maxBatch.exact} (${plan.prefill.batchBesidePrefill} ` +
      `beside one prefill), limited by ${limitInFull(plan)}; ${timeWords(d.secondsPerStep)} a token and ` +
      `${rateLabel(d)} tok/s at batch ${d.batch} (${d.evidence ?? 'not priced'})${firstToken(plan)}.`,
    '',
    ...markdownTable(memoryColumns(plan, vram, `part, at batch ${batchOf(plan)}`), PARTS),
    ...(plan.marks.length > 0 ? ['', ...plan.marks.map((m) => `- ${markdownText(m.message)}`)] : []),
  ];
}

function appendices(report: PlanReport): string[] {
  return [
    ...section(
      'Removed by the targets',
      report.removed.map((r) => `- ${markdownText(`${r.id}: ${r.target}: ${r.reason}`)}`),
    ),
    ...section(
      'Where the published figures contradict each other',
      report.contradictions.map(
        (c) => `- **${markdownText(c.subject)}**: ${markdownText(`${figuresText(c, ', ')}. ${c.explanation}`)}`,
      ),
    ),
  ];
}
