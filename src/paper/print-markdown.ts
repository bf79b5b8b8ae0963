/** The comparison as a Markdown document, or as the last part of one. */
import { figuresText } from '../quality/contradictions.js';
import { markdownTable, markdownText } from '../report/tables.js';
import { left, type Column } from '../report/text/text.js';
import {
  BEYOND_TITLE,
  beyondColumns,
  COMPARISON_COLUMNS,
  CONTRADICTIONS_TITLE,
  deviceLine,
  LEGEND,
  qualityColumns,
  QUALITY_TEXT,
  QUALITY_TITLE,
  sectionsOf,
  tally,
} from './print-table.js';
import { qualityTables } from './quality-tables.js';
import type { Comparison, PaperReport } from './types.js';

const COMPARED: readonly Column<Comparison>[] = [
  ...COMPARISON_COLUMNS,
  left('source', (x) => x.source),
  left('why', (x) => x.reason),
];

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
    lines.push('', `${h2} ${markdownText(section)}`, '', ...markdownTable(COMPARED, list));
  }
  lines.push('', `${h2} ${BEYOND_TITLE}`);
  for (const b of r.beyond) {
    const table = markdownTable(beyondColumns(b), b.rows);
    lines.push('', `${h3} ${markdownText(b.title)}`, '', markdownText(b.text), '', ...table);
  }
  lines.push('', `${h2} ${QUALITY_TITLE}`, '', QUALITY_TEXT);
  for (const t of qualityTables(r.quality.figures, r.quality.contradictions)) {
    const table = markdownTable(qualityColumns(t), t.rows);
    lines.push('', `${h3} ${markdownText(`${t.source}, ${t.model}`)}`, '', ...table);
    if (t.contradictions.length > 0)
      lines.push('', 'Contradicted on:', '', ...t.contradictions.map((c) => `- ${markdownText(c.subject)}.`));
  }
  lines.push('', `${h2} ${CONTRADICTIONS_TITLE}`, '');
  for (const c of r.quality.contradictions)
    lines.push(`- **${markdownText(c.subject)}**: ${markdownText(`${figuresText(c)}. ${c.explanation}`)}`);
  if (r.notes.length > 0) lines.push('', ...r.notes.map((n) => `*${markdownText(n)}*`));
  return `${lines.join('\n')}\n`;
}
