/** Plans and fleets as JSON: what `plan --format json` prints, and what the pages save. */
import type { Explained } from '../plan/evaluate/explain.js';
import type { DecodeFigures, PlanReport } from '../plan/types.js';
import type { PlannedFleet } from '../plan/decide/fleet.js';
import type { SimulatedFleet } from '../serving/types.js';

/** A plan and its figures by batch. */
export interface Sweep {
  readonly planId: string;
  readonly points: readonly DecodeFigures[];
}

/** A report; with --sweep the plans that its answer names by batch, with --explain why a row is as sure as it is. */
export interface PlanJson extends PlanReport {
  readonly sweeps?: readonly Sweep[];
  readonly explained?: Explained;
}

/** Several devices, contexts or cache types. */
export interface PlanRuns<R extends PlanReport = PlanJson> {
  readonly schema: 'lla-sim/plan';
  readonly schemaVersion: 2;
  readonly runs: readonly R[];
}

/** Reports as JSON: one as it is, several as `runs`. */
export const plansJson = <R extends PlanReport = PlanJson>(reports: readonly R[]): R | PlanRuns<R> =>
  reports.length === 1 ? (reports[0] as R) : { schema: 'lla-sim/plan', schemaVersion: 2, runs: reports };

/** A fleet, and what simulating its workload says where it has one. */
export interface AnsweredFleet extends PlannedFleet {
  readonly simulated?: SimulatedFleet | null;
}

/** Answers in the order in which one would buy. @param fleetOf its fleet */
export function cheapestFirst<T>(answers: readonly T[], fleetOf: (answer: T) => AnsweredFleet): T[] {
  const priced = answers.every((a) => fleetOf(a).reports.every(({ settings }) => settings.usdPerHour !== null));
  return answers.toSorted((a, b) => costOf(fleetOf(a), priced) - costOf(fleetOf(b), priced));
}

/**
 * Money an hour where all are priced, else GPUs; then what --tpot leaves no time for prompts of --ctx tokens, and last
 * what does not run today.
 */
function costOf({ fleet, reports, simulated }: AnsweredFleet, priced: boolean): number {
  const { deploy, upside } = simulated ?? fleet;
  const row = deploy ?? upside;
  const answers = simulated ? 0 : (fleet.deploy?.besidePrompts?.tokens ?? 0);
  const late = answers > (reports[0]?.contextTokens ?? Infinity) ? 1e8 : 0;
  return row === null ? Infinity : ((priced ? row.usdPerHour : null) ?? row.gpus) + late + (deploy ? 0 : 1e9);
}

/** Fleets, one run a device, context and cache type. */
export interface FleetJson {
  readonly schema: 'lla-sim/fleet';
  readonly schemaVersion: 1;
  readonly runs: readonly (Pick<PlanReport, 'device' | 'contextTokens' | 'settings'> & {
    readonly fleet: PlannedFleet['fleet'];
    /** With a workload. */
    readonly simulated?: SimulatedFleet;
  })[];
}

export const fleetJson = (planned: readonly AnsweredFleet[]): FleetJson => ({
  schema: 'lla-sim/fleet',
  schemaVersion: 1,
  runs: planned.map(({ fleet, reports, simulated }) => {
    const { device, contextTokens, settings } = reports[0] as PlanReport;
    return { device, contextTokens, settings, fleet, ...(simulated ? { simulated } : {}) };
  }),
});
