/**
 * How fast one unit of a GPU reads a sequence's head alone: from calls of kernels that do not divide a sequence, where
 * nothing but that walk can be what takes the time.
 */
import type { Interval } from '../src/cost/evidence.js';
import { median, quantile } from '../src/numbers/statistics.js';
import { findDevice } from '../src/devices/find.js';
import { attainableSeconds, lawsOf, UNDIVIDED, type AttainableFile } from '../src/stacks/attainable.js';
import { walksAlone } from '../src/stacks/serving.js';
import type { StackFile } from '../src/stacks/stack-schema.js';
import { timesOf, type Measured } from './fit-attainable.js';

/** Cached bytes of a head from which the walk, and not the launch, is timed. */
const LONG_BYTES = 2 ** 20;
/** Memory would take less than this share of the time: then it does not bind. */
const SHARE_OF_MEMORY = 0.5;

/** @param units of the GPU: more rows than these wait for each other */
const walksFreely = ({ work, rates, seconds }: Measured, units: number): boolean =>
  work.rows !== undefined &&
  work.cacheBytes !== undefined &&
  work.rows <= units &&
  work.cacheBytes / work.rows >= LONG_BYTES &&
  work.bytes / rates.memoryBytesPerSecond < SHARE_OF_MEMORY * seconds;

/** What walks take on one GPU, seconds a byte: each call with its launch taken off. */
export interface Walks {
  readonly device: string;
  readonly secondsPerByte: readonly number[];
}

/** @param floorSeconds launch of a tuned kernel there */
export const walksOf = (device: string, times: readonly Measured[], units: number, floorSeconds: number): Walks => ({
  device,
  secondsPerByte: times
    .filter((time) => walksFreely(time, units))
    .map(({ work, seconds }) => ((seconds - floorSeconds) * work.rows!) / work.cacheBytes!),
});

const centre = (gpus: readonly Walks[]): number =>
  gpus.reduce((sum, { secondsPerByte }) => sum + Math.log(median(secondsPerByte)), 0) / gpus.length;

/**
 * The geometric mean of the GPUs' medians. The ends lie as far off as 95 % of the calls on a GPU were, at the most,
 * from what the other GPUs say: groups are few, so the largest counts.
 */
export function fitWalk(gpus: readonly Walks[]): Interval {
  const beyond = gpus.flatMap(({ device, secondsPerByte }) => {
    const others = centre(gpus.filter((other) => other.device !== device));
    const sizes = secondsPerByte.map((s) => Math.abs(Math.log(s) - others)).sort((a, b) => a - b);
    return sizes[Math.ceil(0.95 * sizes.length) - 1]!;
  });
  const [middle, half] = [centre(gpus), Math.max(...beyond)];
  return { estimate: Math.exp(middle), low: Math.exp(middle - half), high: Math.exp(middle + half) };
}

/**
 * The ends, over estimates, between which 95 % of the calls lie on each GPU whose server divides no sequence: by the
 * laws of all GPUs together, as for a GPU without tables.
 */
export function endsOf(
  files: readonly StackFile[],
  pooled: Omit<AttainableFile, 'undividedEnds'>,
): AttainableFile['undividedEnds'] {
  const gpus = files.flatMap((file) => {
    const tables = file.tables.filter(({ op }) => op === UNDIVIDED);
    if (!walksAlone(file.stack, file.device) || tables.length === 0) return [];
    const unbounded = { ...pooled, devices: {}, undividedEnds: { low: 0, high: Infinity } };
    const laws = lawsOf(unbounded, findDevice(file.device), file.device, true);
    const ratios = tables
      .flatMap((table) => timesOf(file, table))
      .map(({ class: kind, work, rates, seconds }) => {
        const call = { class: kind, table: { op: UNDIVIDED, shape: {} }, work };
        return seconds / attainableSeconds(laws, call, rates).estimate;
      });
    return [ratios];
  });
  const at = (share: number): number[] => gpus.map((ratios) => quantile(ratios, share));
  return { low: Math.min(1, ...at(0.025)), high: Math.max(1, ...at(0.975)) };
}
