/** A table as it was read: rows of one class, in base units, and where they come from. */
import type { TableSource } from '../stack-schema.js';
import type { OpShape } from '../../../kernels/op-class.js';
import type { OpClass } from '../../../kernels/op-classes.js';
import type { MeasuredTime } from '../fit/fit-table.js';

export interface RawTable {
  readonly op: OpClass;
  readonly fixed: Readonly<Record<string, number>>;
  readonly rows: readonly MeasuredTime[];
  readonly source: Omit<TableSource, 'rowsUsed' | 'rowsDropped'>;
}

/** Collects repetitions of a shape; the table holds their medians. */
export class TableBuilder {
  readonly #groups = new Map<string, { shape: OpShape; seconds: number[] }>();

  add(shape: OpShape, seconds: number): void {
    const key = Object.values(shape).join();
    const group = this.#groups.get(key);
    if (group) group.seconds.push(seconds);
    else this.#groups.set(key, { shape, seconds: [seconds] });
  }

  rows(): MeasuredTime[] {
    return [...this.#groups.values()].map(({ shape, seconds }) => {
      const sorted = [...seconds].sort((a, b) => a - b);
      const half = sorted.length >> 1;
      return { shape, seconds: sorted.length % 2 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2 };
    });
  }
}

/** Builders by class and fixed sizes. */
export class Builders {
  readonly #builders = new Map<string, { op: OpClass; fixed: Record<string, number>; table: TableBuilder }>();

  add(op: OpClass, fixed: Record<string, number>, shape: OpShape, seconds: number): void {
    const key = `${op} ${JSON.stringify(fixed)}`;
    let entry = this.#builders.get(key);
    if (!entry) this.#builders.set(key, (entry = { op, fixed, table: new TableBuilder() }));
    entry.table.add(shape, seconds);
  }

  tables(source: RawTable['source']): RawTable[] {
    return [...this.#builders.values()].map(({ op, fixed, table }) => ({ op, fixed, rows: table.rows(), source }));
  }
}
