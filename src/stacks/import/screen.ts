/**
 * Which measured times can be true. Physical limits only: more bytes a second than the memory has, with caches that no
 * L2 holds, or more operations than the matrix units do, are faults of the measurement.
 */
import { classSpec } from '../../../kernels/op-classes.js';
import type { OpWork, Rates } from '../../../kernels/op-class.js';
import type { MeasuredTime } from '../fit/fit-table.js';
import { PEAK_MARGIN } from '../../cost/law.js';
import { L2_MULTIPLE } from '../warm.js';
import type { RawTable } from './raw-table.js';

/** Share of rows that a table may lose. */
const MOST_DROPPED = 0.05;

export interface ScreenRates extends Rates {
  readonly l2Bytes: number;
}

/** Why this time is impossible, or null. */
function impossible(work: OpWork, seconds: number, rates: ScreenRates): string | null {
  const inCaches = (work.cacheBytes ?? work.bytes) <= L2_MULTIPLE * rates.l2Bytes;
  const bandwidth = work.onLink ? rates.linkBytesPerSecond : rates.memoryBytesPerSecond;
  if (!inCaches && work.bytes / seconds > bandwidth) return 'more bytes a second than the datasheet';
  if (work.operations / seconds > PEAK_MARGIN * rates.operationsPerSecond)
    return 'more operations a second than the peak';
  return null;
}

export interface Screened {
  readonly rows: readonly MeasuredTime[];
  readonly dropped: number;
  /** Whether so few rows are left out that the rest is trusted. */
  readonly passes: boolean;
}

/** Drops impossible rows. */
export function screen(table: Pick<RawTable, 'op' | 'fixed' | 'rows'>, rates: ScreenRates): Screened {
  const spec = classSpec(table.op);
  const rows = table.rows.filter(
    (row) => impossible(spec.work({ ...row.shape, ...table.fixed }), row.seconds, rates) === null,
  );
  const dropped = table.rows.length - rows.length;
  return { rows, dropped, passes: rows.length > 0 && dropped <= MOST_DROPPED * table.rows.length };
}
