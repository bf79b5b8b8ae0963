/**
 * Measuring in a page: until the budget is spent, over losses of the device and pauses of the page. What it knows of
 * the page are a few functions, so a test can give it others.
 */
import type { Anchor } from '../bench/calibrate/anchors.js';
import { calibrate, type CalibrateOptions, type CalibrationProgress } from '../bench/calibrate/calibrate.js';
import { clockNow } from '../io/clock.js';
import { fitting, outliers } from '../cost/fit/fit.js';
import type { Device } from '../gpu/device.js';
import { GpuError } from '../../kernels/host/errors.js';
import type { Calibration } from '../schema/calibration.js';
import { otherMachine } from '../schema/machine.js';

/** A device that is lost so often is not asked again: a call of it may be what the driver gives up on. */
const MOST_LOSSES = 3;
/** With less time than this no point is begun after a loss. */
const LEAST_SECONDS = 1;

export interface Session extends Readonly<Pick<CalibrateOptions, 'budgetSeconds' | 'seed' | 'host'>> {
  /** Of an earlier visit or session on this device. */
  readonly earlier: Calibration | null;
  readonly signal: AbortSignal;
  /** Opens the device, again after a loss. */
  open(): Promise<Device>;
  calls(device: Device): readonly (() => readonly Anchor[])[];
  /** Waits while the page is not seen. */
  ready(): Promise<void>;
  pausedSeconds(): number;
  pauses(): number;
  save(calibration: Calibration): void;
  progress(progress: CalibrationProgress, calibration: Calibration): void;
  /** Something that the reader should know, such as a lost device. */
  say(words: string): void;
}

/**
 * Measures; what is kept of an earlier visit is gone on with where the device is the same.
 * @returns the calibration without its predictors, null where nothing was measured
 */
export async function measureSession(session: Session): Promise<Calibration | null> {
  const began = clockNow();
  const spent = (): number => clockNow() - began - session.pausedSeconds();
  let latest = session.earlier;
  for (let losses = 0; ; losses++) {
    const device = await session.open();
    if (latest && otherMachine(device.description, session.host, latest) !== null) latest = null;
    const paused = session.pausedSeconds();
    try {
      latest = await calibrate({
        ...{ device, host: session.host, outliers, signal: session.signal },
        budgetSeconds: session.budgetSeconds - spent(),
        seed: session.seed + losses,
        calls: session.calls(device),
        ...(latest ? { resumeFrom: latest } : {}),
        ready: () => session.ready(),
        pausedSeconds: () => session.pausedSeconds() - paused,
        pauses: () => session.pauses(),
        save: (calibration) => {
          latest = calibration;
          session.save(calibration);
        },
        onProgress: (progress) => latest && session.progress(progress, latest),
      });
      // A lost device ends the visits and leaves its word in a gap.
      device.check();
      break;
    } catch (error) {
      if (!(error instanceof GpuError) || error.fault !== 'lost') throw error;
      const over = losses + 1 >= MOST_LOSSES || session.budgetSeconds - spent() < LEAST_SECONDS;
      session.say(
        `The browser took the GPU away (${error.message}). ` +
          `${over ? 'What was measured is kept.' : 'Going on with a new device.'}`,
      );
      if (over) break;
    } finally {
      device.close();
    }
  }
  return latest && latest.kernels.some((k) => k.samples.length > 0) ? latest : null;
}

/** Fits the predictors, with a breath for the page between kernels. */
export async function fitSession(calibration: Calibration, say: (words: string) => void): Promise<void> {
  for (const { kernel, variant } of fitting(calibration)) {
    say(`Fitting ${kernel} ${variant}`);
    await new Promise((resolve) => setTimeout(resolve));
  }
}
