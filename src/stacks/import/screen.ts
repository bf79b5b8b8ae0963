/**
 * Which measured times can be true. Faults of the measurement are more bytes a second than the memory has, with caches
 * that no L2 holds, more operations than the matrix units do, and single times far above those of all shapes around.
 */
import { classSpec } from '../../../kernels/op-classes.js';
import type { OpWork, Rates } from '../../../kernels/op-class.js';
import type { MeasuredTime } from '../fit/fit-table.js';
import { present } from '../../present.js';
import { PEAK_MARGIN } from '../../cost/law.js';
import { L2_MULTIPLE } from '../warm.js';
import type { RawTable } from './raw-table.js';

/**
 * Times the slowest neighbour, a larger shape among them, beyond which the machine was disturbed. Of 800,000 rows of
 * AIConfigurator's tables 330 are: a sum of 4 KB over eight A100 took 14.8 µs, of 2 and of 8 KB 5.6 and 6.3.
 */
const DISTURBED = 1.5;

/** Share of rows that a table may lose. */
const MOST_DROPPED = 0.05;

/** Times the datasheet's time which no kernel takes in all shapes: such a table is in another unit than seconds. */
const OTHER_UNIT = 100;
/** Shapes that take less by the datasheet are launches above all. */
const LEAST_FLOOR_SECONDS = 5e-6;

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

/** The least multiple of the datasheet's time that a shape takes; null where all shapes are small. */
function leastOverFloor(rows: readonly MeasuredTime[], workOf: (row: MeasuredTime) => OpWork, rates: ScreenRates) {
  const multiples = rows.flatMap((row) => {
    const work = workOf(row);
    const bandwidth = work.onLink ? rates.linkBytesPerSecond : rates.memoryBytesPerSecond;
    const floor = Math.max(work.bytes / bandwidth, work.operations / rates.operationsPerSecond);
    return floor >= LEAST_FLOOR_SECONDS && floor < Infinity ? [row.seconds / floor] : [];
  });
  return multiples.length === 0 ? null : Math.min(...multiples);
}

/**
 * Whether a time lies far above those of the shapes around it: one size more or less, each of the others the same.
 * There must be larger ones, but for one size: a kernel that is slow for one size stays, at the table's edge too.
 */
function disturbedIn(rows: readonly MeasuredTime[]): (row: MeasuredTime) => boolean {
  const names = Object.keys(rows[0]?.shape ?? {});
  const keyOf = (sizes: readonly number[]): string => sizes.join();
  const sizesOf = ({ shape }: MeasuredTime): number[] => names.map((name) => shape[name]!);
  const measured = new Map(rows.map((row) => [keyOf(sizesOf(row)), row.seconds]));
  const beside = names.map((name) => {
    const knots = [...new Set(rows.map(({ shape }) => shape[name]!))].sort((a, b) => a - b);
    return new Map(knots.map((knot, i) => [knot, { smaller: knots[i - 1], larger: knots[i + 1] }]));
  });
  return (row) => {
    const sizes = sizesOf(row);
    const around = (side: 'smaller' | 'larger'): number[] =>
      sizes.flatMap((size, axis) => {
        const next = beside[axis]!.get(size)![side];
        const seconds = next === undefined ? undefined : measured.get(keyOf(sizes.with(axis, next)));
        return seconds === undefined ? [] : [seconds];
      });
    const [smaller, larger] = [around('smaller'), around('larger')];
    return (
      larger.length >= Math.max(1, names.length - 1) &&
      smaller.length + larger.length > 1 &&
      row.seconds > DISTURBED * Math.max(...smaller, ...larger)
    );
  };
}

export interface Screened {
  readonly rows: readonly MeasuredTime[];
  readonly dropped: number;
  /** What was dropped, with its reason. */
  readonly reasons: readonly string[];
  /** Whether so few rows are left out that the rest is trusted. */
  readonly passes: boolean;
}

/** Drops rows that cannot be true. */
export function screen(table: Pick<RawTable, 'op' | 'fixed' | 'rows'>, rates: ScreenRates): Screened {
  const spec = classSpec(table.op);
  const workOf = (row: MeasuredTime): OpWork => spec.work({ ...row.shape, ...table.fixed });
  const possible = table.rows.filter((row) => impossible(workOf(row), row.seconds, rates) === null);
  const least = leastOverFloor(possible, workOf, rates);
  const otherUnit = least !== null && least > OTHER_UNIT;
  const disturbed = disturbedIn(possible);
  const rows = possible.filter((row) => !disturbed(row));
  const dropped = table.rows.length - rows.length;
  const name = [table.op, ...Object.values(table.fixed)].join(' ');
  const reason = (count: number, words: string): string | false =>
    count > 0 && `${count} of ${table.rows.length} rows of ${name} ${words}`;
  return {
    rows,
    dropped,
    reasons: present([
      reason(table.rows.length - possible.length, 'are faster than the GPU can be'),
      otherUnit &&
        reason(
          possible.length,
          `take at least ${Math.floor(least)} times what the datasheet allows: give times in seconds`,
        ),
      reason(possible.length - rows.length, `take over ${DISTURBED} times as long as all shapes around them`),
    ]),
    passes: rows.length > 0 && !otherUnit && dropped <= MOST_DROPPED * table.rows.length,
  };
}
