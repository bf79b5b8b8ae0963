/** The comparison as a Markdown document. */
import { markdownText } from '../report/plan-csv.js';
import { deviceLine, LEGEND, sectionsOf, tally, VERDICT_WORDS } from './print-table.js';
import { qualityTables } from './quality-tables.js';
import { cellText } from './text.js';
import type { PaperReport, Unit } from './types.js';

export function paperMarkdown(r: PaperReport): string {
  const lines = ['# The paper held against the model', '', `*${markdownText(r.paper)}*`, '', `${markdownText(deviceLine(r))}.`, '', `**${markdownText(tally(r))}.**`, '', markdownText(LEGEND)];
  for (const section of sectionsOf(r)) {
    const list = r.comparisons.filter((x) => x.section === section);
    lines.push('', `## ${markdownText(section)}`, '', ...table(['quantity', 'paper', 'model', 'verdict', 'source', 'why'], ['text', 'count', 'count', 'text', 'text', 'text'],
      list.map((x) => [x.quantity, x.published.text, x.model?.text ?? '–', VERDICT_WORDS[x.verdict], x.source, x.reason])));
  }
  lines.push('', '## What the paper does not say, and the model does');
  for (const b of r.beyond) {
    lines.push('', `### ${markdownText(b.title)}`, '', markdownText(b.text), '', ...table(b.columns.map((c) => c.title), b.columns.map((c) => c.unit), b.rows.map((row) => row.map((cell, i) => cellText(cell, b.columns[i]?.unit ?? 'text')))));
  }
  lines.push('', '## Quality as published', '', 'Carried with their tables and never predicted.');
  for (const t of qualityTables(r.quality.figures, r.quality.contradictions)) {
    lines.push('', `### ${markdownText(`${t.source}, ${t.model}`)}`, '', ...table(['', ...t.columns], ['text', ...t.columns.map((): Unit => 'count')], t.rows.map((row) => [row.label, ...row.cells])));
    if (t.contradictions.length > 0) lines.push('', ...t.contradictions.map((c) => `- contradicted on ${markdownText(c.subject)}`));
  }
  lines.push('', '## Where the published figures contradict each other', '');
  for (const c of r.quality.contradictions) lines.push(`- **${markdownText(c.subject)}**: ${markdownText(c.figures.map((f) => `${f.value} (${f.source})`).join('; '))}. ${markdownText(c.explanation)}`);
  if (r.notes.length > 0) lines.push('', ...r.notes.map((n) => `*${markdownText(n)}*`));
  return `${lines.join('\n')}\n`;
}

/** A Markdown table; columns of numbers to the right. */
function table(titles: readonly string[], units: readonly Unit[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.map(markdownText).join(' | ')} |`;
  return [line(titles), `|${units.map((u) => (u === 'text' ? '---' : '--:')).join('|')}|`, ...rows.map(line)];
}
