/** Which version of a kind of table is used: the latest that passes the screen. */
import { screen, type ScreenRates } from './screen.js';
import type { RawTable } from './raw-table.js';
import type { PassedTable } from '../fit/stack-file.js';

/** One kind of table in several versions, newest first. */
export interface TableVersions {
  readonly name: string;
  readonly versions: readonly { readonly path: string; read(): Promise<readonly RawTable[]> }[];
}

export interface Selected {
  readonly tables: readonly PassedTable[];
  /** What was left out, and why, one line each. */
  readonly notes: readonly string[];
}

/** Reads versions from the newest on until every table of one passes; older ones are not read. */
export async function selectTables(kinds: readonly TableVersions[], rates: ScreenRates): Promise<Selected> {
  const tables: PassedTable[] = [];
  const notes: string[] = [];
  for (const kind of kinds) {
    for (const version of kind.versions) {
      const screened = (await version.read()).map((table) => ({ table, result: screen(table, rates) }));
      if (screened.length === 0) {
        notes.push(`${version.path}: no rows of the types that are read; not used`);
        continue;
      }
      const failed = screened.find(({ result }) => !result.passes);
      for (const { result } of screened)
        for (const reason of result.reasons)
          notes.push(`${version.path}: ${reason}; ${failed ? 'table not used' : 'rows dropped'}`);
      if (failed) continue;
      tables.push(...screened.map(({ table, result }) => ({ ...table, rows: result.rows, dropped: result.dropped })));
      break;
    }
  }
  return { tables, notes };
}
