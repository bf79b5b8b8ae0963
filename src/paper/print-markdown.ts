/** The comparison as a Markdown document, or as the last part of one. */
import { markdownTable, markdownText } from '../report/tables.js';
import { left, right } from '../report/text/text.js';
import {
  BEYOND_TITLE,
  CONTRADICTIONS_TITLE,
  deviceLine,
  LEGEND,
  QUALITY_TEXT,
  QUALITY_TITLE,
  sectionsOf,
  tally,
  VERDICT_WORDS,
} from './print-table.js';
import { qualityTables } from './quality-tables.js';
import { cellText } from './text.js';
import type { PaperReport, Unit } from './types.js';

/** @param level of its first heading: 1 for a document of its own */
export function paperMarkdown(r: PaperReport, level = 1): string {
  const [h1, h2, h3] = [level, level + 1, level + 2].map((n) => '#'.repeat(n)) as [string, string, string];
  const lines = [
    `${h1} The paper held against the model`,
    '',
    `*${markdownText(r.paper)}*`,
    '',
    `${markdownText(deviceLine(r))}.`,
    '',
    `**${markdownText(tally(r))}.**`,
    '',
    markdownText(LEGEND),
  ];
  for (const section of sectionsOf(r)) {
    const list = r.comparisons.filter((x) => x.section === section);
    lines.push(
      '',
      `${h2} ${markdownText(section)}`,
      '',
      ...table(
        ['quantity', 'paper', 'model', 'verdict', 'source', 'why'],
        ['text', 'count', 'count', 'text', 'text', 'text'],
        list.map((x) => [
          x.quantity,
          x.published.text,
          x.model?.text ?? '–',
          VERDICT_WORDS[x.verdict],
          x.source,
          x.reason,
        ]),
      ),
    );
  }
  lines.push('', `${h2} ${BEYOND_TITLE}`);
  for (const b of r.beyond) {
    lines.push(
      '',
      `${h3} ${markdownText(b.title)}`,
      '',
      markdownText(b.text),
      '',
      ...table(
        b.columns.map((c) => c.title),
        b.columns.map((c) => c.unit),
        b.rows.map((row) => row.map((cell, i) => cellText(cell, b.columns[i]?.unit ?? 'text'))),
      ),
    );
  }
  lines.push('', `${h2} ${QUALITY_TITLE}`, '', QUALITY_TEXT);
  for (const t of qualityTables(r.quality.figures, r.quality.contradictions)) {
    lines.push(
      '',
      `${h3} ${markdownText(`${t.source}, ${t.model}`)}`,
      '',
      ...table(
        ['', ...t.columns],
        ['text', ...t.columns.map((): Unit => 'count')],
        t.rows.map((row) => [row.label, ...row.cells]),
      ),
    );
    if (t.contradictions.length > 0)
      lines.push('', 'Contradicted on:', '', ...t.contradictions.map((c) => `- ${markdownText(c.subject)}.`));
  }
  lines.push('', `${h2} ${CONTRADICTIONS_TITLE}`, '');
  for (const c of r.quality.contradictions)
    lines.push(
      `- **${markdownText(c.subject)}**: ` +
        `${markdownText(c.figures.map((f) => `${f.value} (${f.source})`).join('; '))}. ` +
        `${markdownText(c.explanation)}`,
    );
  if (r.notes.length > 0) lines.push('', ...r.notes.map((n) => `*${markdownText(n)}*`));
  return `${lines.join('\n')}\n`;
}

/** A Markdown table; columns of numbers to the right. */
const table = (titles: readonly string[], units: readonly Unit[], rows: readonly (readonly string[])[]): string[] =>
  markdownTable(
    titles.map((title, i) => (units[i] === 'text' ? left : right)<readonly string[]>(title, (row) => row[i]!)),
    rows,
  );
