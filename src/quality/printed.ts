/** Reads the paper's printed tables as figures: every number of a cell, or none where a column is no figure. */
import type { CodecKind } from '../codecs/codec.js';
import { type Common, type Decoder, type Metric, type QualityFigure, type QualityModel, figure } from './figure.js';
import { PAPER_TABLES } from './paper-tables.js';

/** A table by its LaTeX label. */
export type PaperTable = keyof typeof PAPER_TABLES;

/** Rows of cells, the titles first. Cells are as printed. */
export const cellsOf = (table: PaperTable): readonly (readonly string[])[] =>
  PAPER_TABLES[table]
    .trim()
    .split('\n')
    .map((line) => line.split(' | '));

/** The cell of the row that begins with `label`, under a title. */
export function cellAt(table: PaperTable, label: string, title: string): string {
  const [titles = [], ...rows] = cellsOf(table);
  const cell = rows.find(([first]) => first === label)?.[titles.indexOf(title)];
  if (cell === undefined) throw new Error(`Table ${table} has no ${title} of ${label}`);
  return cell;
}

/** The numbers of a cell, one for each part of `0.707 / 0.671`; null where it has none (`n/a`, words). */
export const numbersIn = (cell: string): readonly (number | null)[] =>
  cell.split(' / ').map((part) => (/^[-+]?[\d.,]+$/.test(part) ? Number(part.replaceAll(',', '')) : null));

/** Where a number stands. */
export interface Place {
  readonly row: readonly string[];
  /** The title of its column. */
  readonly title: string;
  /** The line of one cell above, which heads a part of the table; empty without one. */
  readonly heading: string;
  /** Which number of its cell. */
  readonly part: number;
}

/**
 * Figures of a table, row by row.
 * @param read what a number is; null where it is none (a label, or derived from others)
 */
export function readTable(
  table: PaperTable,
  read: (place: Place) => readonly [Omit<Common, 'source'>, Metric] | null,
): QualityFigure[] {
  const [titles = [], ...rows] = cellsOf(table);
  let heading = '';
  return rows.flatMap((row) => {
    if (row.length === 1) heading = row[0] as string;
    return row.flatMap((cell, column) =>
      numbersIn(cell).flatMap((value, part) => {
        if (value === null) return [];
        const found = read({ row, title: titles[column] as string, heading, part });
        return found === null ? [] : [figure({ source: `Table ${table}`, ...found[0] }, found[1], value)];
      }),
    );
  });
}

/** A column: its metric (or those of the parts of a cell) and how it was scored. */
export interface ColumnOf extends Pick<Common, 'protocol' | 'decoder' | 'variant'> {
  readonly metric: Metric | readonly Metric[];
  /** Items scored, as the appendix states them: of codecs, and of the teacher. */
  readonly items: number | null;
  readonly teacherItems: number | null;
}

/** A column. @param items of codecs @param teacherItems of the teacher */
export const column = (
  metric: ColumnOf['metric'],
  protocol: string,
  decoder: Decoder | null = null,
  items: number | null = null,
  teacherItems = items,
): ColumnOf => ({ metric, protocol, decoder, items, teacherItems });

/** What a row (or column) is about: nothing for the teacher. */
export type Subject = Pick<Common, 'codec' | 'ratioLabel' | 'items' | 'variant' | 'pathClass' | 'eviction'>;

/** Figures of a table with a subject a row and a metric a column. Columns that are not given are no figures. */
export function readColumns(
  table: PaperTable,
  model: QualityModel,
  columns: Readonly<Record<string, ColumnOf>>,
  subjectOf: (row: readonly string[]) => Subject,
): QualityFigure[] {
  return readTable(table, ({ row, title, part }) => {
    const found = columns[title];
    if (!found) return null;
    const { metric, items, teacherItems, protocol, decoder, variant } = found;
    const subject = subjectOf(row);
    const ofTeacher = subject.codec === undefined;
    return [
      {
        model,
        protocol,
        decoder,
        items: ofTeacher ? teacherItems : items,
        ...(variant === undefined || ofTeacher ? {} : { variant }),
        ...subject,
      },
      typeof metric === 'string' ? metric : (metric[part] as Metric),
    ];
  });
}

/** Codecs by their names in the paper. */
const CODECS: Readonly<Record<string, CodecKind>> = {
  LLA: 'lla',
  'LLA-2D': 'lla-2d',
  mla_head: 'mla-head',
  cla: 'cla',
  kv_quant: 'kv-quant',
  'final-loop reuse': 'final-loop',
};

/** The codec and ratio that a label names: `LLA 4.00×`, or `mla_head (head)` beside `4×`. Nothing for the teacher. */
export function subjectNamed(label: string, ratio = label): Subject {
  if (/^(?:Ouro )?teacher/.test(label)) return {};
  const codec = CODECS[label.replace(/ (?:[\d.]+×|\().*$/, '')];
  const ratioLabel = /^(?:\S+ )?([\d.]+)×/.exec(ratio)?.[1];
  if (codec === undefined || ratioLabel === undefined) throw new Error(`no codec and ratio in ${label}, ${ratio}`);
  return { codec, ratioLabel };
}
