/** The calibration that predicts on this device, and the kernels of it that may be used. */
import { calibrationPricer, elsewhere } from '../cost/pricers.js';
import type { Pricer } from '../cost/latency.js';
import { calibrationHere, loadCalibration, type LoadedCalibration } from '../plan/ask/calibrations.js';
import { UserError, show } from '../errors.js';
import type { Device } from '../gpu/index.js';
import { staleKernels } from '../plan/ask/on-disk.js';
import { KERNELS, type KernelCall, type KernelName } from '../../kernels/registry.js';
import type { Calibration } from '../schema/calibration.js';
import { driftExponentOf } from '../schema/drift.js';
import { isSameAdapter, otherMachine, type HostIdentity } from '../schema/machine.js';

export interface Calibrated extends LoadedCalibration {
  readonly pricer: Pricer;
  /** How this machine differs from the measured one (schema/machine.ts); null for the same. */
  readonly difference: string | null;
  /** Kernels that have changed since; roofline prices them. */
  readonly stale: readonly string[];
  /** The exponent of the probe's drift for a call (schema/drift.ts). */
  readonly driftExponent: (call: Pick<KernelCall, 'kernel' | 'variant'>) => number;
  /** Whether a shape was measured. */
  isMeasured(call: KernelCall): boolean;
}

/** A call as text: equal for equal shapes. */
export const shapeKey = (call: KernelCall): string =>
  [call.kernel, call.variant, ...KERNELS[call.kernel].dims.map((dim) => call.shape[dim])].join(' ');

/**
 * The calibration named, or the first of this machine, or the first of another machine with such an adapter; null where
 * there is none. Prices of another machine are widened (cost/pricers.ts).
 * @throws UserError for a file that was measured on another adapter
 */
export async function calibratedFor(
  device: Pick<Device, 'description'>,
  host: HostIdentity,
  file: string | null,
): Promise<Calibrated | null> {
  const loaded = file === null ? await calibrationHere(device.description, host) : await loadCalibration(file);
  if (!loaded) return null;
  const { calibration } = loaded;
  if (!isSameAdapter(device.description, calibration.device)) {
    throw new UserError(
      `${show(loaded.file)} was measured on ${calibration.device.description}, and this device is ` +
        `${device.description.description}`,
      'measure this device with lla-sim calibrate',
    );
  }
  const difference = otherMachine(device.description, host, calibration);
  const stale = new Set(await staleKernels(loaded));
  const measured = new Set(
    calibration.kernels
      .filter((k) => !stale.has(k.kernel))
      .flatMap((k) =>
        k.samples.map((s) => shapeKey({ kernel: k.kernel as KernelName, variant: s.variant, shape: s.shape })),
      ),
  );
  const own = calibrationPricer(calibration, { stale, link: null, source: loaded.file });
  return {
    ...loaded,
    difference,
    stale: [...stale],
    pricer: difference === null ? own : elsewhere(own),
    driftExponent: driftExponents(calibration),
    isMeasured: (call) => measured.has(shapeKey(call)),
  };
}

/** Drift exponents of a calibration's kernels and variants. */
export function driftExponents({ kernels }: Pick<Calibration, 'kernels'>): Calibrated['driftExponent'] {
  const known = new Map<string, number>();
  return ({ kernel, variant }) => {
    const key = `${kernel} ${variant}`;
    const exponent =
      known.get(key) ??
      driftExponentOf(kernels.find((k) => k.kernel === kernel)?.samples.filter((s) => s.variant === variant) ?? []);
    known.set(key, exponent);
    return exponent;
  };
}
