/** Fleets as JSON: what `plan --users --format json` prints, and what a report's page saves. */
import type { PlannedFleet } from '../plan/fleet.js';
import type { SimulatedFleet } from '../serving/types.js';

/** A fleet, and what simulating its workload says where it has one. */
export interface AnsweredFleet extends PlannedFleet {
  readonly simulated?: SimulatedFleet | null;
}

/** One run a device, context and cache type. */
export const fleetJson = (planned: readonly AnsweredFleet[]): object => ({
  schema: 'lla-sim/fleet',
  schemaVersion: 1,
  runs: planned.map(({ fleet, reports, simulated }) => ({
    device: reports[0]?.device,
    contextTokens: reports[0]?.contextTokens,
    settings: reports[0]?.settings,
    fleet,
    ...(simulated ? { simulated } : {}),
  })),
});
