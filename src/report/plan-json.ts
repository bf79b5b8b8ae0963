/** Plans as JSON: what `plan --format json` prints, and what the page saves. */
import type { DecodeFigures, PlanReport } from '../plan/types.js';

/** A plan and its figures by batch. */
export interface Sweep {
  readonly planId: string;
  readonly points: readonly DecodeFigures[];
}

/** A report, and with --sweep the plans that its answer names by batch. */
export interface PlanJson extends PlanReport {
  readonly sweeps?: readonly Sweep[];
}

/** Several devices, contexts or cache types. */
export interface PlanRuns {
  readonly schema: 'lla-sim/plan';
  readonly schemaVersion: 2;
  readonly runs: readonly PlanJson[];
}

/** Reports as JSON: one as it is, several as `runs`. */
export const plansJson = (reports: readonly PlanJson[]): PlanJson | PlanRuns =>
  reports.length === 1 ? (reports[0] as PlanJson) : { schema: 'lla-sim/plan', schemaVersion: 2, runs: reports };
