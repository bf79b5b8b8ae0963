/** Fleets as JSON: what `plan --users --format json` prints, and what a report's page saves. */
import type { PlannedFleet } from '../plan/decide/fleet.js';
import type { PlanReport } from '../plan/types.js';
import type { SimulatedFleet } from '../serving/types.js';

/** A fleet, and what simulating its workload says where it has one. */
export interface AnsweredFleet extends PlannedFleet {
  readonly simulated?: SimulatedFleet | null;
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
