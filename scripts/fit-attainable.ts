/**
 * Fits the laws of attainable times to stack files: quantile regression (pinball loss on the logarithm) at both ends
 * and the middle, in the clock of the reference GPU, then widened by what held-out stacks, or GPUs, show to be missing.
 */
import { classSpec } from '../kernels/op-classes.js';
import { findDevice } from '../src/devices/find.js';
import type { OpWork, Rates } from '../kernels/op-class.js';
import { tunedClass, type TunedClass } from '../kernels/tuned.js';
import { bracketAt, exchangeClass, inTiles, paceOf, type Bracket } from '../src/stacks/attainable.js';
import { generationOf, ratesOf } from '../src/stacks/fit/gpus.js';
import { knotSizes } from '../src/stacks/grid.js';
import { quantile } from '../src/numbers/statistics.js';
import { conformalQuantile } from '../src/cost/conformal.js';
import { descend } from '../src/cost/descend.js';
import { atPace, lawSeconds, PEAK_MARGIN, type Law, type Pace } from '../src/cost/law.js';
import { unpack } from '../src/stacks/pack.js';
import type { StackFile } from '../src/stacks/stack-schema.js';
import { coldShare, maybeWarmBytes, SHARE_THAT_MATTERS } from '../src/stacks/warm.js';

/** A measured time of a tuned kernel. */
export interface Measured {
  readonly class: TunedClass;
  readonly device: string;
  readonly stack: string;
  /** Device, stack and table: tables count alike, whatever their size. */
  readonly table: string;
  readonly work: OpWork;
  readonly rates: Rates;
  readonly pace: Pace;
  readonly seconds: number;
}

/** Times of a table that never falls below this are a host's, not a kernel's (Python launching it, say). */
const SLOWEST_FLOOR = 50e-6;
/** Query heads a KV head beyond which kernels of the tables are another kind: no looped model has more. */
const MOST_GROUP = 8;

/** A kernel that is so many times faster with at least as much of all work leaves most of the GPU idle with less. */
const IDLE = 2;
/**
 * Where another stack's kernel on the same GPU is so many times faster, a kernel is not tuned (docs/experiments.md).
 */
const UNTUNED = 3;

/**
 * Times without those of kernels that leave most of the GPU idle: with few sequences of a long context, where a stack
 * does not split the context. Nobody would call that tuned. Another call shows it: with at least as much of all work it
 * is `ratio` times as fast.
 */
export function busyTimes<T extends Pick<Measured, 'work' | 'seconds'>>(calls: readonly T[], ratio = IDLE): T[] {
  const fastest = [...calls].sort((a, b) => a.seconds - b.seconds);
  const covers = (a: OpWork, b: OpWork): boolean =>
    a.bytes >= b.bytes && a.operations >= b.operations && a.rows! >= b.rows!;
  return calls.filter(({ work, seconds }) => {
    if (work.rows === undefined) return true;
    for (const other of fastest) {
      if (ratio * other.seconds >= seconds) return true;
      if (covers(other.work, work)) return false;
    }
    return true;
  });
}

/** The measured knots of a table; what was filled by interpolation, or may have been warm, is left out. */
export function timesOf(file: StackFile, table: StackFile['tables'][number]): Measured[] {
  const { l2Bytes } = ratesOf(file.device);
  const device = findDevice(file.device);
  const kind = table.op === 'all-reduce' ? exchangeClass(device.interconnect, 2) : tunedClass(table.op);
  const pace = paceOf(device, kind);
  const { repository } = file.sources[table.source]!;
  const kernels = classSpec(table.op);
  const residuals = unpack(table.residuals);
  const filled = table.filledRuns.flatMap((run, i) => Array.from({ length: run }, () => i % 2 === 1));
  return knotSizes(table.axes.map((axis) => axis.knots)).flatMap((sizes, i): Measured[] => {
    if (filled[i]) return [];
    const shape: Record<string, number> = { ...table.fixed };
    kernels.axes.forEach((axis, j) => (shape[axis] = sizes[j]!));
    const work = kernels.work(shape);
    const seconds = lawSeconds(table.law, work, file.rates) * Math.exp(residuals[i]!);
    const warm = maybeWarmBytes(kind, shape, work, l2Bytes, repository) / file.rates.memoryBytesPerSecond;
    if ((shape['group'] ?? 1) > MOST_GROUP || warm > SHARE_THAT_MATTERS * seconds) return [];
    // What comes from memory bounds a price by itself.
    if (kind === 'small' && coldShare(table.op, work.bytes, l2Bytes) > 0) return [];
    const { stack } = file;
    const name = [file.device, stack, table.op, ...Object.values(table.fixed)].join(' ');
    const told = inTiles(table.op, shape, work);
    return [{ class: kind, device: file.device, stack, table: name, work: told, rates: file.rates, pace, seconds }];
  });
}

/** The measured knots of a stack file, without those that left the GPU idle. */
export const measuredTimes = (file: StackFile): Measured[] =>
  file.tables.flatMap((table) => {
    // Attention over 8-bit caches follows the laws of 16 bits (docs/experiments.md), products with such weights do not.
    if (table.op.endsWith('-fp8') && table.op !== 'product-fp8') return [];
    // Taken off a product, never priced alone; the law of small kernels is of norms, rotations and activations.
    if (table.op === 'quantise') return [];
    if (table.op !== 'all-reduce' && table.law.floorSeconds > SLOWEST_FLOOR) return [];
    return busyTimes(timesOf(file, table));
  });

/** The measured times of several files, without kernels that another stack's on the same GPU show to be untuned. */
export function tunedTimes(files: readonly StackFile[]): Measured[] {
  const groups = new Map<string, Measured[]>();
  for (const time of files.flatMap(measuredTimes)) {
    const of = `${time.device} ${time.class}`;
    const group = groups.get(of);
    if (group) group.push(time);
    else groups.set(of, [time]);
  }
  return [...groups.values()].flatMap((times) => busyTimes(times, UNTUNED));
}

/** Points of a table that a fit looks at, and of all tables of a generation together. */
const MOST_OF_A_TABLE = 80;
const MOST_OF_A_GENERATION = 400;

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
    const like = tablesLike(list[0]!.device);
    const count = Math.min(list.length, MOST_OF_A_TABLE, Math.ceil(MOST_OF_A_GENERATION / like));
    return Array.from({ length: count }, (_, i) => ({
      time: list[Math.floor((i * list.length) / count)]!,
      weight: 1 / (count * like),
    }));
  });
}

/** Times of the memory's bandwidth: small kernels find what the kernel before them wrote in the last cache. */
const mostBandwidth = (of: TunedClass): number => (of === 'small' ? 4 : 1);
const BOUNDS = [
  [1e-7, 3e-4],
  [0.02, Infinity],
  [0.02, 1],
  [1e-11, 1e-6],
] as const;

/**
 * The law that a share of the times lies below.
 * @param beside no part of the law is faster than this one's (share above a half), or slower (below it): laws that
 *   crossed would leave the estimate at an end of its interval where one part alone sets the time
 */
function fitQuantile(sample: readonly { time: Measured; weight: number }[], share: number, beside?: Law): Law {
  const parallel = sample.some(({ time }) => time.work.rows !== undefined);
  const toLaw = (x: readonly number[]): Law => ({
    floorSeconds: Math.exp(x[0]!),
    bandwidthShare: Math.exp(x[1]!),
    peakShare: Math.exp(x[2]!),
    ...(parallel ? { rowSeconds: Math.exp(x[3]!) } : {}),
  });
  const limits = beside && [beside.floorSeconds, beside.bandwidthShare, beside.peakShare, beside.rowSeconds ?? 0];
  const fastest = mostBandwidth(sample[0]!.time.class);
  const bounds = BOUNDS.slice(0, parallel ? 4 : 3).map(([a, most], i) => {
    const b = Math.min(most, i === 1 ? fastest : most);
    // Times grow towards the slow end, rates towards the fast one.
    const grows = i === 1 || i === 2 ? share < 0.5 : share > 0.5;
    const [low, high] = limits === undefined ? [a, b] : grows ? [limits[i]!, b] : [a, limits[i]!];
    return [Math.log(low), Math.log(high)] as const;
  });
  const start = [5e-6, 0.7, 0.5, 1e-8].slice(0, bounds.length).map(Math.log);
  return toLaw(
    descend(start, bounds, 5e-3, (x) => {
      const law = toLaw(x);
      let [pace, paced] = [sample[0]!.time.pace, atPace(law, sample[0]!.time.pace)];
      return sample.reduce((sum, { time, weight }) => {
        // Times of a table lie together, and share one pace.
        if (time.pace !== pace) [pace, paced] = [time.pace, atPace(law, time.pace)];
        const error = Math.log(time.seconds / lawSeconds(paced, time.work, time.rates));
        return sum + weight * (error > 0 ? share * error : (share - 1) * error);
      }, 0);
    }),
  );
}

/** Laws that 5, 50 and 95 % of the times lie below. */
export function fitBracket(times: readonly Measured[]): Bracket {
  const sample = sampled(times);
  const middle = fitQuantile(sample, 0.5);
  return { fast: fitQuantile(sample, 0.05, middle), middle, slow: fitQuantile(sample, 0.95, middle) };
}

/** Log seconds by which a time is faster than a bracket's fast end, and slower than its slow end; negative inside. */
function beyond(bracket: Bracket, { work, rates, pace, seconds }: Measured): Sides {
  const { fast, slow } = bracketAt(bracket, pace);
  return {
    fast: Math.log(lawSeconds(fast, work, rates) / seconds),
    slow: Math.log(seconds / lawSeconds(slow, work, rates)),
  };
}

/** True where a time lies between a bracket's ends. */
export function isInside(bracket: Bracket, time: Measured): boolean {
  const { fast, slow } = beyond(bracket, time);
  return fast <= 0 && slow <= 0;
}

/** Log seconds at either end of a bracket. */
export interface Sides {
  readonly fast: number;
  readonly slow: number;
}

/** The bracket of a class with its ends moved out. No kernel is faster than the datasheet lets it be. */
export function widened({ fast, middle, slow }: Bracket, by: Sides, of: TunedClass): Bracket {
  const scaled = (law: Law, factor: number): Law => ({
    ...law,
    floorSeconds: law.floorSeconds * factor,
    bandwidthShare: Math.min(mostBandwidth(of), law.bandwidthShare / factor),
    peakShare: Math.min(PEAK_MARGIN, law.peakShare / factor),
    ...(law.rowSeconds === undefined ? {} : { rowSeconds: law.rowSeconds * factor }),
  });
  return { fast: scaled(fast, Math.exp(-by.fast)), middle, slow: scaled(slow, Math.exp(by.slow)) };
}

/** Times that were left out, and the bracket of the others. */
export interface LeftOut {
  readonly group: string;
  readonly left: readonly Measured[];
  readonly bracket: Bracket;
}

/** Every group left out in turn. */
export function leaveOut(times: readonly Measured[], groupOf: (time: Measured) => string): LeftOut[] {
  const groups = [...new Set(times.map(groupOf))];
  if (groups.length < 2) return [];
  return groups.map((group) => ({
    group,
    left: times.filter((time) => groupOf(time) === group),
    bracket: fitBracket(times.filter((time) => groupOf(time) !== group)),
  }));
}

/** The group that reaches furthest beyond each end, by all but that share of its times. */
export function worstOf(groups: readonly LeftOut[], share: number): Record<keyof Sides, string> {
  const worst = (of: keyof Sides): string =>
    groups
      .map(({ group, left, bracket }) => ({
        group,
        by: quantile(
          left.map((t) => beyond(bracket, t)[of]),
          1 - share,
        ),
      }))
      .reduce((a, b) => (b.by > a.by ? b : a)).group;
  return { fast: worst('fast'), slow: worst('slow') };
}

/**
 * Log seconds by which ends must move so that a share of the left-out times lies beyond each of them. Groups count
 * alike.
 * @param share of the times that each end leaves beyond it
 */
export function sidesOf(groups: readonly LeftOut[], share: number): Sides {
  const end = (of: keyof Sides): number => {
    const scores = groups.map(({ left, bracket }) => left.map((time) => beyond(bracket, time)[of]));
    return Math.max(0, conformalQuantile(scores, 1 - share));
  };
  return { fast: end('fast'), slow: end('slow') };
}
