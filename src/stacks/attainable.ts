/**
 * What a tuned kernel of a class reaches on a GPU: the price of operations that no serving stack has a kernel for.
 * Three laws a class: few measured kernels are faster than the first, half are slower than the second, few are slower
 * than the third. `scripts/attainable.ts` fits them to the stack files (calibrations/attainable.json).
 */
import { clockOf, type DeviceSpec } from '../devices/catalogue.js';
import { tileRate, tileSecondsPerByte, TILE_ROWS, type TileRates } from '../cost/beside-prompts.js';
import type { Interval } from '../cost/evidence.js';
import type { OpShape, OpWork, Rates } from '../../kernels/op-class.js';
import { classSpec, type OpClass } from '../../kernels/op-classes.js';
import { TUNED_CLASSES, type TunedCall, type TunedClass } from '../../kernels/tuned.js';
import { throughHost } from '../cost/exchange.js';
import { CONSTANTS } from '../cost/constants.js';
import { atPace, busySeconds, lawSeconds, type Law, type Pace } from '../cost/law.js';

export interface Bracket {
  readonly fast: Law;
  readonly middle: Law;
  readonly slow: Law;
  /** What reached furthest beyond either end when it was left out: a generation, or a stack on a GPU. */
  readonly worst?: { readonly fast: string; readonly slow: string };
}

/** The bracket of a GPU of another pace. */
export const bracketAt = ({ fast, middle, slow, ...rest }: Bracket, pace: Pace): Bracket => ({
  ...rest,
  fast: atPace(fast, pace),
  middle: atPace(middle, pace),
  slow: atPace(slow, pace),
});

/** Clock, units and share of its matrix rate that products reach of the H100, which laws are written for. */
const REFERENCE = { clock: 1.98e9, units: 132, reached: 0.8 } as const;
/**
 * The reference itself, and classes whose floor no clock decides: messages over a link, and launches of small kernels.
 */
const ALIKE: Pace = { floor: 1, rows: 1, peak: 1 };
const UNPACED: readonly TunedClass[] = ['all-reduce', 'all-reduce-host', 'small'];

/** Classes whose operations are what matrix units are built for; others wait for memory. */
const ON_MATRIX_UNITS: readonly TunedClass[] = ['product', 'product-fp8', 'decode-attention', 'prefill-attention'];

/**
 * How much more of its matrix rate a device reaches than the reference. Of a GeForce that nobody measured, power keeps
 * no kernel from all of it.
 */
function reachOf({ productFlopsPerSecond: product, matrixFlopsPerSecond: rate, matrixHalved }: DeviceSpec): number {
  if (product !== undefined) return product / rate / REFERENCE.reached;
  return matrixHalved ? 2 : 1;
}

/** The pace of a device for a class of kernels. */
export function paceOf(spec: DeviceSpec, of: TunedClass): Pace {
  if (UNPACED.includes(of)) return ALIKE;
  const floor = REFERENCE.clock / clockOf(spec);
  const peak = ON_MATRIX_UNITS.includes(of) ? reachOf(spec) : 1;
  return { floor, rows: (floor * REFERENCE.units) / spec.units, peak };
}

/** Tables of exchanges over a board have a law of their own. */
export const exchangeClass = (link: Parameters<typeof throughHost>[0], gpus: number): TunedClass =>
  throughHost(link, gpus) ? 'all-reduce-host' : 'all-reduce';

/** Laws of a GPU, and of all GPUs together for classes that were not measured on it. */
export interface AttainableLaws {
  /** Classes whose laws were fitted to kernels of this GPU. */
  readonly own: Readonly<Partial<Record<TunedClass, Bracket>>>;
  readonly pooled: Readonly<Record<TunedClass, Bracket>>;
  /** GPUs whose kernels a class's law is of, by id of the catalogue. */
  readonly gpus: Readonly<Record<TunedClass, readonly string[]>>;
  /** Stack files that laws were fitted to. */
  readonly from: readonly string[];
  /** Where the server's attention does not divide a sequence over the GPU; else absent. */
  readonly undivided?: TileRates & { readonly secondsPerByte: Interval; readonly ends: UndividedEnds };
}

/** Ends of calls that divide no sequence, over their estimates. */
type UndividedEnds = Readonly<Record<'low' | 'high', number>>;

/** All of calibrations/attainable.json: laws for the clock and units of the reference. */
export interface AttainableFile {
  readonly schema: 'lla-sim/attainable';
  readonly schemaVersion: 1;
  /** Stack files that the laws were fitted to. */
  readonly from: readonly string[];
  readonly pooled: Readonly<Record<TunedClass, Bracket>>;
  /**
   * Seconds a cached byte of a sequence's head that one unit reads alone (`scripts/fit-undivided.ts`). In seconds: GPUs
   * differ less by them than by cycles.
   */
  readonly undividedSecondsPerByte: Interval;
  /** Between these lay 95 % of such calls on each GPU, by the laws of all GPUs together. */
  readonly undividedEnds: UndividedEnds;
  /** By id of the catalogue. */
  readonly devices: Readonly<Record<string, AttainableLaws['own']>>;
}

/**
 * Laws for a device.
 * @param measured id of the device whose own laws hold for it: itself, or one of its generation
 * @param undivided the server's attention does not divide a sequence
 */
export function lawsOf(file: AttainableFile, spec: DeviceSpec, measured = spec.id, undivided = false): AttainableLaws {
  const paced = <B extends AttainableLaws['own']>(brackets: B): B =>
    Object.fromEntries(
      TUNED_CLASSES.flatMap((of) => {
        const bracket = brackets[of];
        return bracket ? [[of, bracketAt(bracket, paceOf(spec, of))]] : [];
      }),
    ) as unknown as B;
  const own = file.devices[measured] ?? {};
  return {
    own: withGaps(paced(own)),
    pooled: withGaps(paced(file.pooled)),
    gpus: Object.fromEntries(
      TUNED_CLASSES.map((of) => [
        of,
        own[of] ? [measured] : Object.keys(file.devices).filter((id) => file.devices[id]![of]),
      ]),
    ) as Record<TunedClass, string[]>,
    from: file.from,
    ...(undivided
      ? { undivided: { ...walkOf(file.undividedSecondsPerByte, tileRates(spec)), ends: file.undividedEnds } }
      : {}),
  };
}

/** Small kernels were timed by profilers, from their start to their end: a step has the gap to the next, too. */
function withGaps<B extends AttainableLaws['own']>(brackets: B): B {
  const { small } = brackets;
  if (!small) return brackets;
  const later = (law: Law, gap: number): Law => ({ ...law, floorSeconds: law.floorSeconds + gap });
  const most = CONSTANTS.mostLaunchGap.value;
  const { fast, middle, slow } = small;
  return { ...brackets, small: { ...small, fast, middle: later(middle, most / 2), slow: later(slow, most) } };
}

/** A unit reads a head no faster than it multiplies the tiles: a GeForce's at half of the rate. */
function walkOf(
  { estimate, low, high }: Interval,
  tiles: TileRates,
): Omit<NonNullable<AttainableLaws['undivided']>, 'ends'> {
  const slower = Math.max(1, tileSecondsPerByte(tiles) / estimate);
  return { ...tiles, secondsPerByte: { estimate: slower * estimate, low: slower * low, high: slower * high } };
}

export const tileRates = (spec: DeviceSpec): TileRates => ({
  units: spec.units,
  bytesPerSecond: spec.memoryBytesPerSecond,
  tileFlopsPerSecond: tileRate(spec.matrixFlopsPerSecond, spec.matrixHalved),
  l2Bytes: spec.l2Bytes,
});

/** The operation that attention of servers does not divide: each query head has a KV head of its own. */
export const UNDIVIDED: OpClass = 'decode-attention';

/** What tuned kernels reach, whatever a server's do. */
export const tunedAlone = ({ undivided: _, ...laws }: AttainableLaws): AttainableLaws => laws;

/**
 * The work of decode attention by products of tiles, which the query heads of a KV head fill in part; of other calls
 * their own.
 */
export const inTiles = (op: OpClass, { group }: OpShape, work: OpWork): OpWork =>
  group !== undefined && op.startsWith('decode-attention-grouped')
    ? { ...work, operations: (work.operations * TILE_ROWS) / Math.min(TILE_ROWS, group) }
    : work;

/** The bracket of a call, and its work: what one unit reads alone where the server's kernel divides no sequence. */
export function bracketOf(
  laws: AttainableLaws,
  { class: of, table, work: own }: TunedCall,
): { bracket: Bracket; work: OpWork } {
  const work = table ? inTiles(table.op, table.shape, own) : own;
  const bracket = laws.own[of] ?? laws.pooled[of];
  const { undivided } = laws;
  const { rows, cacheBytes } = work;
  if (!undivided || table?.op !== UNDIVIDED || !rows || !cacheBytes) return { bracket, work };
  const { units, secondsPerByte: walk } = undivided;
  return {
    bracket: {
      fast: { ...bracket.fast, walkSeconds: walk.low },
      middle: { ...bracket.middle, walkSeconds: walk.estimate },
      slow: { ...bracket.slow, walkSeconds: walk.high },
    },
    // A row is one workgroup: a unit takes the next when it is done.
    work: { ...work, walkedBytes: (Math.ceil(rows / units) * cacheBytes) / rows },
  };
}

/**
 * Most seconds of a product in 8 bits, whose slowest kernels are of shapes that no model has: those of 16 bits and a
 * launch. In the tables, products of models of 1.4B to 70B took longer by launches alone (docs/experiments.md).
 */
function inSixteenBits(laws: AttainableLaws, { table, class: of }: TunedCall, rates: Rates): number {
  if (!table) return Infinity;
  const { slow } = laws.own.product ?? laws.pooled.product;
  const { floorSeconds } = (laws.own[of] ?? laws.pooled[of]).slow;
  return floorSeconds + lawSeconds(slow, classSpec('product').work(table.shape), rates);
}

/** Seconds of a call between the fast and the slow law. */
export function attainableSeconds(laws: AttainableLaws, call: TunedCall, rates: Rates): Interval {
  const { bracket, work } = bracketOf(laws, call);
  const by = (law: Law): number => (call.inside ? 0 : law.floorSeconds) + busySeconds(law, work, rates);
  const estimate = by(bracket.middle);
  const slow =
    call.class === 'product-fp8' ? Math.min(by(bracket.slow), inSixteenBits(laws, call, rates)) : by(bracket.slow);
  // A server that was left out of a law may divide where others do not; of a call that divides none more is known.
  const ends = work.walkedBytes === undefined ? undefined : laws.undivided?.ends;
  return {
    estimate,
    low: Math.max(estimate * (ends?.low ?? 0), Math.min(estimate, by(bracket.fast))),
    high: Math.min(estimate * (ends?.high ?? Infinity), Math.max(estimate, slow)),
  };
}
