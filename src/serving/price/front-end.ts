/** What lies between users and a server's scheduler, where it may limit: it is told, and not simulated. */
import { formatNumber } from '../../numbers/units.js';
import { stackLabel } from '../../stacks/serving.js';
import type { ServerChoice } from '../question.js';
import type { Run, SustainedRate } from '../types.js';
import type { WorkloadChoice } from '../workload/read.js';

/**
 * Requests a second from which vLLM's front end may be what limits: GPUStack's 1,000 requests at once found it busy for
 * 10.4 to 13.8 ms each (vLLM 0.11, src/accuracy/causes.ts); 1,000 in another's run left at 95 a second (vLLM 0.19).
 */
const FRONT_END = { stack: 'vllm', fewest: 70, most: 95 } as const;

/**
 * Says where requests come faster than a server's front end was ever seen to take them.
 * @param atOnce requests that are all there at once; null of others
 */
export function frontEnd(
  stack: string | undefined,
  rate: number,
  { replicas }: Pick<ServerChoice, 'replicas'>,
  atOnce: number | null = null,
): string[] {
  const secondsAt = (perSecond: number): string => formatNumber(atOnce! / replicas / perSecond);
  const each = rate / replicas;
  if (stack !== FRONT_END.stack || each <= FRONT_END.fewest) return [];
  return [
    `${Math.round(each)} requests a second a replica: one process of vLLM’s front end was seen to take ` +
      `${FRONT_END.fewest} to ${FRONT_END.most}` +
      (atOnce === null ? '' : ` (${secondsAt(FRONT_END.most)} to ${secondsAt(FRONT_END.fewest)} s for all of these)`) +
      ', which is not simulated; vllm serve --api-server-count adds processes',
  ];
}

/** Requests a second that come, or that a server answers where it is asked as fast as it can. */
export const fastestOf = ({ requestsPerSecond }: WorkloadChoice, runs: readonly Run[]): number =>
  requestsPerSecond ?? Math.max(0, ...runs.map(({ estimate }) => estimate.request_throughput));

/** The same of rates that were found. */
export function frontEndOf(rates: readonly SustainedRate[], server: Pick<ServerChoice, 'replicas'>): string[] {
  const served = rates.filter(({ servedBy }) => servedBy?.startsWith(stackLabel(FRONT_END.stack)));
  const fastest = Math.max(0, ...served.map(({ requestsPerSecond }) => requestsPerSecond.estimate));
  return frontEnd(FRONT_END.stack, fastest, server);
}
