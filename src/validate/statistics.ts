/** Errors of predictions, and what they amount to. */
import { quantile, type Interval } from '../numbers/statistics.js';

/** A prediction with its interval, and the measured time, seconds. */
export interface Compared {
  readonly measuredSeconds: number;
  readonly predicted: Interval;
}

export interface ErrorSummary {
  readonly count: number;
  /** |predicted / measured − 1|. */
  readonly medianError: number;
  readonly p90Error: number;
  /** Median of predicted / measured − 1: above 0, predictions are too slow. */
  readonly bias: number;
  /** Share of measurements inside their interval. */
  readonly coverage: number;
}

/** Signed relative error: above 0, the prediction is too slow. */
export const signedError = ({ measuredSeconds, predicted }: Compared): number =>
  predicted.estimate / measuredSeconds - 1;

export const covered = ({ measuredSeconds, predicted }: Compared): boolean =>
  predicted.low <= measuredSeconds && measuredSeconds <= predicted.high;

/** Null where there is nothing to summarise. */
export function summarise(rows: readonly Compared[]): ErrorSummary | null {
  if (rows.length === 0) return null;
  const errors = rows.map(signedError);
  const absolute = errors.map(Math.abs);
  return {
    count: rows.length,
    medianError: quantile(absolute, 0.5),
    p90Error: quantile(absolute, 0.9),
    bias: quantile(errors, 0.5),
    coverage: rows.filter(covered).length / rows.length,
  };
}
