/**
 * What keeps dispatches short where a device may not be held for long: a kernel is measured from its lightest shape up,
 * and a shape that the slowest so far says would take too long is left out.
 */
import type { Device } from '../gpu/device.js';
import { GpuError } from '../../kernels/host/errors.js';
import { workOf, type KernelCall } from '../../kernels/registry.js';
import type { Calibration } from '../schema/calibration.js';
import { median } from '../statistics.js';
import { tooLongFor } from './measure.js';
import { samplesOf, type Track } from './visits.js';

type Ceilings = Pick<Calibration['ceilings'], 'readBytesPerSecond' | 'f32FlopsPerSecond'>;

/** Seconds of a call at the device's ceilings. */
export function ceilingSeconds(call: KernelCall, ceilings: Ceilings): number {
  const { readBytes, writeBytes, flops } = workOf(call);
  return Math.max((readBytes + writeBytes) / ceilings.readBytesPerSecond, flops / ceilings.f32FlopsPerSecond);
}

/** A shape may take this many times its kernel's slowest share so far: shapes of one kernel scatter by less. */
const SCATTER = 2;

/**
 * The call itself, where the slowest shape of its kernel so far, by its share of the ceilings, lets it be run.
 * @throws GpuError `unsupported` where the call would hold the device longer than it may
 */
export function permitted(
  device: Pick<Device, 'bounds'>,
  track: Pick<Track, 'entry' | 'variant'>,
  call: KernelCall,
  ceilings: Ceilings,
): KernelCall {
  const { dispatchSeconds } = device.bounds;
  const slowest = samplesOf(track).reduce(
    (most, s) => Math.max(most, median(s.seconds) / ceilingSeconds({ ...call, shape: s.shape }, ceilings)),
    1,
  );
  const expected = slowest * ceilingSeconds(call, ceilings);
  if (SCATTER * expected > dispatchSeconds) throw new GpuError('unsupported', tooLongFor(expected, dispatchSeconds));
  return call;
}
