/** What is decoded for a validation: configurations by name, and decoders of made-up weights. */
import { openDecoder, type GpuDecoder, type GpuDecoderOptions, type StepResult } from '../decoder/gpu/decoder.js';
import type { Budget } from '../io/budget.js';
import type { Device } from '../gpu/index.js';
import type { Configuration } from '../schedule/schedule.js';

/** A configuration with its name, and the sequences and tokens of each that a decoder is opened for. */
export interface DecoderCase {
  readonly id: string;
  readonly c: Configuration;
  readonly batch: number;
  readonly contextTokens: number;
}

/** What the checks of a section are given. */
export interface CheckRules {
  readonly seed: number;
  /** For all of it. */
  readonly budget?: Budget;
  readonly onCase?: (done: number, total: number, id: string) => void;
  readonly stopped?: () => boolean;
}

/** What has no result, and why. */
export interface NotRun {
  readonly id: string;
  readonly reason: string;
}

type Opening = Omit<GpuDecoderOptions, 'weights'>;

/** A decoder whose weights are drawn from the seed. */
export const openMade = (device: Device, c: Configuration, seed: number, options: Opening): Promise<GpuDecoder> =>
  openDecoder(device, c, { weights: { storage: 'f16', seed }, ...options });

/** Such a decoder, which is closed after its use. */
export async function withDecoder<T>(
  device: Device,
  c: Configuration,
  seed: number,
  options: Opening,
  use: (decoder: GpuDecoder) => Promise<T>,
): Promise<T> {
  const decoder = await openMade(device, c, seed, options);
  try {
    return await use(decoder);
  } finally {
    decoder.close();
  }
}

/** Decodes a token of each sequence, whichever. */
export const stepOfAll = (decoder: GpuDecoder): Promise<StepResult> => decoder.step(decoder.lengths.map(() => 0));
