/** Screened tables become a stack file. */
import { group } from 'd3-array';
import { sum } from '../../numbers/statistics.js';
import { STACK_SCHEMA_VERSION, stackFileSchema, type StackFile } from '../stack-schema.js';
import type { OpClass } from '../../../kernels/op-classes.js';
import type { Rates } from '../../../kernels/op-class.js';
import { fitTable } from './fit-table.js';
import type { RawTable } from '../import/raw-table.js';
import type { ScreenRates } from '../import/screen.js';

/** Knots that a file keeps of each class: what its size allows, shared by how much a class needs. */
export const MOST_KNOTS: Readonly<Record<OpClass, number>> = {
  product: 6900,
  'product-fp8': 6900,
  'decode-attention': 1700,
  'decode-attention-grouped': 4200,
  'decode-attention-latent': 1000,
  'prefill-attention': 1000,
  'prefill-attention-grouped': 2800,
  'decode-attention-fp8': 1200,
  'decode-attention-grouped-fp8': 2400,
  'prefill-attention-fp8': 250,
  'prefill-attention-grouped-fp8': 600,
  'all-reduce': 200,
  norm: 200,
  rope: 200,
  activation: 200,
  quantise: 100,
};

/** A table that passed the screen. */
export interface PassedTable extends RawTable {
  readonly dropped: number;
}

/** Fewest shapes from which a table is fitted. */
const FEWEST_ROWS = 12;

export interface StackIdentity {
  readonly stack: string;
  readonly version: string;
  readonly device: string;
}

/**
 * Fits every table.
 * @param droppedNotes what was left out, and why
 * @param onTable      called before each table
 */
export function makeStackFile(
  identity: StackIdentity,
  tables: readonly PassedTable[],
  rates: ScreenRates,
  droppedNotes: readonly string[],
  onTable: (op: OpClass, rows: number) => void = () => {},
): StackFile {
  const { memoryBytesPerSecond, linkBytesPerSecond, operationsPerSecond } = rates;
  const datasheet: Rates = { memoryBytesPerSecond, linkBytesPerSecond, operationsPerSecond };
  const used = tables.filter((table) => table.rows.length >= FEWEST_ROWS);
  const keyOf = ({ source }: PassedTable): string => JSON.stringify([source.path, source.less]);
  const bySource = group(used, keyOf);
  const keys = [...bySource.keys()];
  const sources = [...bySource.values()].map((of) => ({
    ...of[0]!.source,
    rowsUsed: sum(of.map(({ rows }) => rows.length)),
    rowsDropped: sum(of.map(({ dropped }) => dropped)),
  }));
  return stackFileSchema.parse({
    schema: 'lla-sim/stack',
    schemaVersion: STACK_SCHEMA_VERSION,
    ...identity,
    rates: datasheet,
    tables: used.map((table) => {
      onTable(table.op, table.rows.length);
      return {
        ...fitTable(table.op, table.fixed, table.rows, datasheet, MOST_KNOTS[table.op]),
        source: keys.indexOf(keyOf(table)),
      };
    }),
    sources,
    dropped: [...droppedNotes],
  });
}
