/**
 * The law that a tuned kernel's time follows: a floor for launch and latency, then what is slowest of bytes at a share
 * of the bandwidth, operations at a share of the peak, and rows. Tables are stored as deviations from it, and what
 * nobody has measured is priced by it.
 */
import { CONSTANTS } from './constants.js';
import type { OpWork, Rates } from '../../kernels/op-class.js';
import { descend } from './descend.js';

export interface Law {
  /** Seconds that no call falls below. */
  readonly floorSeconds: number;
  /** Share of the datasheet's bandwidth that is reached. */
  readonly bandwidthShare: number;
  /** Share of the datasheet's matrix rate that is reached, and of the vector rate. */
  readonly peakShare: number;
  /** Seconds of one row (a sequence's KV head), however short its context: what starting and ending it costs. */
  readonly rowSeconds?: number;
  /** Seconds a byte of what one unit reads alone, one byte after another. */
  readonly walkSeconds?: number;
}

/**
 * How much longer a GPU takes than the reference for what its clock and number of units decide: starting and ending a
 * kernel is a chain of so many cycles, and rows are shared out among the units.
 */
export interface Pace {
  readonly floor: number;
  readonly rows: number;
  /** How much more of its matrix rate it can reach, up to all of it: 2 where the rate is half of what the units do. */
  readonly peak: number;
}

/** GPUs run somewhat above the clock that a datasheet's peak is given for. */
export const PEAK_MARGIN = CONSTANTS.peakMargin.value;

/** The law of a GPU of another pace. */
export const atPace = (law: Law, pace: Pace): Law => ({
  ...law,
  floorSeconds: law.floorSeconds * pace.floor,
  peakShare: pace.peak === 1 ? law.peakShare : Math.min(PEAK_MARGIN, law.peakShare * pace.peak),
  ...(law.rowSeconds === undefined ? {} : { rowSeconds: law.rowSeconds * pace.rows }),
});

/** The switch between bytes, operations, rows and walks is rounded: max(a, b) as (a⁴ + b⁴)^¼. */
const fourthPower = (x: number): number => x * x * x * x;

/** Seconds of `work` by the law. */
export const lawSeconds = (law: Law, work: OpWork, rates: Rates): number =>
  law.floorSeconds + busySeconds(law, work, rates);

/** The same without the floor, for what a neighbour's kernel does on the way. */
export function busySeconds(law: Law, work: OpWork, rates: Rates): number {
  const bandwidth = work.onLink ? rates.linkBytesPerSecond : rates.memoryBytesPerSecond;
  const moving = work.bytes / (law.bandwidthShare * bandwidth);
  const vector = (work.vectorOperations ?? 0) / (rates.vectorOperationsPerSecond ?? rates.operationsPerSecond);
  const computing = (work.operations / rates.operationsPerSecond + vector) / law.peakShare;
  const starting = (law.rowSeconds ?? 0) * (work.rows ?? 0);
  const walking = (law.walkSeconds ?? 0) * (work.walkedBytes ?? 0);
  const sum = fourthPower(moving) + fourthPower(computing) + fourthPower(starting) + fourthPower(walking);
  return Math.sqrt(Math.sqrt(sum));
}

export interface TimedWork {
  readonly work: OpWork;
  readonly seconds: number;
}

/** Points that the fit looks at; more change nothing. */
const MOST_POINTS = 600;
/** Bounds of the fitted numbers: without operations, or bytes, the share that does not matter would run away. */
const BOUNDS = { floor: [1e-8, 1e-3], share: [1e-3, 20], row: [1e-12, 1e-5] } as const;

/**
 * The law with the least mean |log error|, by coordinate search from typical values.
 * @param byRow whether it has a time of a row, where the work counts rows
 */
export function fitLaw(points: readonly TimedWork[], rates: Rates, byRow = false): Law {
  const stride = Math.max(1, points.length / MOST_POINTS);
  const sample = Array.from({ length: Math.ceil(points.length / stride) }, (_, i) => points[Math.floor(i * stride)]!);
  const sorted = sample.map((p) => p.seconds).sort((a, b) => a - b);
  const counted = byRow && points.some(({ work }) => work.rows !== undefined);
  const toLaw = ([floor, bandwidth, peak, row]: readonly number[]): Law => ({
    floorSeconds: Math.exp(floor!),
    bandwidthShare: Math.exp(bandwidth!),
    peakShare: Math.exp(peak!),
    ...(row === undefined ? {} : { rowSeconds: Math.exp(row) }),
  });
  const bounds = [BOUNDS.floor, BOUNDS.share, BOUNDS.share, ...(counted ? [BOUNDS.row] : [])];
  return toLaw(
    descend(
      [sorted[Math.floor(sorted.length / 50)]!, 0.8, 0.5, ...(counted ? [1e-8] : [])].map(Math.log),
      bounds.map(([a, b]) => [Math.log(a), Math.log(b)] as const),
      1e-3,
      (x) => {
        const law = toLaw(x);
        return sample.reduce((sum, p) => sum + Math.abs(Math.log(p.seconds / lawSeconds(law, p.work, rates))), 0);
      },
    ),
  );
}
