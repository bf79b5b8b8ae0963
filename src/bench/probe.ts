/**
 * The probe: a small fixed mix of a streaming read and arithmetic, run beside every few samples of a calibration. Whatever
 * slows the machine as a whole slows the probe by about as much, so that its time over its reference is the drift.
 */
import type { BoundStep, Buffer, Device } from '../gpu/index.js';
import { read, u32, write, type Step } from '../gpu/plan.js';
import { DRIFT_CORRECTED } from '../schema/drift.js';
import type { Calibration } from '../schema/calibration.js';
import { fill } from './inputs.js';
import { median, type Clock } from './timing.js';

/** Streamed bytes and rounds of arithmetic: some milliseconds on a software adapter, some hundred microseconds on a GPU. */
const SIZES = {
  software: { bytes: 16 * 2 ** 20, groups: 512, rounds: 16 },
  hardware: { bytes: 256 * 2 ** 20, groups: 4096, rounds: 512 },
};
/** The reference is the median of this many first runs: they span several points, so that one phase of noise is not all of it. */
const REFERENCE_RUNS = 101;
const SHORTEST_SECONDS = 1e-9;

/** Keeps the reference of a session and how far the machine went from it. */
export class Drift {
  private readonly first: number[] = [];
  private fixed = 0;
  private runs = 0;
  private readonly seen: number[] = [];

  /** Takes in one run of the probe, seconds. */
  record(seconds: number): void {
    this.runs++;
    this.seen.push(seconds);
    if (this.first.length < REFERENCE_RUNS) {
      this.first.push(seconds);
      this.fixed = median(this.first);
    }
  }

  /** Time of the probe over its reference; 1 is no drift. While there are few runs the reference still moves. */
  relative(seconds: number): number {
    return this.fixed === 0 ? 1 : seconds / this.fixed;
  }

  /** Share of the runs that drifted by more than what is corrected. */
  get shareCorrected(): number {
    return this.seen.filter((s) => Math.abs(this.relative(s) - 1) > DRIFT_CORRECTED).length / Math.max(1, this.runs);
  }

  /** As a calibration keeps it; undefined before the first run. */
  describe(): Calibration['probe'] {
    if (this.runs === 0) return undefined;
    const relative = this.seen.map((s) => this.relative(s)).sort((a, b) => a - b);
    return { referenceSeconds: this.fixed, runs: this.runs, lowDrift: relative[0] as number, highDrift: relative.at(-1) as number };
  }
}

/** The probe on a device. */
export interface Probe {
  /** Seconds of one run: the faster of two, as the slower one is mostly what else the machine did for a moment. */
  run(): Promise<number>;
  free(): void;
}

/** Makes the probe's buffers and pipelines, and warms it up. The caller frees. */
export async function openProbe(device: Device, rules: { readonly clock: Clock; readonly submitSeconds: number }): Promise<Probe> {
  const { bytes, groups, rounds } = SIZES[device.description.software ? 'software' : 'hardware'];
  const owned: Buffer[] = [];
  const free = (): void => device.free(...owned);
  try {
    for (const [label, size] of [['probe stream', bytes], ['probe sums', groups * 256 * 4]] as const) {
      const buffer = await device.buffer(label, size);
      owned.push(buffer);
      await fill(device, buffer, owned.length);
    }
    const buffers = new Map([['source', owned[0] as Buffer], ['sums', owned[1] as Buffer]]);
    const common = { element: 'f32', constants: {}, workgroups: [groups, 1, 1] } as const;
    const parts: Step[] = [
      { ...common, source: 'ceiling_read', uniforms: [u32(bytes / 16)], buffers: [...read('source'), ...write('sums')] },
      { ...common, source: 'ceiling_fma', uniforms: [u32(rounds)], buffers: write('sums') },
    ];
    const steps: BoundStep[] = [];
    for (const part of parts) {
      const step = await device.bind(part, buffers);
      owned.push(step.uniforms);
      steps.push(step);
    }
    const once = async (): Promise<number> => {
      const time = await device.run(steps);
      return Math.max(SHORTEST_SECONDS, rules.clock === 'gpu-timestamp' && time.gpuSeconds !== null ? time.gpuSeconds : time.wallSeconds - rules.submitSeconds);
    };
    await once();
    return { run: async () => Math.min(await once(), await once()), free };
  } catch (error) {
    free();
    throw error;
  }
}
