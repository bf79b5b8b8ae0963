/**
 * The parts of a report that change with the question. Written once here, and again in the page whenever a control
 * changes.
 */
import { group } from 'd3-array';
import { isUncompressed } from '../../codecs/registry.js';
import type { Plan, PlanReport } from '../../plan/types.js';
import { formatDecimalBytes } from '../../numbers/units.js';
import { figuresText } from '../../quality/contradictions.js';
import { chosenId, type AnswerLine } from '../text/answer-text.js';
import { fleetLines, questionWords, replicaWords } from '../text/fleet-text.js';
import {
  beforeSigning,
  costWords,
  shownRisks,
  decisionRows,
  lossColumns,
  lossTable,
  sheetColumns,
  type DecisionRow,
} from '../decision.js';
import { FIELDS, limitInFull, nothingLeft, qualityColumn, rateLabel, runWords, type Field } from '../plan-rows.js';
import { shownDecode, timeWords } from '../../plan/words/words.js';
import { decisionPicture } from '../pictures/index.js';
import { batchOf, memoryColumns, PARTS } from '../pictures/memory-breakdown.js';
import { EVIDENCE_WORDS, type Picture, type PictureEvidence } from '../pictures/picture.js';
import { firstPage, type Simulated } from '../simulation.js';
import { htmlTable, numberClass } from '../tables.js';
import { left } from '../text/text.js';
import { shownPlan, type View } from '../view.js';
import { html, type Html } from './html.js';

/**
 * What the page shows of a question, by the id of the element that holds it.
 * @param simulated of this very question
 */
export function sectionsOf(view: View, simulated: Simulated | null, pictures: readonly Picture[]) {
  const decision = decisionPicture(pictures);
  return {
    question: questionSection(view, simulated),
    answer: answerSection(view, simulated),
    decision: figuresSection(decision === null ? [] : [decision]),
    sheet: sheetSection(view, simulated),
    rows: tableSection(view),
    plan: planSection(view),
    figures: figuresSection(pictures.filter((p) => p !== decision)),
    notes: notesSection(view),
  };
}

/** What is asked, in a line. @param simulated of this very question */
export const questionSection = (view: View, simulated: Simulated | null): Html =>
  html`<p><strong>${questionWords(view, simulated?.fleet)}</strong></p>`;

const paragraphs = (lines: readonly AnswerLine[]): Html[] =>
  lines.map(({ label, text }) => html`<p><strong>${label}</strong> ${text}</p>`);

/** The answer in a paragraph for each of its parts. @param simulated of this very question */
export function answerSection(view: View, simulated: Simulated | null): Html {
  const { report, fleet } = view;
  if (fleet) {
    const verdict = fleet.fleet.deploy ? 'deploy' : 'not-recommended';
    const lines = paragraphs(fleetLines(fleet.fleet, report, simulated?.fleet));
    return html`<div class="verdict ${verdict}">${lines}</div><p>${replicaWords(view)}</p>`;
  }
  const failure = view.failure === undefined ? '' : html`<pre class="reason">${view.failure}</pre>`;
  if (report.plans.length === 0)
    return html`<p>No combination meets the targets: the table below says which target removed which.</p>${failure}`;
  const lines = paragraphs(firstPage(report, simulated));
  return html`<div class="verdict ${report.answer.verdict}">${lines}</div>${failure}`;
}

/** Numbers, losses, risks, cost and checks: the first page below the answer. */
export function sheetSection(view: View, simulated: Simulated | null): Html {
  const { report } = view;
  const rows = decisionRows(report);
  if (rows.length === 0) return html``;
  const checks = beforeSigning(report).map((c) => html`<li>${c}</li>`);
  const table = htmlTable('The plans of the answer', sheetColumns(rows), rows, {
    classes: 'sheet-table',
    row: ({ role, plan }) => html` data-role="${role}" data-plan="${plan.id}"`,
  });
  const risks = shownRisks(report, simulated).map((r) => html`<li>${r.message}</li>`);
  const risk = risks.length === 0 ? html`<p>None but what is to be checked below.</p>` : html`<ul>${risks}</ul>`;
  const cost = html`<h3>Cost</h3><p>${costWords(view, simulated)}</p>`;
  return html`${table}
<div class="columns">
<section><h3>What it loses, by task</h3>${lossSection(report, rows)}</section>
<section><h3>Risk</h3>${risk}${cost}</section>
</div>
${checks.length === 0 ? '' : html`<h3>Before you sign</h3><ol class="checks">${checks}</ol>`}`;
}

function lossSection(report: PlanReport, rows: readonly DecisionRow[]): Html {
  const loss = lossTable(report);
  if (loss === null) {
    const what = report.fidelity ? 'was measured at this context' : 'that counts at this context is published';
    const unknown = `Nothing ${what}.`;
    const compressed = rows.some((r) => !isUncompressed(r.plan.codec));
    return html`<p>${compressed ? unknown : 'Nothing: the cache is not compressed.'}</p>`;
  }
  const table = htmlTable('What is lost, by task', lossColumns(loss), loss.rows, { classes: 'loss', end: '' });
  const more = loss.more > 0 ? html`<p class="units">${loss.more} more tasks lose less.</p>` : '';
  return html`${table}${more}`;
}

const badge = (evidence: string | null): Html =>
  evidence === null
    ? html`<span class="evidence">not priced</span>`
    : html`<span class="evidence ${evidence.split(' ')[0]}">${evidence}</span>`;

/** The recommended plan: what it is, and what fills the memory. */
function planSection(view: View): Html {
  const { report } = view;
  const plan = shownPlan(view);
  const vram = report.device.vramBytes;
  if (!plan) {
    const [first] = report.plans;
    const least = first
      ? `: even ${first.id} needs ${formatDecimalBytes(first.memory.totalBytes)} of ${formatDecimalBytes(vram)}`
      : '';
    return html`<p>${nothingLeft(report)}${least}.</p>`;
  }
  const d = shownDecode(plan);
  const { codec, prefill } = plan;
  const ranks = codec.rankK === undefined ? '' : ` (ranks ${codec.rankK} / ${codec.rankV ?? ''})`;
  const first = prefill.secondsToFirstToken ? timeWords(prefill.secondsToFirstToken) : prefill.notPriced;
  const facts: readonly (readonly [string, Html | string])[] = [
    ['codec', `${codec.label}${ranks}`],
    ['largest batch', String(plan.maxBatch.exact)],
    ['beside one prefill', String(prefill.batchBesidePrefill)],
    [`time a token at batch ${d.batch}`, html`${timeWords(d.secondsPerStep)} ${badge(d.evidence)}`],
    ['tokens per second', rateLabel(d)],
    ['first token of a prompt', html`${first} ${badge(prefill.evidence)}`],
    ['limited by', limitInFull(plan)],
  ];
  const fact = ([name, value]: (typeof facts)[number]): Html => {
    const key = name === 'largest batch' ? html` data-fact="batch"` : '';
    return html`<div><dt>${name}</dt><dd${key}>${value}</dd></div>
`;
  };
  const marks = plan.marks.map((m) => html`<li>${m.message}</li>`);
  const memory = htmlTable('Memory of the plan', memoryColumns(plan, vram, 'part'), PARTS, {
    classes: 'memory',
    caption: `Memory at batch ${batchOf(plan)}, exact`,
  });
  return html`<h3 id="plan-name">${plan.id}</h3>
<dl class="facts">
${facts.map(fact)}</dl>
${memory}
${marks.length === 0 ? '' : html`<ul class="marks">${marks}</ul>`}`;
}

interface TableColumn extends Omit<Field, 'cell'> {
  readonly key: string;
  readonly title: string;
  readonly cell: (p: Plan) => Html | string;
}

function columnsOf(report: PlanReport): TableColumn[] {
  const each = report.settings.gpus > 1 ? ' a GPU' : '';
  const column = (key: string, title: string, field: Field): TableColumn => ({ ...field, key, title });
  return [
    column('codec', 'codec', FIELDS.codec),
    column('path', 'path', FIELDS.path),
    ...(report.plans.some((p) => p.eviction) ? [column('eviction', 'eviction', FIELDS.eviction)] : []),
    column('ratio', 'ratio', FIELDS.ratio),
    column('kv', `KV a token${each}`, FIELDS.kvToken),
    column('million', `KV at 1M${each}`, FIELDS.kvMillion),
    column('batch', 'largest batch', FIELDS.batch),
    column('run', 'run', FIELDS.run),
    column('time', 'ms a token', FIELDS.time),
    column('rate', 'tok/s', FIELDS.rate),
    { ...column('published', 'tok/s as published', FIELDS.published), cell: (p) => FIELDS.published.cell(p) || '–' },
    ...(report.settings.usdPerHour === null ? [] : [column('usd', '$ per M tokens', FIELDS.usd)]),
    { ...qualityColumn(report), key: 'quality' },
    column('kept', 'quality kept', FIELDS.keeps),
    {
      ...left<Plan>('limited by', limitInFull),
      key: 'limit',
      value: (p) => p.limitedBy,
    },
    {
      key: 'evidence',
      title: 'evidence',
      align: 'left',
      cell: (p) => badge(shownDecode(p).evidence),
      value: (p) => shownDecode(p).evidence,
    },
  ];
}

/** Every combination; those that miss a target are in it, marked, with the reason. */
function tableSection(view: View): Html {
  const { report } = view;
  const columns = columnsOf(report);
  const chosen = chosenId(report);
  const reasons = group(report.removed, (r) => r.id);
  const rows = view.all.map(({ plan, kept }) => {
    const state = plan.id === chosen ? 'recommended' : !kept ? 'removed' : plan.pareto ? 'pareto' : '';
    const mark = { recommended: 'recommended', removed: 'misses a target', pareto: 'Pareto', '': '' }[state];
    const why = (reasons.get(plan.id) ?? []).map((r) => `${r.target}: ${r.reason}`).join('; ');
    const shown = mark === '' ? '' : html`<span class="state">${mark}</span>`;
    const classes = `${state}${plan.maxBatch.exact < 1 ? ' empty' : ''}`;
    const cells = columns.map(
      (c) => html`<td${numberClass(c)} data-key="${c.key}" data-value="${c.value(plan) ?? ''}">${c.cell(plan)}</td>`,
    );
    const misses = reasons.size === 0 ? '' : html`<td class="why" data-value="${why}">${why}</td>`;
    const names = html`data-id="${plan.id}" data-kind="${plan.codec.kind}" data-state="${state}" class="${classes}"`;
    return html`<tr ${names}><th scope="row" data-value="${state || 'z'}">${shown}</th>${cells}${misses}</tr>
`;
  });
  const head = (c: Pick<TableColumn, 'title' | 'align'>): Html => {
    const button = html`<button type="button" data-numeric="${c.align === 'right' ? 'yes' : 'no'}">${c.title}</button>`;
    return html`<th scope="col"${numberClass(c)} aria-sort="none">${button}</th>`;
  };
  const heads = [
    head({ title: 'state', align: 'left' }),
    ...columns.map(head),
    ...(reasons.size === 0 ? [] : [head({ title: 'misses', align: 'left' })]),
  ];
  const caption = [
    `${report.plans.length} of ${view.all.length} combinations answer the question.`,
    `run: ${runWords(report)}; times and rates are at this batch. In brackets: the batch on the grid 2^k, 3 · ` +
      '2^k, and the interval of the time.',
  ].join(' ');
  return html`<table id="plans"><caption><span>${caption}</span></caption>
<thead><tr>${heads}</tr></thead>
<tbody>${rows}</tbody></table>`;
}

/** Notes before believing: notes, contradictions, combinations that cannot be. */
function notesSection({ report }: View): Html {
  const details = (title: string, items: readonly Html[]): Html | string =>
    items.length === 0 ? '' : html`<details><summary>${title} (${items.length})</summary><ul>${items}</ul></details>`;
  const contradictions = report.contradictions.map(
    (c) => html`<li><strong>${c.subject}</strong>: ${figuresText(c, ', ')}. ${c.explanation}</li>`,
  );
  return html`<ul>${report.warnings.map(({ message: note }) => html`<li>${note}</li>`)}</ul>
${details('Where the published figures contradict each other', contradictions)}
${details(
  'Combinations that cannot be',
  report.refused.map((r) => html`<li>${r.id}: ${r.reason}</li>`),
)}`;
}

/** Evidence whose badge says more than its name. */
const EVIDENCE_TITLES: Readonly<Partial<Record<PictureEvidence, string>>> = {
  'measured-here': 'measured here',
  roofline: 'roofline estimate',
};

/** Pictures with their words; the page draws into the canvases. */
export const figuresSection = (pictures: readonly Picture[]): Html =>
  html`${pictures.map(
    (p) => html`<figure id="figure-${p.id}" class="${p.evidence}">
<h3>${p.title} <span class="evidence ${p.evidence}">${EVIDENCE_TITLES[p.evidence] ?? p.evidence}</span></h3>
<p class="units">${p.subtitle}</p>
<div class="chart"><canvas role="img" aria-label="${p.title}. ${p.summary}"></canvas></div>
<figcaption><span class="words">${p.summary}</span> \
<span class="source">Evidence: ${EVIDENCE_WORDS[p.evidence]}. Source: ${p.source}.</span></figcaption>
</figure>
`,
  )}`;
