/**
 * The probe: a small fixed mix of a streaming read and arithmetic, run beside every few samples of a calibration.
 * Whatever slows the machine as a whole slows the probe by about as much, so that its time over its reference is the
 * drift.
 */
import type { BoundStep, Buffer, Clock, Device } from '../gpu/index.js';
import { read, write } from '../../kernels/host/plan.js';
import type { Calibration } from '../schema/calibration.js';
import { FLOPS_PER_ROUND, READ, WORKGROUP } from './ceilings.js';
import { fill, holding, plain } from './inputs.js';
import { secondsOf } from './timing.js';

/**
 * Streamed bytes, more than the last-level cache holds, and rounds of arithmetic: some milliseconds on a software
 * adapter, some hundred microseconds on a GPU. Other work on a shared machine slows memory first, and a read from a
 * cache does not show that.
 */
const SIZES = {
  software: { bytes: 64 * 2 ** 20, read: READ.software, groups: 512, rounds: 16 },
  hardware: { bytes: 256 * 2 ** 20, read: READ.hardware, groups: 4096, rounds: 512 },
};
/**
 * Where clocks are rounded or a dispatch is bounded, each half of the mix is sized to take this long, within bounds.
 */
const HALF_SECONDS = 0.008;
/** The stream is at most this share of a point's operands there. */
const STREAM_SHARE = 1 / 4;

/** Bytes of the stream, and rounds of arithmetic. */
function sizesFor(device: Device, rates: Rates | undefined): { bytes: number; rounds: number } {
  const { bytes, rounds, groups } = SIZES[device.description.software ? 'software' : 'hardware'];
  if (!rates || !Number.isFinite(device.bounds.dispatchSeconds)) return { bytes, rounds };
  const flopsARound = groups * WORKGROUP * FLOPS_PER_ROUND;
  const most = Math.min(bytes, STREAM_SHARE * device.bounds.pointBytes, device.limits.maxStorageBufferBindingSize);
  return {
    bytes: MIB * Math.max(1, Math.floor(Math.min(most, HALF_SECONDS * rates.readBytesPerSecond) / MIB)),
    rounds: Math.min(rounds, Math.max(1, Math.round((HALF_SECONDS * rates.f32FlopsPerSecond) / flopsARound))),
  };
}

const SHORTEST_SECONDS = 1e-9;

type Rates = Pick<Calibration['ceilings'], 'readBytesPerSecond' | 'f32FlopsPerSecond'>;
const MIB = 2 ** 20;

/** The probe on a device. */
export interface Probe {
  /** Seconds of one run: the faster of two, because the slower one mostly includes other work of the machine. */
  run(): Promise<number>;
  free(): void;
}

/** Makes the probe's buffers and pipelines, and warms it up. The caller frees. */
export async function openProbe(
  device: Device,
  rules: { readonly clock: Clock; readonly submitSeconds: number; readonly rates?: Rates },
): Promise<Probe> {
  const {
    read: { groups: readers, stream },
    groups,
  } = SIZES[device.description.software ? 'software' : 'hardware'];
  const { bytes, rounds } = sizesFor(device, rules.rates);
  return holding(device, async (owned) => {
    const filled = async (label: string, size: number): Promise<Buffer> => {
      const buffer = await device.buffer(label, size);
      owned.push(buffer);
      await fill(device, buffer, owned.length);
      return buffer;
    };
    const buffers = new Map([
      ['source', await filled('probe stream', bytes)],
      ['sums', await filled('probe sums', Math.max(readers, groups) * WORKGROUP * 4)],
    ]);
    const steps: BoundStep[] = [];
    for (const part of [
      plain({
        source: 'ceiling_read',
        workgroups: [readers, 1, 1],
        uniforms: { quads: bytes / 16, stream },
        buffers: [...read('source'), ...write('sums')],
      }),
      plain({ source: 'ceiling_fma', workgroups: [groups, 1, 1], uniforms: { rounds }, buffers: write('sums') }),
    ])
      steps.push(await device.bind(part, buffers));
    owned.push(...steps.map(({ uniforms }) => uniforms));
    const once = async (): Promise<number> => {
      const time = await device.run(steps);
      return Math.max(SHORTEST_SECONDS, secondsOf(time, rules));
    };
    await once();
    return { run: async () => Math.min(await once(), await once()) };
  });
}
