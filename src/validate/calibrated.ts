/** The calibration that predicts on this device, and the kernels of it that may be used. */
import { calibrationPricer } from '../cost/pricers.js';
import type { Pricer } from '../cost/latency.js';
import { calibrationFiles, loadCalibration, type LoadedCalibration } from '../plan/calibrations.js';
import { UserError, show } from '../errors.js';
import type { Device } from '../gpu/index.js';
import { staleKernels } from '../plan/ask.js';
import { KERNELS, type KernelCall, type KernelName } from '../kernels/registry.js';
import type { Calibration } from '../schema/calibration.js';
import { driftExponentOf } from '../schema/drift.js';

export interface Calibrated extends LoadedCalibration {
  readonly pricer: Pricer;
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
 * The calibration named, or the first that was measured on an adapter of the same description and driver; null where
 * there is none.
 * @throws UserError for a file that was measured on another device
 */
export async function calibratedFor(
  device: Pick<Device, 'description'>,
  file: string | null,
): Promise<Calibrated | null> {
  const loaded = file === null ? await findFor(device) : await loadCalibration(file);
  if (!loaded) return null;
  const { calibration } = loaded;
  if (calibration.device.description !== device.description.description) {
    throw new UserError(
      `${show(loaded.file)} was measured on ${calibration.device.description}, and this device is ${device.description.description}`,
      'measure this device with lla-sim calibrate',
    );
  }
  const stale = new Set(await staleKernels(loaded));
  const measured = new Set(
    calibration.kernels
      .filter((k) => !stale.has(k.kernel))
      .flatMap((k) =>
        k.samples.map((s) => shapeKey({ kernel: k.kernel as KernelName, variant: s.variant, shape: s.shape })),
      ),
  );
  return {
    ...loaded,
    stale: [...stale],
    pricer: calibrationPricer(calibration, { stale, link: null, source: loaded.file }),
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

async function findFor(device: Pick<Device, 'description'>): Promise<LoadedCalibration | null> {
  for (const path of calibrationFiles()) {
    try {
      const loaded = await loadCalibration(path);
      if (loaded.calibration.device.description === device.description.description) return loaded;
    } catch (error) {
      // A damaged file that nobody named is skipped.
      if (!(error instanceof UserError)) throw error;
    }
  }
  return null;
}
