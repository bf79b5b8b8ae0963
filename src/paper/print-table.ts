/** The comparison for a terminal, at most 100 columns wide. */
import pc from 'picocolors';
import { columns, left, right, wrap, type Column } from '../report/text/text.js';
import { contradictionLines } from '../report/text/model-card.js';
import { WIDTH } from '../report/text/plan-table.js';
import { formatDecimalBytes } from '../numbers/units.js';
import { qualityTables, type QualityTable } from './quality-tables.js';
import { cellText } from './text.js';
import { VERDICTS, type Beyond, type Comparison, type PaperReport, type Verdict } from './types.js';

export const VERDICT_WORDS: Readonly<Record<Verdict, string>> = {
  exact: 'exact',
  'by-definition': 'by definition',
  inside: 'inside',
  explained: 'explained',
  undecided: 'undecided',
  'not-predictable': 'not predictable',
  unexplained: 'UNEXPLAINED',
  wrong: 'WRONG',
};

/** `120 figures: 24 exact, 55 by definition, 12 inside the interval, …` */
export const tally = (r: PaperReport): string => `${r.comparisons.length} figures: ${countsOf(r.comparisons)}`;

/** How many of some figures have which verdict. */
export function countsOf(comparisons: readonly Comparison[]): string {
  const words = { ...VERDICT_WORDS, inside: 'inside the interval', explained: 'explained differences' };
  return VERDICTS.map((v) => ({ v, n: comparisons.filter((c) => c.verdict === v).length }))
    .filter(({ n }) => n > 0)
    .map(({ v, n }) => `${n} ${n === 1 && v === 'explained' ? 'explained difference' : words[v]}`)
    .join(', ');
}

/** What each verdict means, in the words of the report. */
export const LEGEND =
  'exact: the planner’s value has the digits that the paper prints. by definition: so it has, but the value ' +
  'follows from settings printed beside it, and any label would pass. inside: the paper’s value lies in the ' +
  'planner’s interval. explained: it does not, for a reason that was itself checked with numbers. undecided: ' +
  'whether that reason holds depends on what the paper does not state. ' +
  'not predictable: it needs the model’s weights.';

export const BEYOND_TITLE = 'What the paper does not say, and the model does';
export const QUALITY_TITLE = 'Quality as published';
export const QUALITY_TEXT = 'Carried with their tables and never predicted.';
export const CONTRADICTIONS_TITLE = 'Where the published figures contradict each other';

export const deviceLine = (r: PaperReport): string =>
  `${r.device.name}, ${formatDecimalBytes(r.device.vramBytes)}; memory from the planner, times from ` +
  `${r.device.calibration ? r.device.calibration.file : 'the datasheet'}`;

export function paperTable(r: PaperReport, options: { colour: boolean }): string {
  const c = pc.createColors(options.colour);
  const paint = (verdict: Verdict) =>
    verdict === 'wrong' || verdict === 'unexplained'
      ? c.red
      : verdict === 'explained' || verdict === 'undecided'
        ? c.yellow
        : verdict === 'not-predictable' || verdict === 'by-definition'
          ? c.dim
          : c.green;
  const lines = [
    ...wrap(`The paper held against the model: ${r.paper}`, WIDTH).map(c.bold),
    ...wrap(deviceLine(r), WIDTH),
    ...wrap(tally(r), WIDTH),
    '',
    ...wrap(LEGEND, WIDTH).map((l) => c.dim(l)),
  ];
  for (const section of sectionsOf(r)) {
    const list = r.comparisons.filter((x) => x.section === section);
    const [head, ...body] = columns(COMPARISON_COLUMNS, list) as [string, ...string[]];
    lines.push('', c.bold(section), c.dim(head));
    list.forEach((x, i) => {
      lines.push(paint(x.verdict)(body[i] as string));
      const next = list[i + 1];
      if (!next || next.reason !== x.reason || next.source !== x.source)
        lines.push(...wrap(`  ${x.source}: ${x.reason}`.trimStart(), WIDTH - 2, '').map((l) => c.dim(`  ${l}`)));
    });
  }
  lines.push('', c.bold(BEYOND_TITLE));
  for (const b of r.beyond)
    lines.push('', c.bold(b.title), ...wrap(b.text, WIDTH), ...columns(beyondColumns(b), b.rows));
  lines.push(
    '',
    c.bold(QUALITY_TITLE),
    ...wrap(`${QUALITY_TEXT} Numbers after a table name what contradicts it; the list follows.`, WIDTH),
  );
  const { figures, contradictions } = r.quality;
  for (const t of qualityTables(figures, contradictions))
    lines.push(
      '',
      ...qualityLines(
        t,
        contradictions.map((x) => x.id),
      ),
    );
  lines.push('', c.bold(CONTRADICTIONS_TITLE), ...contradictionLines(contradictions, WIDTH));
  if (r.notes.length > 0) lines.push('', ...r.notes.flatMap((n) => wrap(`- ${n}`, WIDTH, '  ')).map((l) => c.dim(l)));
  return `${lines.join('\n')}\n`;
}

export const sectionsOf = (r: PaperReport): string[] => [...new Set(r.comparisons.map((x) => x.section))];

/** What is compared; printers add where it is from and why. */
export const COMPARISON_COLUMNS: readonly Column<Comparison>[] = [
  left('quantity', (x) => x.quantity),
  right('paper', (x) => x.published.text),
  right('model', (x) => x.model?.text ?? '–'),
  left('verdict', (x) => VERDICT_WORDS[x.verdict]),
];

export const beyondColumns = ({ columns: all }: Beyond): Column<Beyond['rows'][number]>[] =>
  all.map(({ title, unit }, i) => (unit === 'text' ? left : right)(title, (row) => cellText(row[i] ?? null, unit)));

type Row = QualityTable['rows'][number];

/** @param part of the columns, by their indices */
export const qualityColumns = (t: QualityTable, part: readonly number[] = [...t.columns.keys()]): Column<Row>[] => [
  left('', (r) => r.label),
  ...part.map((i) => right<Row>(t.columns[i]!, (r) => r.cells[i]!)),
];

/** A table, its columns in as many parts as the width asks for. */
function qualityLines(t: QualityTable, ids: readonly string[]): string[] {
  const numbers = t.contradictions.map((c) => ids.indexOf(c.id) + 1);
  const heading = `${t.source}, ${t.model}${numbers.length > 0 ? ` (contradicted: ${numbers.join(', ')})` : ''}`;
  const label = Math.max(...t.rows.map((r) => r.label.length));
  const parts: number[][] = [[]];
  let width = label;
  t.columns.forEach((title, i) => {
    const needed = 1 + Math.max(title.length, ...t.rows.map((r) => (r.cells[i] as string).length));
    if (width + needed > WIDTH) {
      parts.push([]);
      width = label;
    }
    width += needed;
    (parts.at(-1) as number[]).push(i);
  });
  return [...wrap(heading, WIDTH), ...parts.flatMap((part) => columns(qualityColumns(t, part), t.rows))];
}
