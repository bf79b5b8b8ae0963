/** The paper's claims as they were tried on a model, as a part of a report: on its page and in its Markdown. */
import type { Interval } from '../cost/evidence.js';
import { trainingText, VERDICTS } from '../schema/claim-words.js';
import type { ClaimsFile } from '../schema/claims.js';
import type { FixedPart } from './folder.js';
import { html, type Html } from './html/html.js';
import { markdownText } from './plan-csv.js';

const HEAD = [
  'verdict',
  'claim of the paper',
  'effect',
  'here (95 %)',
  'untrained twin',
  'beyond the twin',
  'the paper',
  'note',
] as const;

const shown = (i: Interval | null): string =>
  i === null ? '–' : `${number(i.estimate)} (${number(i.low)} to ${number(i.high)})`;
const number = (value: number): string => String(Number(value.toPrecision(3)));

const rowsOf = ({ claims }: ClaimsFile): string[][] =>
  claims.map((c) => [
    c.verdict,
    c.claim,
    c.effect,
    shown(c.estimate),
    shown(c.control),
    shown(c.beyond),
    c.paper,
    c.note,
  ]);

/** `5 agrees, 1 contradicts, 2 not shown by this, 6 not decided`, and on what. */
function intro({ model, device, training, claims }: ClaimsFile): string {
  const counts = VERDICTS.map((v) => `${claims.filter(({ verdict }) => verdict === v).length} ${v}`);
  const trained = model.trained ? '' : ', whose weights are fabricated: they say nothing about a trained model';
  return `${counts.join(', ')}: on ${model.name} (${model.fingerprint.slice(0, 12)}…)${trained}, measured on ${device} by lla-sim fidelity --claims, whatever this report asks. A claim holds where the interval of its effect lies on the claimed side of zero, and the effect exceeds that of the untrained twin by more than their joint interval. Where the twin shows it as well, it is not shown by this.${training ? ` ${trainingText(training)}` : ''}`;
}

const titleOf = ({ model }: ClaimsFile): string => `The paper's claims, tried on ${model.name}`;

export function claimsPart(file: ClaimsFile): FixedPart {
  const rows = rowsOf(file);
  return { id: 'claims', title: titleOf(file), html: claimsHtml(file, rows), markdown: claimsMarkdown(file, rows) };
}

const claimsHtml = (file: ClaimsFile, rows: readonly string[][]): Html => html`<p>${intro(file)}</p>
<div class="scroll" role="region" aria-label="${titleOf(file)}" tabindex="0"><table><thead><tr>${HEAD.map((h) => html`<th scope="col">${h}</th>`)}</tr></thead><tbody>${rows.map(
  (
    cells,
  ) => html`<tr>${cells.map((cell, i) => (i === 0 ? html`<th scope="row">${cell}</th>` : html`<td>${cell}</td>`))}</tr>
`,
)}</tbody></table></div>`;

const claimsMarkdown = (file: ClaimsFile, rows: readonly string[][]): string =>
  [
    `## ${markdownText(titleOf(file))}`,
    '',
    markdownText(intro(file)),
    '',
    `| ${HEAD.join(' | ')} |`,
    `|${HEAD.map(() => '---').join('|')}|`,
    ...rows.map((cells) => `| ${cells.map(markdownText).join(' | ')} |`),
    '',
  ].join('\n');
