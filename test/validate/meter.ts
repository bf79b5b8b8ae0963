/** Counts what a device holds: buffers that were made and not destroyed, of uniforms and read-back too. */
import type { Device } from '../../src/gpu/index.js';

export interface Meter {
  readonly bytes: number;
  readonly buffers: number;
  /** Stops counting. */
  remove(): void;
}

const rawOf = (device: Device): GPUDevice => (device as unknown as { raw: GPUDevice }).raw;

export function meter(device: Device): Meter {
  const raw = rawOf(device);
  const original = raw.createBuffer.bind(raw);
  const live = new Map<GPUBuffer, number>();
  raw.createBuffer = (descriptor) => {
    const buffer = original(descriptor);
    const destroy = buffer.destroy.bind(buffer);
    live.set(buffer, descriptor.size);
    buffer.destroy = () => {
      live.delete(buffer);
      return destroy();
    };
    return buffer;
  };
  return {
    get bytes() {
      return [...live.values()].reduce((sum, n) => sum + n, 0);
    },
    get buffers() {
      return live.size;
    },
    remove: () => {
      raw.createBuffer = original;
    },
  };
}

/** Ends the device as a driver's crash or an unplugged card would: without `close`. */
export const lose = (device: Device): void => rawOf(device).destroy();
