/** Forms of a table beside aligned text (text/text.ts): Markdown, HTML and CSV. */
import type { FixedPart } from './folder.js';
import { html, type Html } from './html/html.js';
import type { Column } from './text/text.js';

/** Escapes what Markdown or HTML inside it would interpret. */
export const markdownText = (text: string): string =>
  text
    .replace(/[\\`*_{}[\]<>#|!&]/g, (ch) =>
      ch === '<' ? '&lt;' : ch === '>' ? '&gt;' : ch === '&' ? '&amp;' : `\\${ch}`,
    )
    .replace(/\s+/g, ' ');

/** @param written how titles and cells are escaped */
export function markdownTable<T>(
  spec: readonly Column<T>[],
  rows: readonly T[],
  written: (text: string) => string = markdownText,
): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.map(written).join(' | ')} |`;
  return [
    line(spec.map((c) => c.title)),
    `|${spec.map((c) => (c.align === 'left' ? '---' : '--:')).join('|')}|`,
    ...rows.map((row) => line(spec.map((c) => c.cell(row)))),
  ];
}

/** Of a cell of figures. */
export const numberClass = ({ align }: Pick<Column<never>, 'align'>): Html | string =>
  align === 'right' ? html` class="number"` : '';

/** A table that scrolls by itself; the first cell of a row names it. */
export function htmlTable<T>(
  label: string,
  spec: readonly Column<T>[],
  rows: readonly T[],
  more: {
    readonly classes?: string;
    readonly caption?: string;
    readonly row?: (row: T) => Html;
    /** Between rows. */
    readonly end?: string;
  } = {},
): Html {
  const head = spec.map((c) => html`<th scope="col"${numberClass(c)}>${c.title}</th>`);
  const cell = (c: Column<T>, row: T, i: number): Html =>
    i === 0 ? html`<th scope="row">${c.cell(row)}</th>` : html`<td${numberClass(c)}>${c.cell(row)}</td>`;
  const body = rows.map((row) => {
    const cells = spec.map((c, i) => cell(c, row, i));
    return html`<tr${more.row?.(row)}>${cells}</tr>${more.end ?? '\n'}`;
  });
  const classes = more.classes === undefined ? '' : html` class="${more.classes}"`;
  // A caption stands on a line of its own.
  const [caption, line] = more.caption === undefined ? ['', ''] : [html`<caption>${more.caption}</caption>`, '\n'];
  const parts = html`${caption}${line}<thead><tr>${head}</tr></thead>${line}<tbody>${body}</tbody>`;
  const table = html`<table${classes}>${parts}</table>`;
  return html`<div class="scroll" role="region" aria-label="${label}" tabindex="0">${table}</div>`;
}

/** A part of a report that is a paragraph and a table. */
export const tablePart = <T>(
  id: string,
  title: string,
  text: string,
  spec: readonly Column<T>[],
  rows: readonly T[],
): FixedPart => ({
  id,
  title,
  html: html`<p>${text}</p>
${htmlTable(title, spec, rows)}`,
  markdown: [`## ${markdownText(title)}`, '', markdownText(text), '', ...markdownTable(spec, rows), ''].join('\n'),
});

export type Cell = string | number | boolean | null | undefined;

/** Text that a spreadsheet would take for a formula is preceded by an apostrophe; quotes are doubled. */
export function csvCell(value: Cell): string {
  if (value === null || value === undefined) return '';
  if (typeof value !== 'string') return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export type CsvColumn<T> = readonly [name: string, cell: (row: T) => Cell];

/** A line of names, then a line a row. */
export const csvTable = <T>(spec: readonly CsvColumn<T>[], rows: readonly T[]): string =>
  [spec.map(([name]) => name), ...rows.map((row) => spec.map(([, cell]) => csvCell(cell(row))))]
    .map((cells) => `${cells.join(',')}\n`)
    .join('');
