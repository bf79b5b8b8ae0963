/** Rows of a CSV table that somebody measured, with the usual mistakes answered in one line. */
import { parse } from 'csv-parse/sync';
import { UserError, show } from '../../errors.js';
import { displayPath, readTextFile } from '../../io/files.js';
import { refusePointer, requireColumns } from './checkout.js';

const MAX_FILE_BYTES = 32 * 2 ** 20;
const MAX_ROWS = 200_000;
/** Characters of a row: a file without line ends or with an open quote is refused where it passes them. */
const MAX_ROW_LENGTH = 2 ** 16;

export type CsvRow = Readonly<Record<string, string>>;

/**
 * All rows by column name.
 * @throws UserError for a file that cannot be read, is no CSV, holds no rows or too many, or lacks a column
 */
export function readCsvRows(path: string, columns: readonly string[]): CsvRow[] {
  const subject = `table ${show(displayPath(path))}`;
  const text = readTextFile(path, 'table', MAX_FILE_BYTES);
  refusePointer(text, subject);
  const header = text.indexOf('\n');
  if ((header === -1 ? text.length : header) > MAX_ROW_LENGTH)
    throw new UserError(
      `the first line of ${subject} has more than ${MAX_ROW_LENGTH} characters`,
      'its columns should be named there; check that it is the right file',
    );
  let rows: CsvRow[];
  try {
    rows = parse<CsvRow>(text, {
      columns: namesOf(subject),
      skip_empty_lines: true,
      trim: true,
      bom: true,
      max_record_size: MAX_ROW_LENGTH,
      to: MAX_ROWS + 1,
    });
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(
      `${subject} is not CSV: ${String((error as Error).message).split('\n')[0]}`,
      'it is cut off or damaged, or no table: check the path',
    );
  }
  if (rows.length === 0 || rows.length > MAX_ROWS)
    throw new UserError(
      `${subject} holds ${rows.length === 0 ? 'no' : `more than ${MAX_ROWS}`} rows`,
      'check that it is the right file',
    );
  requireColumns(Object.keys(rows[0]!), columns, subject);
  return rows;
}

/** The header's names. Of two columns with one name, nobody could say which is meant. */
const namesOf =
  (subject: string) =>
  (names: string[]): string[] => {
    const twice = names.find((name, i) => names.indexOf(name) !== i);
    if (twice !== undefined)
      throw new UserError(`${subject} has the column ${show(twice)} twice`, 'leave one of them out');
    return names;
  };

/** A decimal number of a cell, or NaN. */
export const cell = (row: CsvRow, column: string): number => {
  const text = row[column] ?? '';
  return /^[0-9.eE+-]+$/.test(text) ? Number(text) : NaN;
};

/** Whole numbers of cells, or null where one is none or is below `least`. */
export function wholeCells(row: CsvRow, columns: readonly string[], least = 1): number[] | null {
  const values = columns.map((column) => cell(row, column));
  return values.every((value) => Number.isInteger(value) && value >= least && value <= 2 ** 40) ? values : null;
}
