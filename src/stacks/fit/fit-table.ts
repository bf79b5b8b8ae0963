/**
 * A table of measured times becomes knots on a grid with intervals. Residuals from the law are interpolated between
 * measured points (kriging), the grid is filled and thinned, and half-widths are quantiles of the errors at points that
 * were left out: points at random, whole lines, whole configurations, whole octaves.
 */
import { shuffler } from 'd3-array';
import { CONSTANTS } from '../../cost/constants.js';
import { conformalQuantile, KAPPA_UNTESTED, kappaOf, lackPerOctave } from '../../cost/conformal.js';
import { randomFrom } from '../../numbers/random.js';
import type { StackTable } from '../stack-schema.js';
import { classSpec, type OpClass } from '../../../kernels/op-classes.js';
import type { OpShape, OpWork, Rates } from '../../../kernels/op-class.js';
import { interpolateBy, knotSizes } from '../grid.js';
import { widthAt } from '../predict.js';
import { Field, fitScales } from './kriging.js';
import { fitLaw, lawSeconds, type TimedWork } from '../../cost/law.js';
import { pack, ROUNDING, unpack } from '../pack.js';
import { thinLines } from './thin.js';

/** One measured shape with the median of its repetitions. */
export interface MeasuredTime {
  readonly shape: OpShape;
  readonly seconds: number;
}

/** Parts that are left out in turn. */
const FOLDS = 6;
/** Points that widths inside the grid are judged by, and each of the harder tests. */
const JUDGED = 2400;
const JUDGED_OUTSIDE = 600;
const JUDGED_HEADS = 200;
/** Fewest judged points a group of call times. */
const FEWEST_A_GROUP = CONSTANTS.fewestOfTime.value;
const MOST_GROUPS = 5;
/** Fewest configurations by which leaving one out tells anything. */
const FEWEST_CONFIGURATIONS = CONSTANTS.fewestConfigurations.value;
/** Fewest points beyond the rim that tell what an octave costs. */
const FEWEST_OUTSIDE = CONSTANTS.fewestForQuantile.value;
/** The order of rows must not matter to samples of them. */
const SEED = 20_251;

/** Fields of a table that this finds; the caller adds where it comes from. */
export type FittedTable = Omit<StackTable, 'source'>;

/**
 * Fits one table.
 * @param mostKnots size of the grid that is kept
 */
export function fitTable(
  op: OpClass,
  fixed: Readonly<Record<string, number>>,
  rows: readonly MeasuredTime[],
  rates: Rates,
  mostKnots: number,
): FittedTable {
  const spec = classSpec(op);
  const shapeOf = (sizes: readonly number[]): Record<string, number> => {
    const shape: Record<string, number> = { ...fixed };
    spec.axes.forEach((axis, i) => (shape[axis] = sizes[i]!));
    return shape;
  };
  const timed = shuffler(randomFrom(SEED))([...rows]).map(({ shape, seconds }) => {
    const sizes = spec.axes.map((axis) => shape[axis]!);
    return { sizes, work: spec.work(shapeOf(sizes)), seconds };
  });
  const law = fitLaw(timed, rates);
  const lawTimes = timed.map(({ work }) => lawSeconds(law, work, rates));
  const mostLawSeconds = lawTimes.reduce((a, b) => Math.max(a, b), 0);
  const values = Float64Array.from(timed, (row, i) => Math.log(row.seconds / lawTimes[i]!));
  const locate = (sizes: readonly number[]): number[] => spec.coordinates(shapeOf(sizes)).map(Math.log2);
  const coordinates = timed.map(({ sizes }) => locate(sizes));
  const field = new Field(coordinates, values, fitScales(coordinates, values));
  const measured = new Map(timed.map(({ sizes }, i) => [sizes.join(), i]));
  const valueOf = (sizes: readonly number[], skip?: (index: number) => boolean): number => {
    const index = measured.get(sizes.join());
    return index !== undefined && !skip?.(index) ? values[index]! : field.valueAt(locate(sizes), skip);
  };
  const byRows = secondsByRows(timed, coordinates, rates);
  /** A knot: as it was measured, else by the law that knows rows, where there are any. */
  const fill = (sizes: readonly number[]): number => {
    if (byRows === null || measured.has(sizes.join())) return valueOf(sizes);
    const work = spec.work(shapeOf(sizes));
    return Math.log(byRows(work, locate(sizes)) / lawSeconds(law, work, rates));
  };

  const allLines = spec.axes.map((_, axis) => [...new Set(timed.map((row) => row.sizes[axis]!))].sort((a, b) => a - b));
  const full = { lines: allLines, values: Float64Array.from(knotSizes(allLines), fill) };
  const lines = thinLines(full, mostKnots);
  const knots = knotSizes(lines);
  const residuals = pack(Float64Array.from(knots, fill));
  const grid = unpack(residuals);
  const gridAt = (sizes: readonly number[], without?: { axis: number; line: number }): number =>
    interpolateBy(lines, sizes, (index) => grid[index]!, without);

  const errorOf = (i: number, predicted: number): number => Math.abs(predicted - values[i]!);
  /** Errors of a grid that is made without the points that are hidden. */
  const errorsWithout = (hidden: (index: number) => boolean, points: readonly number[]): number[] => {
    const known = new Map<number, number>();
    const knotAt = (index: number): number => {
      const value = known.get(index) ?? valueOf(knots[index]!, hidden);
      known.set(index, value);
      return value;
    };
    return points.map((i) => errorOf(i, interpolateBy(lines, timed[i]!.sizes, knotAt)));
  };

  const judged = [...timed.keys()].slice(0, JUDGED);
  const errors: number[] = [];
  for (let fold = 0; fold < FOLDS; fold++) {
    const points = judged.filter((i) => i % FOLDS === fold);
    errorsWithout((index) => index % FOLDS === fold, points).forEach((error, k) => (errors[points[k]!] = error));
  }
  const widths = groupWidths(errors, lawTimes);
  const lackOf = (i: number, predicted: number, octaves: number): number =>
    lackPerOctave(errorOf(i, predicted), widthAt(widths, lawTimes[i]!), octaves);

  /** Errors at measured points of lines that are left out, or were, for every line between others. */
  const lineErrors = (axis: number): number[][] =>
    allLines[axis]!.slice(1, -1).map((size, _, between) => {
      const line = lines[axis]!.indexOf(size);
      const on = sample(timed, (row) => row.sizes[axis] === size, (2 * JUDGED_OUTSIDE) / between.length);
      return on.map((i) => errorOf(i, gridAt(timed[i]!.sizes, line < 0 ? undefined : { axis, line })));
    });

  /**
   * What half-widths lack an octave when the lines of the outermost one, two or three octaves are hidden: that of the
   * end where it is more.
   */
  const outside = (axis: number): number => {
    const perEnd = [lines[axis]!, lines[axis]!.toReversed()].flatMap((line, low) => {
      const octavesBeyond = (size: number, from: number): number => (low ? -1 : 1) * Math.log2(size / from);
      const lacks = [1, 2, 3].flatMap((octaves) => {
        const nearest = line.findLast((size) => octavesBeyond(size, line.at(-1)!) <= -octaves);
        if (nearest === undefined) return [];
        const beyond = sample(timed, ({ sizes }) => octavesBeyond(sizes[axis]!, nearest) > 0, JUDGED_OUTSIDE / 6);
        if (beyond.length < FEWEST_OUTSIDE) return [];
        return [
          beyond.map((i) => {
            const { sizes } = timed[i]!;
            return lackOf(i, gridAt(sizes.with(axis, nearest)), octavesBeyond(sizes[axis]!, nearest));
          }),
        ];
      });
      return lacks.length > 0 ? [kappaOf(lacks)] : [];
    });
    return perEnd.length > 0 ? Math.max(...perEnd) : KAPPA_UNTESTED;
  };

  /** The same for calls that take longer than any that were measured. */
  const longer = (): number =>
    kappaOf(
      [1, 2, 3].flatMap((octaves) => {
        const hidden = (index: number): boolean => lawTimes[index]! > mostLawSeconds / 2 ** octaves;
        return sample(lawTimes, (_, i) => hidden(i), JUDGED_OUTSIDE / 3).map((i) =>
          lackOf(i, field.valueAt(coordinates[i]!, hidden), Math.log2(lawTimes[i]! / mostLawSeconds) + octaves),
        );
      }),
    );

  /**
   * What it costs, for each line of KV heads, to take more heads for more sequences of that line: the errors at the
   * next line. These do not grow with the octaves to it, since kernels are chosen by the count. The last line has those
   * of the line before it.
   */
  const headErrors = (): number[] => {
    const batch = spec.axes.indexOf('batch');
    const steps = lines[0]!.slice(1).map((size, k) => {
      const lower = lines[0]![k]!;
      return kappaOf(
        sample(timed, (row) => row.sizes[0] === size, JUDGED_HEADS).flatMap((i) => {
          const moved = timed[i]!.sizes.map((s, j) => (j === 0 ? lower : j === batch ? (s * size) / lower : s));
          if (moved[batch]! > lines[batch]!.at(-1)!) return [];
          const slower = Math.log(lawSeconds(law, spec.work(shapeOf(moved)), rates) / lawTimes[i]!);
          return [lackOf(i, gridAt(moved) + slower, 0)];
        }),
      );
    });
    return [...steps, steps.at(-1) ?? KAPPA_UNTESTED];
  };

  /**
   * Errors at configurations, and at numbers of heads, of which nothing was measured: the larger. Kernels are chosen by
   * the configuration, so errors of one are alike, and each configuration counts alike.
   */
  const configurationErrors = (): number =>
    Math.max(
      ...[(a: number, b: number) => `${a}:${b}`, (a: number, b: number) => String(a * b)].map((nameOf) => {
        const names = timed.map(({ sizes: [a, b] }) => nameOf(a!, b!));
        const kinds = [...new Set(names)];
        return conformalQuantile(
          kinds.map((kind) => {
            const hidden = (index: number): boolean => names[index] === kind;
            return errorsWithout(
              hidden,
              sample(names, (_, i) => hidden(i), JUDGED_OUTSIDE / kinds.length),
            );
          }),
        );
      }),
    );

  const configurations = spec.axes.includes('group')
    ? [...new Map(timed.map(({ sizes: [a, b] }) => [`${a}:${b}`, [a!, b!] as [number, number]])).values()].sort(
        (p, q) => p[0] - q[0] || p[1] - q[1],
      )
    : null;
  const isTested = configurations && configurations.length >= FEWEST_CONFIGURATIONS;
  return {
    op,
    fixed: { ...fixed },
    law: {
      floorSeconds: Number(law.floorSeconds.toPrecision(6)),
      bandwidthShare: Number(law.bandwidthShare.toPrecision(6)),
      peakShare: Number(law.peakShare.toPrecision(6)),
    },
    axes: spec.axes.map((name, axis) => {
      const between = lineErrors(axis);
      return {
        name,
        knots: lines[axis]!,
        between: allLines[axis]!.filter((size) => !lines[axis]!.includes(size)),
        offLine: round(between.length > 0 ? conformalQuantile(between) : KAPPA_UNTESTED),
        perOctave: round(outside(axis)),
      };
    }),
    residuals,
    filledRuns: runs(knots.map((sizes) => !measured.has(sizes.join()))),
    configurations,
    offConfiguration: configurations ? round(isTested ? configurationErrors() : KAPPA_UNTESTED) : 0,
    widths,
    perOctave: { heads: spec.headsAsSequences ? headErrors().map(round) : [], time: round(longer()) },
    mostLawSeconds: roundSeconds(mostLawSeconds),
  };
}

/**
 * Seconds by a law with a time of a row, and interpolated deviations from it. Without that time what many rows of short
 * contexts take is a deviation, which would be carried over to long ones, where they take no longer than their bytes.
 * Null for work without rows.
 */
function secondsByRows(
  timed: readonly TimedWork[],
  coordinates: readonly (readonly number[])[],
  rates: Rates,
): ((work: OpWork, at: readonly number[]) => number) | null {
  if (timed.every(({ work }) => work.rows === undefined)) return null;
  const law = fitLaw(timed, rates, true);
  const values = Float64Array.from(timed, ({ work, seconds }) => Math.log(seconds / lawSeconds(law, work, rates)));
  const field = new Field(coordinates, values, fitScales(coordinates, values));
  return (work, at) => lawSeconds(law, work, rates) * Math.exp(field.valueAt(at));
}

/** Four decimals, upwards: a width is never rounded narrower. */
const round = (x: number): number => Math.ceil(x * 1e4) / 1e4;

/** Five digits of a time, upwards: the longest measured one is never beyond it. */
function roundSeconds(x: number): number {
  const unit = 10 ** (Math.floor(Math.log10(x)) - 4);
  return Number((Math.ceil(x / unit) * unit).toPrecision(5));
}

/** The first `most` indices that pass: the rows are in random order. */
function sample<T>(rows: readonly T[], passes: (row: T, index: number) => boolean, most: number): number[] {
  const found: number[] = [];
  for (let i = 0; i < rows.length && found.length < most; i++) if (passes(rows[i]!, i)) found.push(i);
  return found;
}

/** Half-widths by how long a call takes: launch-bound times are noisier than those that memory sets. */
function groupWidths(errors: readonly number[], lawTimes: readonly number[]): FittedTable['widths'] {
  const order = [...errors.keys()].sort((a, b) => lawTimes[a]! - lawTimes[b]!);
  const groups = Math.max(1, Math.min(MOST_GROUPS, Math.floor(order.length / FEWEST_A_GROUP)));
  return Array.from({ length: groups }, (_, g) => {
    const part = order.slice(Math.floor((g * order.length) / groups), Math.floor(((g + 1) * order.length) / groups));
    return {
      belowSeconds: roundSeconds(lawTimes[part.at(-1)!]!),
      halfWidth: round(conformalQuantile(part.map((i) => errors[i]!)) + ROUNDING),
    };
  });
}

/** Lengths of runs of false, then true, then false, ... */
function runs(flags: readonly boolean[]): number[] {
  const starts = flags.flatMap((flag, i) => (flag === (flags[i - 1] ?? false) ? [] : [i]));
  return [...starts, flags.length].map((end, i) => end - (starts[i - 1] ?? 0));
}
