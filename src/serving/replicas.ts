/** How many replicas serve a workload's own rate within the targets. */
import type { Interval } from '../cost/evidence.js';
import type { Service, Setting } from './candidate.js';
import type { Bound } from './price/price.js';
import { trial, whole } from './trial.js';
import type { SustainedRate } from './types.js';

/** Most replicas that are simulated together. Of more, equal parts are: requests come more evenly to the whole. */
const MOST_TOGETHER = 32;

/**
 * By simulation: replicas share the requests by the router, and a number is not the proportion of two rates. Those that
 * prefill come with their own.
 * @param rates that the replicas of the question sustain
 * @param margin for other draws, of what has to be sure
 */
export function replicasFor(
  service: Service,
  setting: Setting,
  rates: Interval,
  margin: number,
): SustainedRate['replicasFor'] {
  const { workload, server, targets } = setting;
  const wanted = workload.requestsPerSecond;
  if (wanted === null) return null;
  // Replicas are added one by one, and with those that prefill in groups.
  const unit = server.prefillReplicas === 0 ? 1 : server.replicas;
  const least = whole(setting, service);
  const found = { low: rates.high, estimate: rates.estimate, high: rates.low };
  const serve = (bound: Bound, units: number, asked: number): boolean => {
    // So many have been searched for their highest rate.
    if (units * unit === server.replicas) return asked <= found[bound];
    return trial(service, targets, bound, workload.source(bound === 'high' ? asked * (1 + margin) : asked, least), {
      ...server,
      replicas: units * unit,
      prefillReplicas: units * server.prefillReplicas,
    }).meets;
  };
  const proportionOf = (asked: number, rate: number): number =>
    Math.max(1, Math.ceil((asked * server.replicas) / unit / rate - 1e-9));
  const fewest = (bound: Bound, rate: number, known: number): number => {
    // Of more than are simulated together each part serves its share.
    const parts = Math.ceil((proportionOf(wanted, rate) * unit) / MOST_TOGETHER);
    const asked = wanted / parts;
    const leastUnits = Math.ceil(known / parts / unit);
    const proportion = proportionOf(asked, rate);
    let units = Math.max(leastUnits, proportion);
    if (serve(bound, units, asked)) while (units > Math.max(1, leastUnits) && serve(bound, units - 1, asked)) units--;
    else {
      units++;
      while (units < 2 * proportion + 2 && !serve(bound, units, asked)) units++;
    }
    return Math.max(known, parts * units * unit);
  };
  const low = fewest('low', rates.high, 0);
  const estimate = fewest('estimate', rates.estimate, low);
  return {
    requestsPerSecond: wanted,
    replicas: { low, estimate, high: rates.low === 0 ? null : fewest('high', rates.low, estimate) },
  };
}
