/** The report in Markdown, with its pictures beside it. */
import type { Plan, PlanReport } from '../plan/types.js';
import { formatDecimalBytes } from '../units.js';
import { batchOf, memoryParts, PARTS } from './pictures/memory-breakdown.js';
import { EVIDENCE_WORDS, type Picture } from './pictures/picture.js';
import { markdownText, planMarkdown } from './plan-csv.js';
import { answerLines } from './answer-text.js';
import { shownDecode, timeWords } from '../plan/words.js';
import { rateLabel } from './plan-rows.js';
import { shownPlan, type View } from './view.js';
import { LIMIT_WORDS } from './words.js';

/** @param drawn false where the pictures could not be written: then their words stand alone */
export function reportMarkdown(view: View, pictures: readonly Picture[], drawn: boolean): string {
  const { report } = view;
  const lines = [`# ${markdownText(report.scenario.name ?? `${report.model.name} on ${report.device.name}`)}`, ''];
  if (report.scenario.description !== null) lines.push(markdownText(report.scenario.description), '');
  lines.push('## Answer', '', ...answer(report), '');
  lines.push('## The plan and its memory', '', ...memory(view), '');
  lines.push(
    '## Pictures',
    '',
    'Solid and filled: counted or measured. Dashed and hollow: an estimate of kernels that nobody has measured.',
    '',
  );
  for (const p of pictures) {
    lines.push(
      `### ${markdownText(p.title)}`,
      '',
      ...(drawn ? [`![${markdownText(p.title)}](${p.id}.png)`, ''] : []),
      `${markdownText(p.summary)} *Evidence: ${EVIDENCE_WORDS[p.evidence]}. Source: ${markdownText(p.source)}.*`,
      '',
    );
  }
  // The table as plan --format markdown has it: its heading says model, device and context.
  const table = planMarkdown(report).split('\n\n');
  lines.push(
    table[0] as string,
    '',
    table.find((block) => block.startsWith('|')) as string,
    '',
    '**>** recommended, \\* Pareto-optimal. KV at 1M: one sequence of 2^20 tokens. In brackets: the batch on the grid that capacity tests climb, and the interval of the time.',
    '',
  );
  if (report.removed.length > 0)
    lines.push(
      '## Removed by the targets',
      '',
      ...report.removed.map((r) => `- ${markdownText(r.id)}: ${markdownText(r.target)}: ${markdownText(r.reason)}`),
      '',
    );
  lines.push(
    '## Before you believe it',
    '',
    ...report.warnings.map(({ message: note }) => `- ${markdownText(note)}`),
    '',
  );
  if (report.contradictions.length > 0) {
    lines.push('## Where the published figures contradict each other', '');
    for (const c of report.contradictions)
      lines.push(
        `- **${markdownText(c.subject)}**: ${markdownText(c.figures.map((f) => `${f.value} (${f.source})`).join(', '))}. ${markdownText(c.explanation)}`,
      );
    lines.push('');
  }
  return lines.join('\n');
}

function answer(report: PlanReport): string[] {
  if (report.plans.length === 0) return ['No combination meets the targets; what removed each is listed below.'];
  return answerLines(report).flatMap(({ label, text }) => [`**${label}** ${markdownText(text)}`, '']);
}

const firstToken = ({ prefill }: Plan): string =>
  prefill.secondsPerPrompt
    ? `; the first token of a prompt after ${timeWords(prefill.secondsPerPrompt)} (${prefill.evidence ?? 'not priced'})`
    : '';

function memory(view: View): string[] {
  const plan = shownPlan(view);
  if (!plan) return ['Nothing fits.'];
  const vram = view.report.device.vramBytes;
  const parts = memoryParts(plan, vram);
  const d = shownDecode(plan);
  return [
    `**${markdownText(plan.id)}**: largest batch ${plan.maxBatch.exact} (${plan.prefill.batchBesidePrefill} beside one prefill), limited by ${LIMIT_WORDS[plan.limitedBy]}; ${timeWords(d.secondsPerStep)} a token and ${rateLabel(d)} tok/s at batch ${d.batch} (${d.evidence ?? 'not priced'})${firstToken(plan)}.`,
    '',
    `| part, at batch ${batchOf(plan)} | bytes | size | share |`,
    '|---|--:|--:|--:|',
    ...PARTS.map(
      (part) =>
        `| ${part} | ${parts[part]} | ${formatDecimalBytes(parts[part])} | ${((100 * parts[part]) / vram).toFixed(1)} % |`,
    ),
    ...(plan.marks.length > 0 ? ['', ...plan.marks.map((m) => `- ${markdownText(m.message)}`)] : []),
  ];
}
