/** Which machine a calibration was measured on, and how the machine at hand differs from it. */
import { deviceOfAdapter } from '../devices/find.js';
import { formatDecimalBytes } from '../numbers/units.js';
import type { Calibration } from './calibration.js';

/** What tells devices apart, as an adapter reports it. */
export type AdapterIdentity = Pick<
  Calibration['device'],
  'description' | 'device' | 'driver' | 'backend' | 'software'
> & {
  /** That of a software adapter, where it is processor time. */
  readonly clock?: 'processor';
};

/** Adapters of equal name, or two names of one device of the catalogue: browsers and Dawn word them differently. */
export function isSameAdapter(a: AdapterIdentity, b: AdapterIdentity): boolean {
  if (a.description === b.description) return true;
  const known = a.software || b.software ? undefined : deviceOfAdapter(a.description);
  return known !== undefined && known === deviceOfAdapter(b.description);
}

/** Memory that a system reports differs by less than this share between starts of one machine. */
const MEMORY_TOLERANCE = 0.02;

/** What tells processors apart: a software adapter computes on one. */
export type HostIdentity = Pick<Calibration['host'], 'cpu' | 'cores' | 'memoryBytes'>;

/**
 * How the machine at hand differs from the one that a calibration was measured on, in a few words; null where it is the
 * same. Of a GPU the adapter and its driver count. Of a software adapter the processor and its memory count as well.
 */
export function otherMachine(
  today: AdapterIdentity,
  here: HostIdentity,
  { device: old, host, clock }: Pick<Calibration, 'device' | 'host' | 'clock'>,
): string | null {
  const differ = (part: string, was: string, is: string): string =>
    `${part} ${was || 'unknown'}, and this is ${is || 'unknown'}`;
  for (const part of ['description', 'device', 'driver', 'backend'] as const)
    if (old[part] !== today[part]) return differ(part, old[part], today[part]);
  if (!today.software) return null;
  // Processor time is shorter than the same work by any other clock.
  if ((clock.kind === 'processor') !== (today.clock === 'processor'))
    return `times by another clock (${clock.kind}), and this counts ${today.clock ?? 'wall or timestamp'} time`;
  if (host.cpu !== here.cpu) return differ('processor', host.cpu, here.cpu);
  if (host.cores !== here.cores) return `${host.cores} cores, and these are ${here.cores}`;
  const [was, is] = [host.memoryBytes, here.memoryBytes];
  return was !== null && is !== null && Math.abs(is / was - 1) > MEMORY_TOLERANCE
    ? differ('memory', formatDecimalBytes(was), formatDecimalBytes(is))
    : null;
}
