/** GPUs that tables name, as the catalogue knows them, with what the screen needs of them. */
import { findDevice } from '../../devices/find.js';
import type { ScreenRates } from '../import/screen.js';

/** GPUs of one generation are alike: what one shows of another generation's, the next shows again. */
const GENERATIONS: readonly (readonly [string, readonly string[]])[] = [
  ['Hopper', ['h100', 'h200']],
  ['Blackwell', ['b200', 'b300', 'gb200', 'gb300']],
];
/** The generation of a measured GPU; its own id where it is the only one. */
export const generationOf = (id: string): string => GENERATIONS.find(([, ids]) => ids.includes(id))?.[0] ?? id;

/** GPUs with graphics memory (GDDR): serving stacks tune their kernels for those with stacked memory (HBM) first. */
const CARDS: readonly string[] = ['l40s', 'rtx-4090', 'rtx-pro-6000'];
/** What a measured GPU is built as: stacks lie apart on one card as they do on the next, and on one server GPU. */
export const formOf = (deviceId: string): 'card' | 'server' => (CARDS.includes(deviceId) ? 'card' : 'server');

/** Where nothing is known: no row is dropped for being read from a cache that may be there. */
const LARGEST_L2 = 256 * 2 ** 20;

/** Datasheet rates of a device of the catalogue. */
export function ratesOf(deviceId: string): ScreenRates {
  const device = findDevice(deviceId);
  return {
    memoryBytesPerSecond: device.memoryBytesPerSecond,
    // A single device has no link; its tables hold no message either.
    linkBytesPerSecond: device.interconnect?.bytesPerSecondPerDirection ?? device.memoryBytesPerSecond,
    operationsPerSecond: device.matrixFlopsPerSecond,
    l2Bytes: device.l2Bytes ?? LARGEST_L2,
  };
}
