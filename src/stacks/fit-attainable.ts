/**
 * Fits the laws of attainable times to stack files: quantile regression (pinball loss on the logarithm) at both ends
 * and the middle, then widened by what held-out kernels, or GPUs, show to be missing.
 */
import { classSpec } from '../kernels/op-classes.js';
import type { OpWork, Rates } from '../kernels/op-class.js';
import { tunedClass, type TunedClass } from '../kernels/tuned.js';
import type { Bracket } from './attainable.js';
import { generationOf, ratesOf } from './gpus.js';
import { knotSizes } from './grid.js';
import { descend, lawSeconds, type Law } from '../cost/law.js';
import { unpack } from './pack.js';
import type { StackFile } from './stack-schema.js';

/** A measured time of a tuned kernel. */
export interface Measured {
  readonly class: TunedClass;
  readonly device: string;
  readonly stack: string;
  /** Device, stack and table: tables count alike, whatever their size. */
  readonly table: string;
  readonly work: OpWork;
  readonly rates: Rates;
  readonly seconds: number;
}

/** Times of a table that never falls below this are a host's, not a kernel's (Python launching it, say). */
const SLOWEST_FLOOR = 50e-6;
/** Query heads a KV head beyond which kernels of the tables are another kind: no looped model has more. */
const MOST_GROUP = 8;
/** Repeated measurements may find a cache in the L2 that is smaller than so many times its size. */
const L2_MULTIPLE = 2.5;
/** Products are timed on so many copies of their weights in turn. */
const WEIGHT_COPIES = 6;
/** Where memory takes less than this share of a call's time, a warm cache hardly matters. */
const SHARE_THAT_MATTERS = 0.25;

/** True where a time may be that of a cache that was warm. */
function maybeWarm(op: TunedClass, work: OpWork, seconds: number, rates: Rates, l2Bytes: number): boolean {
  if (work.onLink || op === 'small' || op === 'prefill-attention') return false;
  const touched = op === 'product' ? WEIGHT_COPIES * work.bytes : (work.cacheBytes ?? work.bytes);
  return touched <= L2_MULTIPLE * l2Bytes && work.bytes / rates.memoryBytesPerSecond > SHARE_THAT_MATTERS * seconds;
}

/** The measured knots of a stack file; what was filled by interpolation, or may have been warm, is left out. */
export function measuredTimes(file: StackFile): Measured[] {
  const { l2Bytes } = ratesOf(file.device);
  return file.tables.flatMap((table) => {
    const kind = tunedClass(table.op);
    // Laws are of kernels that read 16 bits.
    if (table.op.endsWith('-fp8')) return [];
    if (kind !== 'all-reduce' && table.law.floorSeconds > SLOWEST_FLOOR) return [];
    const spec = classSpec(table.op);
    const residuals = unpack(table.residuals);
    const filled = table.filledRuns.flatMap((run, i) => Array.from({ length: run }, () => i % 2 === 1));
    return knotSizes(table.axes.map((axis) => axis.knots)).flatMap((sizes, i): Measured[] => {
      if (filled[i]) return [];
      const shape: Record<string, number> = { ...table.fixed };
      spec.axes.forEach((axis, j) => (shape[axis] = sizes[j]!));
      const work = spec.work(shape);
      const seconds = lawSeconds(table.law, work, file.rates) * Math.exp(residuals[i]!);
      if ((shape['group'] ?? 1) > MOST_GROUP || maybeWarm(kind, work, seconds, file.rates, l2Bytes)) return [];
      const { device, stack } = file;
      const name = [device, stack, table.op, ...Object.values(table.fixed)].join(' ');
      return [{ class: kind, device, stack, table: name, work, rates: file.rates, seconds }];
    });
  });
}

/** Points of a table that a fit looks at. */
const MOST_OF_A_TABLE = 160;

/** How many of a list belong to the generation of each. */
const inGeneration = (devices: readonly string[]): ((device: string) => number) => {
  const counts = new Map<string, number>();
  for (const device of devices) counts.set(generationOf(device), (counts.get(generationOf(device)) ?? 0) + 1);
  return (device) => counts.get(generationOf(device))!;
};

/** A weighted sample in which every generation counts alike, and every table of one. */
function sampled(times: readonly Measured[]): { time: Measured; weight: number }[] {
  const tables = new Map<string, Measured[]>();
  for (const time of times) tables.set(time.table, [...(tables.get(time.table) ?? []), time]);
  const tablesLike = inGeneration([...tables.values()].map(([first]) => first!.device));
  return [...tables.values()].flatMap((list) => {
    const count = Math.min(list.length, MOST_OF_A_TABLE);
    return Array.from({ length: count }, (_, i) => ({
      time: list[Math.floor((i * list.length) / count)]!,
      weight: 1 / (count * tablesLike(list[0]!.device)),
    }));
  });
}

const BOUNDS = [
  [1e-7, 3e-4],
  [0.02, 1],
  [0.02, 1],
  [1e-11, 1e-6],
] as const;

/** The law that a share `quantile` of the times lies below. */
function fitQuantile(sample: readonly { time: Measured; weight: number }[], quantile: number): Law {
  const parallel = sample.some(({ time }) => time.work.rows !== undefined);
  const toLaw = (x: readonly number[]): Law => ({
    floorSeconds: Math.exp(x[0]!),
    bandwidthShare: Math.exp(x[1]!),
    peakShare: Math.exp(x[2]!),
    ...(parallel ? { rowSeconds: Math.exp(x[3]!) } : {}),
  });
  const bounds = BOUNDS.slice(0, parallel ? 4 : 3).map(([a, b]) => [Math.log(a), Math.log(b)] as const);
  const start = [5e-6, 0.7, 0.5, 1e-8].slice(0, bounds.length).map(Math.log);
  return toLaw(
    descend(start, bounds, 5e-3, (x) => {
      const law = toLaw(x);
      return sample.reduce((sum, { time, weight }) => {
        const error = Math.log(time.seconds / lawSeconds(law, time.work, time.rates));
        return sum + weight * (error > 0 ? quantile * error : (quantile - 1) * error);
      }, 0);
    }),
  );
}

/** Laws that 5, 50 and 95 % of the times lie below. */
export function fitBracket(times: readonly Measured[]): Bracket {
  const sample = sampled(times);
  return { fast: fitQuantile(sample, 0.05), middle: fitQuantile(sample, 0.5), slow: fitQuantile(sample, 0.95) };
}

/** Log seconds by which a time lies outside a bracket; 0 inside. */
export function outside({ fast, slow }: Bracket, { work, rates, seconds }: Measured): number {
  const [low, high] = [lawSeconds(fast, work, rates), lawSeconds(slow, work, rates)];
  return Math.max(0, Math.log(low / seconds), Math.log(seconds / high));
}

/** The bracket with both ends moved out by so many log seconds. */
export function widened({ fast, middle, slow }: Bracket, by: number): Bracket {
  const scaled = (law: Law, factor: number): Law => ({
    ...law,
    floorSeconds: law.floorSeconds * factor,
    bandwidthShare: law.bandwidthShare / factor,
    peakShare: law.peakShare / factor,
    ...(law.rowSeconds === undefined ? {} : { rowSeconds: law.rowSeconds * factor }),
  });
  return { fast: scaled(fast, Math.exp(-by)), middle, slow: scaled(slow, Math.exp(by)) };
}

/** Every group left out in turn: its times, and the bracket of the others. */
export function leaveOut(
  times: readonly Measured[],
  groupOf: (time: Measured) => string,
): { group: string; left: readonly Measured[]; bracket: Bracket }[] {
  const groups = [...new Set(times.map(groupOf))];
  if (groups.length < 2) return [];
  return groups.map((group) => ({
    group,
    left: times.filter((time) => groupOf(time) === group),
    bracket: fitBracket(times.filter((time) => groupOf(time) !== group)),
  }));
}

/** Log seconds by which brackets must be wider so that they hold `share` of what was left out, groups counting alike. */
export function widthLacking(left: ReturnType<typeof leaveOut>, share = 0.9): number {
  const lacks = left
    .flatMap(({ left: times, bracket }) => times.map((time) => [outside(bracket, time), 1 / times.length] as const))
    .sort((a, b) => a[0] - b[0]);
  const total = lacks.reduce((sum, [, weight]) => sum + weight, 0);
  let seen = 0;
  for (const [lack, weight] of lacks) if ((seen += weight) >= share * total) return lack;
  return 0;
}
