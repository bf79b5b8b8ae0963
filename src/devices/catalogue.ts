/** Accelerators by their datasheets, of all vendors. */
import { AMD } from './amd.js';
import { APPLE } from './apple.js';
import type { DeviceSpec } from './device.js';
import { NVIDIA } from './nvidia.js';
import { NVIDIA_CARDS } from './nvidia-cards.js';

export { chipOf, clockOf, memoryOf, SERVER_GPUS, type DeviceSpec } from './device.js';

/** Every accelerator that the planner knows by name. */
export const DEVICES: readonly DeviceSpec[] = [...NVIDIA, ...NVIDIA_CARDS, ...AMD, ...APPLE];
