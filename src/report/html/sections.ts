/**
 * The parts of a report that change with the question. Written once here, and again in the page whenever a control
 * changes.
 */
import { isUncompressed } from '../../codecs/registry.js';
import { evictionLabel } from '../../eviction/policy.js';
import type { Plan, PlanReport } from '../../plan/types.js';
import { formatBytes, formatDecimalBytes, formatNumber } from '../../numbers/units.js';
import { LIMIT_WORDS } from '../text/words.js';
import { chosenId } from '../text/answer-text.js';
import { fleetLines, questionWords, replicaWords } from '../text/fleet-text.js';
import { beforeSigning, costWords, decisionRows, lossTable, scoreCell, sheetTable } from '../decision.js';
import { asPublishedLabel, batchLabel, keepsLabel, qualityColumn, rateLabel, runWords } from '../plan-rows.js';
import { pathLabel } from '../../plan/words/names.js';
import { shownDecode, timeLabel, timeWords } from '../../plan/words/words.js';
import { batchOf, memoryParts, PARTS } from '../pictures/memory-breakdown.js';
import { EVIDENCE_WORDS, type Picture, type PictureEvidence } from '../pictures/picture.js';
import { firstPage, type Simulated } from '../simulation.js';
import { shownPlan, type View } from '../view.js';
import { html, type Html } from './html.js';

/** What is asked, in a line. @param simulated of this very question */
export const questionSection = (view: View, simulated: Simulated | null): Html =>
  html`<p><strong>${questionWords(view, simulated?.fleet)}</strong></p>`;

/** The answer in a paragraph for each of its parts. @param simulated of this very question */
export function answerSection(view: View, simulated: Simulated | null): Html {
  const { report, fleet } = view;
  if (fleet)
    return html`<div class="verdict ${fleet.fleet.deploy ? 'deploy' : 'not-recommended'}">${fleetLines(fleet.fleet, report, simulated?.fleet).map(({ label, text }) => html`<p><strong>${label}</strong> ${text}</p>`)}</div><p>${replicaWords(view)}</p>`;
  if (report.plans.length === 0)
    return html`<p>No combination meets the targets: the table below says which target removed which.</p>`;
  const lines = firstPage(report, simulated);
  return html`<div class="verdict ${report.answer.verdict}">${lines.map(({ label, text }) => html`<p><strong>${label}</strong> ${text}</p>`)}</div>`;
}

/** Numbers, losses, risks, cost and checks: the first page below the answer. */
export function sheetSection(view: View, simulated: Simulated | null): Html {
  const { report } = view;
  const rows = decisionRows(report);
  const loss = lossTable(report);
  const checks = beforeSigning(report);
  const { head, cells } = sheetTable(rows);
  const table = html`<div class="scroll" role="region" aria-label="The plans of the answer" tabindex="0"><table class="sheet-table"><thead><tr>${head.map((c, i) => html`<th scope="col"${i === 0 ? '' : html` class="number"`}>${c}</th>`)}</tr></thead><tbody>${rows.map(
    (row, k) =>
      html`<tr data-role="${row.role}" data-plan="${row.plan.id}">${cells[k]!.map((cell, i) => (i === 0 ? html`<th scope="row">${cell}</th>` : html`<td class="number">${cell}</td>`))}</tr>
`,
  )}</tbody></table></div>`;
  return html`${rows.length === 0 ? '' : table}
<div class="columns">
<section><h3>What it loses, by task</h3>${
    loss === null
      ? html`<p>${rows.some((r) => !isUncompressed(r.plan.codec)) ? (report.fidelity ? 'Nothing was measured at this context.' : 'Nothing that counts at this context is published.') : 'Nothing: the cache is not compressed.'}</p>`
      : html`<div class="scroll" role="region" aria-label="What is lost, by task" tabindex="0"><table class="loss"><thead><tr><th scope="col">task</th><th scope="col" class="number">uncompressed</th>${loss.plans.map((p) => html`<th scope="col" class="number">${p}</th>`)}</tr></thead><tbody>${loss.rows.map((r) => html`<tr><th scope="row">${r.task}</th><td class="number">${r.teacher}</td>${r.scores.map((s) => html`<td class="number">${s === null ? 'unknown' : scoreCell(s)}</td>`)}</tr>`)}</tbody></table></div>${loss.more > 0 ? html`<p class="units">${loss.more} more tasks lose less.</p>` : ''}`
  }</section>
<section><h3>Risk</h3>${report.answer.risks.length === 0 ? html`<p>None but what is to be checked below.</p>` : html`<ul>${report.answer.risks.slice(0, MOST_RISKS).map((r) => html`<li>${r.message}</li>`)}</ul>`}<h3>Cost</h3><p>${costWords(view, simulated)}</p></section>
</div>
${checks.length === 0 ? '' : html`<h3>Before you sign</h3><ol class="checks">${checks.map((c) => html`<li>${c}</li>`)}</ol>`}`;
}

/** Risks on the first page; the notes have them all. */
const MOST_RISKS = 4;

const badge = (evidence: string | null): Html =>
  evidence === null
    ? html`<span class="evidence">not priced</span>`
    : html`<span class="evidence ${evidence.split(' ')[0]}">${evidence}</span>`;

/** The recommended plan: what it is, and what fills the memory. */
export function planSection(view: View): Html {
  const plan = shownPlan(view);
  if (!plan)
    return html`<p>Nothing fits: ${view.report.plans[0] ? `even ${view.report.plans[0].id} needs ${formatDecimalBytes(view.report.plans[0].memory.totalBytes)}` : 'no combination is left'} of ${formatDecimalBytes(view.report.device.vramBytes)}.</p>`;
  const d = shownDecode(plan);
  const parts = memoryParts(plan, view.report.device.vramBytes);
  const ranks = plan.codec.rankK === undefined ? '' : ` (ranks ${plan.codec.rankK} / ${plan.codec.rankV ?? ''})`;
  return html`<h3 id="plan-name">${plan.id}</h3>
<dl class="facts">
<div><dt>codec</dt><dd>${plan.codec.label}${ranks}</dd></div>
<div><dt>largest batch</dt><dd data-fact="batch">${plan.maxBatch.exact}</dd></div>
<div><dt>beside one prefill</dt><dd>${plan.prefill.batchBesidePrefill}</dd></div>
<div><dt>time a token at batch ${d.batch}</dt><dd>${timeWords(d.secondsPerStep)} ${badge(d.evidence)}</dd></div>
<div><dt>tokens per second</dt><dd>${rateLabel(d)}</dd></div>
<div><dt>first token of a prompt</dt><dd>${plan.prefill.secondsPerPrompt ? timeWords(plan.prefill.secondsPerPrompt) : plan.prefill.notPriced} ${badge(plan.prefill.evidence)}</dd></div>
<div><dt>limited by</dt><dd>${LIMIT_WORDS[plan.limitedBy]}</dd></div>
</dl>
<div class="scroll" role="region" aria-label="Memory of the plan" tabindex="0"><table class="memory"><caption>Memory at batch ${batchOf(plan)}, exact</caption>
<thead><tr><th scope="col">part</th><th scope="col" class="number">bytes</th><th scope="col" class="number">size</th><th scope="col" class="number">share</th></tr></thead>
<tbody>${PARTS.map(
    (
      part,
    ) => html`<tr><th scope="row">${part}</th><td class="number">${parts[part]}</td><td class="number">${formatDecimalBytes(parts[part])}</td><td class="number">${((100 * parts[part]) / view.report.device.vramBytes).toFixed(1)} %</td></tr>
`,
  )}</tbody></table></div>
${plan.marks.length === 0 ? '' : html`<ul class="marks">${plan.marks.map((m) => html`<li>${m.message}</li>`)}</ul>`}`;
}

interface Column {
  readonly key: string;
  readonly title: string;
  readonly numeric: boolean;
  readonly cell: (p: Plan) => Html | string;
  /** What the column sorts by; empty sorts last. */
  readonly value: (p: Plan) => string | number | null;
}

function columnsOf(report: PlanReport): Column[] {
  const each = report.settings.gpus > 1 ? ' a GPU' : '';
  const columns: (Column | null)[] = [
    { key: 'codec', title: 'codec', numeric: false, cell: (p) => p.codec.label, value: (p) => p.codec.label },
    { key: 'path', title: 'path', numeric: false, cell: (p) => pathLabel(p), value: (p) => pathLabel(p) },
    report.plans.some((p) => p.eviction)
      ? {
          key: 'eviction',
          title: 'eviction',
          numeric: false,
          cell: (p) => evictionLabel(p.eviction),
          value: (p) => evictionLabel(p.eviction),
        }
      : null,
    {
      key: 'ratio',
      title: 'ratio',
      numeric: true,
      cell: (p) => formatNumber(p.codec.ratio),
      value: (p) => p.codec.ratio,
    },
    {
      key: 'kv',
      title: `KV a token${each}`,
      numeric: true,
      cell: (p) => formatBytes(p.memory.kvBytesPerToken),
      value: (p) => p.memory.kvBytesPerToken,
    },
    {
      key: 'million',
      title: `KV at 1M${each}`,
      numeric: true,
      cell: (p) => formatBytes(p.memory.kvBytesAt1M),
      value: (p) => p.memory.kvBytesAt1M,
    },
    { key: 'batch', title: 'largest batch', numeric: true, cell: (p) => batchLabel(p), value: (p) => p.maxBatch.exact },
    {
      key: 'run',
      title: 'run',
      numeric: true,
      cell: (p) => String(shownDecode(p).batch),
      value: (p) => shownDecode(p).batch,
    },
    {
      key: 'time',
      title: 'ms a token',
      numeric: true,
      cell: (p) => timeLabel(shownDecode(p).secondsPerStep),
      value: (p) => shownDecode(p).secondsPerStep?.estimate ?? null,
    },
    {
      key: 'rate',
      title: 'tok/s',
      numeric: true,
      cell: (p) => rateLabel(shownDecode(p)),
      value: (p) => shownDecode(p).tokensPerSecond?.estimate ?? null,
    },
    {
      key: 'published',
      title: 'tok/s as published',
      numeric: true,
      cell: (p) => asPublishedLabel(p) || '–',
      value: (p) => p.asPublished?.tokensPerSecond.estimate ?? null,
    },
    report.settings.usdPerHour === null
      ? null
      : {
          key: 'usd',
          title: '$ per M tokens',
          numeric: true,
          cell: (p) =>
            shownDecode(p).usdPerMillionTokens ? formatNumber(shownDecode(p).usdPerMillionTokens?.estimate ?? 0) : '–',
          value: (p) => shownDecode(p).usdPerMillionTokens?.estimate ?? null,
        },
    { key: 'quality', numeric: true, ...qualityColumn(report) },
    {
      key: 'kept',
      title: 'quality kept',
      numeric: true,
      cell: (p) => keepsLabel(p),
      value: (p) => p.qualityKept?.share ?? null,
    },
    {
      key: 'limit',
      title: 'limited by',
      numeric: false,
      cell: (p) => LIMIT_WORDS[p.limitedBy],
      value: (p) => p.limitedBy,
    },
    {
      key: 'evidence',
      title: 'evidence',
      numeric: false,
      cell: (p) => badge(shownDecode(p).evidence),
      value: (p) => shownDecode(p).evidence,
    },
  ];
  return columns.filter((c) => c !== null);
}

/** Every combination; those that miss a target are in it, marked, with the reason. */
export function tableSection(view: View): Html {
  const { report } = view;
  const columns = columnsOf(report);
  const chosen = chosenId(report);
  const reasons = new Map<string, string[]>();
  for (const r of report.removed) reasons.set(r.id, [...(reasons.get(r.id) ?? []), `${r.target}: ${r.reason}`]);
  const rows = view.all.map(({ plan, kept }) => {
    const state = plan.id === chosen ? 'recommended' : !kept ? 'removed' : plan.pareto ? 'pareto' : '';
    const mark = { recommended: 'recommended', removed: 'misses a target', pareto: 'Pareto', '': '' }[state];
    const why = (reasons.get(plan.id) ?? []).join('; ');
    return html`<tr data-id="${plan.id}" data-kind="${plan.codec.kind}" data-state="${state}" class="${state}${plan.maxBatch.exact < 1 ? ' empty' : ''}"><th scope="row" data-value="${state === '' ? 'z' : state}">${mark === '' ? '' : html`<span class="state">${mark}</span>`}</th>${columns.map((c) => html`<td${c.numeric ? html` class="number"` : ''} data-key="${c.key}" data-value="${c.value(plan) ?? ''}">${c.cell(plan)}</td>`)}${reasons.size === 0 ? '' : html`<td class="why" data-value="${why}">${why}</td>`}</tr>
`;
  });
  const head = (title: string, numeric: boolean): Html =>
    html`<th scope="col"${numeric ? html` class="number"` : ''} aria-sort="none"><button type="button" data-numeric="${numeric ? 'yes' : 'no'}">${title}</button></th>`;
  return html`<table id="plans"><caption><span>${report.plans.length} of ${view.all.length} combinations answer the question. run: ${runWords(report)}; times and rates are at this batch. In brackets: the batch on the grid 2^k, 3 · 2^k, and the interval of the time.</span></caption>
<thead><tr>${head('state', false)}${columns.map((c) => head(c.title, c.numeric))}${reasons.size === 0 ? '' : head('misses', false)}</tr></thead>
<tbody>${rows}</tbody></table>`;
}

/** Notes before believing: notes, contradictions, combinations that cannot be. */
export function notesSection({ report }: View): Html {
  return html`<ul>${report.warnings.map(({ message: note }) => html`<li>${note}</li>`)}</ul>
${report.contradictions.length === 0 ? '' : html`<details><summary>Where the published figures contradict each other (${report.contradictions.length})</summary><ul>${report.contradictions.map((c) => html`<li><strong>${c.subject}</strong>: ${c.figures.map((f) => `${f.value} (${f.source})`).join(', ')}. ${c.explanation}</li>`)}</ul></details>`}
${report.refused.length === 0 ? '' : html`<details><summary>Combinations that cannot be (${report.refused.length})</summary><ul>${report.refused.map((r) => html`<li>${r.id}: ${r.reason}</li>`)}</ul></details>`}`;
}

const EVIDENCE_TITLES: Readonly<Record<PictureEvidence, string>> = {
  exact: 'exact',
  published: 'published',
  'measured-here': 'measured here',
  measured: 'measured',
  interpolated: 'interpolated',
  extrapolated: 'extrapolated',
  attainable: 'attainable',
  roofline: 'roofline estimate',
};

/** Pictures with their words; the page draws into the canvases. */
export function figuresSection(pictures: readonly Picture[]): Html {
  return html`${pictures.map(
    (p) => html`<figure id="figure-${p.id}" class="${p.evidence}">
<h3>${p.title} <span class="evidence ${p.evidence}">${EVIDENCE_TITLES[p.evidence]}</span></h3>
<p class="units">${p.subtitle}</p>
<div class="chart"><canvas role="img" aria-label="${p.title}. ${p.summary}"></canvas></div>
<figcaption><span class="words">${p.summary}</span> <span class="source">Evidence: ${EVIDENCE_WORDS[p.evidence]}. Source: ${p.source}.</span></figcaption>
</figure>
`,
  )}`;
}
