/**
 * The comparison as a part of a report's page: folded tables that open without a program, so that the page stays short.
 */
import { figuresText } from '../quality/contradictions.js';
import { html, type Html } from '../report/html/html.js';
import { htmlTable } from '../report/tables.js';
import {
  BEYOND_TITLE,
  CONTRADICTIONS_TITLE,
  countsOf,
  deviceLine,
  LEGEND,
  qualityColumns,
  QUALITY_TEXT,
  QUALITY_TITLE,
  sectionsOf,
  tally,
  VERDICT_WORDS,
} from './print-table.js';
import { qualityTables, type QualityTable } from './quality-tables.js';
import { cellText } from './text.js';
import type { Beyond, Comparison, PaperReport, Verdict } from './types.js';

export function paperHtml(r: PaperReport): Html {
  const { figures, contradictions } = r.quality;
  return html`<p><em>${r.paper}</em>. ${deviceLine(r)}. Whatever this report asks, these are the paper's own models \
and settings.</p>
<p><strong>${tally(r)}.</strong></p>
<p>${LEGEND}</p>
${sectionsOf(r).map((section) =>
  comparisonsOf(
    section,
    r.comparisons.filter((c) => c.section === section),
  ),
)}
<h3>${BEYOND_TITLE}</h3>
${r.beyond.map(beyondOf)}
<h3>${QUALITY_TITLE}</h3>
<p>${QUALITY_TEXT}</p>
${qualityTables(figures, contradictions).map(qualityOf)}
${folded(
  CONTRADICTIONS_TITLE,
  String(contradictions.length),
  html`<ul>${contradictions.map(
    (c) => html`<li><strong>${c.subject}</strong>: ${figuresText(c)}. ${c.explanation}</li>
`,
  )}</ul>`,
)}
${r.notes.length === 0 ? '' : html`<ul>${r.notes.map((n) => html`<li>${n}</li>`)}</ul>`}`;
}

/** A part that opens by itself, without a program. */
const folded = (
  title: string,
  remark: string,
  content: Html,
): Html => html`<details><summary>${title}${remark === '' ? '' : html` <small>${remark}</small>`}</summary>
${content}</details>
`;

/** A table that scrolls by itself where the screen is narrow. */
const scrolled = (
  name: string,
  table: Html,
): Html => html`<div class="scroll" role="region" aria-label="${name}" tabindex="0"><table>${table}</table></div>
`;

const number = (numeric: boolean): Html | string => (numeric ? html` class="number"` : '');

const heads = (titles: readonly string[], numeric: (i: number) => boolean): Html =>
  html`<thead><tr>${titles.map((t, i) => html`<th scope="col"${number(numeric(i))}>${t}</th>`)}</tr></thead>`;

/** The look of a verdict is that of the evidence which it is like: solid, dashed, or a warning. */
const LOOKS: Readonly<Record<Verdict, string>> = {
  exact: 'exact',
  'by-definition': '',
  inside: 'inside',
  explained: 'roofline',
  undecided: 'explained',
  'not-predictable': '',
  unexplained: 'wrong',
  wrong: 'wrong',
};

function comparisonsOf(section: string, list: readonly Comparison[]): Html {
  const head = heads(['quantity', 'paper', 'model', 'verdict', 'why', 'source'], (i) => i === 1 || i === 2);
  return folded(
    section,
    countsOf(list),
    scrolled(
      section,
      html`${head}<tbody>${list.map(
        (c) => html`<tr><th scope="row">${c.quantity}</th><td class="number">${c.published.text}</td>\
<td class="number">${c.model?.text ?? '–'}</td>\
<td><span class="evidence ${LOOKS[c.verdict]}">${VERDICT_WORDS[c.verdict]}</span></td>\
<td class="why">${c.reason}</td><td>${c.source}</td></tr>
`,
      )}</tbody>`,
    ),
  );
}

function beyondOf(b: Beyond): Html {
  const numeric = (i: number): boolean => b.columns[i]?.unit !== 'text';
  const cellOf = (cell: Beyond['rows'][number][number], i: number): Html =>
    html`<td${number(numeric(i))}>${cellText(cell, b.columns[i]?.unit ?? 'text')}</td>`;
  return folded(
    b.title,
    '',
    html`<p>${b.text}</p>${scrolled(
      b.title,
      html`${heads(
        b.columns.map((c) => c.title),
        numeric,
      )}<tbody>${b.rows.map(
        (row) => html`<tr>${row.map(cellOf)}</tr>
`,
      )}</tbody>`,
    )}`,
  );
}

function qualityOf(t: QualityTable): Html {
  const name = `${t.source}, ${t.model}`;
  const table = htmlTable(name, qualityColumns(t), t.rows);
  const subjects = t.contradictions.map((c) => html`<li>${c.subject}</li>`);
  return subjects.length === 0
    ? folded(name, '', html`${table}\n`)
    : folded(name, 'contradicted', html`${table}\n<p>Contradicted on:</p><ul>${subjects}</ul>`);
}
