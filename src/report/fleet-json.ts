/** Fleets as JSON: what `plan --users --format json` prints, and what a report's page saves. */
import type { PlannedFleet } from '../plan/fleet.js';

/** One run a device, context and cache type. */
export const fleetJson = (planned: readonly PlannedFleet[]): object => ({
  schema: 'lla-sim/fleet',
  schemaVersion: 1,
  runs: planned.map(({ fleet, reports }) => ({
    device: reports[0]?.device,
    contextTokens: reports[0]?.contextTokens,
    settings: reports[0]?.settings,
    fleet,
  })),
});
