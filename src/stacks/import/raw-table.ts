/** A table as it was read: rows of one class, in base units, and where they come from. */
import type { TableSource } from '../stack-schema.js';
import type { OpShape } from '../../../kernels/op-class.js';
import type { OpClass } from '../../../kernels/op-classes.js';
import { median } from '../../numbers/statistics.js';
import type { MeasuredTime } from '../fit/fit-table.js';

export interface RawTable {
  readonly op: OpClass;
  readonly fixed: Readonly<Record<string, number>>;
  readonly rows: readonly MeasuredTime[];
  readonly source: Omit<TableSource, 'rowsUsed' | 'rowsDropped'>;
}

/** Collects rows by class and fixed sizes; a table holds the median of a shape's repetitions. */
export class Builders {
  readonly #tables = new Map<
    string,
    { op: OpClass; fixed: Record<string, number>; groups: Map<string, { shape: OpShape; seconds: number[] }> }
  >();

  add(op: OpClass, fixed: Record<string, number>, shape: OpShape, seconds: number): void {
    const key = `${op} ${JSON.stringify(fixed)}`;
    const { groups } = this.#tables.get(key) ?? this.#tables.set(key, { op, fixed, groups: new Map() }).get(key)!;
    const at = Object.values(shape).join();
    const group = groups.get(at);
    if (group) group.seconds.push(seconds);
    else groups.set(at, { shape, seconds: [seconds] });
  }

  tables(source: RawTable['source']): RawTable[] {
    return [...this.#tables.values()].map(({ op, fixed, groups }) => ({
      op,
      fixed,
      rows: [...groups.values()].map(({ shape, seconds }) => ({ shape, seconds: median(seconds) })),
      source,
    }));
  }
}
