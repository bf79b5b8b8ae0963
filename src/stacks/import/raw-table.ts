/** A table as it was read: rows of one class, in base units, and where they come from. */
import { group } from 'd3-array';
import type { TableSource } from '../stack-schema.js';
import type { OpShape } from '../../../kernels/op-class.js';
import type { OpClass } from '../../../kernels/op-classes.js';
import { median } from '../../numbers/statistics.js';
import type { MeasuredTime } from '../fit/fit-table.js';

export interface RawTable {
  readonly op: OpClass;
  readonly fixed: Readonly<Record<string, number>>;
  readonly rows: readonly MeasuredTime[];
  /** The shape whose repetitions are furthest apart: their slowest over their fastest. */
  readonly apart: { readonly shape: OpShape; readonly ratio: number };
  readonly source: Omit<TableSource, 'rowsUsed' | 'rowsDropped'>;
}

/** Collects rows by class and fixed sizes; a table holds the median of a shape's repetitions. */
export class Builders {
  readonly #rows: { op: OpClass; fixed: Record<string, number>; shape: OpShape; seconds: number }[] = [];

  add(op: OpClass, fixed: Record<string, number>, shape: OpShape, seconds: number): void {
    this.#rows.push({ op, fixed, shape, seconds });
  }

  tables(source: RawTable['source']): RawTable[] {
    const tables = group(this.#rows, ({ op, fixed }) => `${op} ${JSON.stringify(fixed)}`);
    return [...tables.values()].map((rows) => {
      const { op, fixed } = rows[0]!;
      const repeated = group(rows, ({ shape }) => Object.values(shape).join());
      const timed = [...repeated.values()].map((own) => ({
        shape: own[0]!.shape,
        seconds: median(own.map(({ seconds }) => seconds)),
      }));
      const apart = [...repeated.values()].map((own) => {
        const seconds = own.map((row) => row.seconds);
        return { shape: own[0]!.shape, ratio: Math.max(...seconds) / Math.min(...seconds) };
      });
      return { op, fixed, rows: timed, apart: apart.reduce((a, b) => (b.ratio > a.ratio ? b : a)), source };
    });
  }
}
