/** Reads the columns of a parquet file that a table needs, with the usual mistakes answered in one line. */
import { readFileSync, statSync } from 'node:fs';
import { parquetMetadata, parquetReadObjects, parquetSchema } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { UserError, show } from '../../errors.js';
import { displayPath } from '../../io/files.js';
import { refusePointer, requireColumns } from './checkout.js';

const MAX_FILE_BYTES = 64 * 2 ** 20;
const MAX_ROWS = 2_000_000;

/** A row by column name; columns that the file lacks are absent. */
export type Row = Readonly<Record<string, unknown>>;

/**
 * The rows of a table with the columns named and no others.
 * @param optional columns that are read where the file has them
 * @throws UserError for a file that cannot be read, a pointer, a damaged table and a missing column
 */
export async function readParquet(
  path: string,
  columns: readonly string[],
  optional: readonly string[] = [],
): Promise<Row[]> {
  const subject = `table ${show(displayPath(path))}`;
  const bytes = readBytes(path, subject);
  refusePointer(bytes.toString('latin1', 0, 64), subject);
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
  let rows: Row[];
  let known: string[];
  try {
    const metadata = parquetMetadata(file);
    if (metadata.num_rows > BigInt(MAX_ROWS) || metadata.num_rows < 0n) throw new Error('too many rows');
    known = parquetSchema(metadata).children.map((child) => child.element.name);
    const wanted = [...columns, ...optional].filter((name) => known.includes(name));
    rows = columns.every((name) => known.includes(name))
      ? await parquetReadObjects({ file, metadata, compressors, columns: wanted })
      : [];
  } catch {
    // The reader's own words tell of bytes and fields that nobody knows.
    throw new UserError(
      `${subject} is no readable parquet file`,
      'fetch it again: it is cut off, damaged or another file',
    );
  }
  requireColumns(known, columns, subject);
  return rows;
}

function readBytes(path: string, subject: string): Buffer {
  try {
    const size = statSync(path);
    if (!size.isFile()) throw new UserError(`${subject} is not a regular file`, 'check the path');
    if (size.size > MAX_FILE_BYTES)
      throw new UserError(`${subject} has ${size.size} bytes, more than ${MAX_FILE_BYTES}`, 'check the path');
    return readFileSync(path);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(
      `${subject} cannot be read (${String((error as NodeJS.ErrnoException).code)})`,
      'check the path',
    );
  }
}

/** A size in a row: a whole number of at least `least`, or undefined. */
export function sizeIn(row: Row, column: string, least = 1): number | undefined {
  const value = row[column];
  const size = typeof value === 'bigint' || typeof value === 'number' ? Number(value) : NaN;
  return Number.isInteger(size) && size >= least && size <= 2 ** 40 ? size : undefined;
}

/** A time in a row, from milliseconds, or undefined. */
export function millisecondsIn(row: Row, column: string): number | undefined {
  const value = row[column];
  return typeof value === 'number' && value > 0 && value < 1e6 ? value / 1e3 : undefined;
}
