/** Apple's accelerators, by their datasheets. */
import type { DeviceSpec } from './device.js';

const GB = 1e9;
const TERA = 1e12;

/**
 * An Apple chip in its largest GPU and memory: the GPU has no matrix unit of its own, so both rates are the vector
 * rate.
 */
function apple(
  id: string,
  name: string,
  gb: number,
  gbPerSecond: number,
  f32: number,
  cores: number,
  source: string,
): DeviceSpec {
  return {
    id,
    name: `Apple ${name}`,
    vendor: 'apple',
    adapterPattern: `apple ${name}`,
    source,
    vramBytes: gb * GB,
    driverBytes: null,
    unifiedMemory: true,
    memoryBytesPerSecond: gbPerSecond * GB,
    f32FlopsPerSecond: f32 * TERA,
    matrixFlopsPerSecond: f32 * TERA,
    matrixHalved: false,
    multipliesFp8: false,
    l2Bytes: null,
    units: cores,
    lanes: 128,
    interconnect: null,
  };
}

/** Apple devices. */
export const APPLE: readonly DeviceSpec[] = [
  apple(
    'm2-ultra',
    'M2 Ultra',
    192,
    800,
    27.2,
    76,
    'Apple M2 Ultra announcement (memory, bandwidth); arithmetic: 76 cores × 128 lanes × 2 × 1.398 GHz, not an ' +
      'Apple figure',
  ),
  apple(
    'm3-max',
    'M3 Max',
    128,
    400,
    14.3,
    40,
    'Apple M3 Max announcement (memory, bandwidth); arithmetic: 40 cores × 128 lanes × 2 × 1.398 GHz, not an ' +
      'Apple figure',
  ),
  apple(
    'm4-max',
    'M4 Max',
    128,
    546,
    17.2,
    40,
    'Apple M4 Max announcement (memory, bandwidth); arithmetic: 40 cores × 128 lanes × 2 × 1.678 GHz, not an ' +
      'Apple figure',
  ),
];
