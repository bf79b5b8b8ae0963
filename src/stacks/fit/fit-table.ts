/**
 * A table of measured times becomes knots on a grid with intervals. Residuals from the law are interpolated between
 * measured points (kriging), the grid is filled and thinned, and half-widths are quantiles of the errors at points that
 * were left out: points at random, whole lines, whole configurations, whole octaves.
 */
import { CONSTANTS } from '../../cost/constants.js';
import { conformalQuantile, KAPPA_UNTESTED, kappaOf, lackPerOctave } from '../../cost/conformal.js';
import { randomFrom } from '../../numbers/random.js';
import type { StackTable } from '../stack-schema.js';
import { classSpec, type OpClass } from '../../../kernels/op-classes.js';
import type { OpShape, Rates } from '../../../kernels/op-class.js';
import { interpolateBy, knotSizes } from '../grid.js';
import { Field, fitScales } from './kriging.js';
import { fitLaw, lawSeconds } from '../../cost/law.js';
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
  const shuffled = shuffle(rows);
  const timed = shuffled.map((row) => ({
    sizes: spec.axes.map((axis) => row.shape[axis]!),
    work: spec.work({ ...row.shape, ...fixed }),
    seconds: row.seconds,
  }));
  const law = fitLaw(timed, rates);
  const lawTimes = timed.map((row) => lawSeconds(law, row.work, rates));
  const values = Float64Array.from(timed, (row, i) => Math.log(row.seconds / lawTimes[i]!));
  const locate = (sizes: readonly number[]): number[] => {
    const shape: Record<string, number> = { ...fixed };
    spec.axes.forEach((axis, i) => (shape[axis] = sizes[i]!));
    return spec.coordinates(shape).map(Math.log2);
  };
  const coordinates = timed.map((row) => locate(row.sizes));
  const field = new Field(coordinates, values, fitScales(coordinates, values));
  const measured = new Map(timed.map((row, i) => [row.sizes.join(), i]));

  const allLines = spec.axes.map((_, axis) => [...new Set(timed.map((row) => row.sizes[axis]!))].sort((a, b) => a - b));
  const valueOf = (sizes: readonly number[], skip?: (index: number) => boolean): number => {
    const index = measured.get(sizes.join());
    return index !== undefined && !skip?.(index) ? values[index]! : field.valueAt(locate(sizes), skip);
  };
  const full = { lines: allLines, values: Float64Array.from(knotSizes(allLines), (sizes) => valueOf(sizes)) };
  const lines = thinLines(full, mostKnots);
  const knots = knotSizes(lines);
  const packed = pack(Float64Array.from(knots, (sizes) => valueOf(sizes)));
  const grid = unpack(packed);

  const predictLeftOut = (i: number, folds: (index: number) => boolean, known: Map<number, number>): number =>
    interpolateBy(lines, timed[i]!.sizes, (index) => {
      const value = known.get(index) ?? valueOf(knots[index]!, folds);
      known.set(index, value);
      return value;
    });
  const judged = Math.min(timed.length, JUDGED);
  const errors = Array.from({ length: judged }, () => 0);
  for (let fold = 0; fold < FOLDS; fold++) {
    const known = new Map<number, number>();
    for (let i = fold; i < judged; i += FOLDS)
      errors[i] = Math.abs(predictLeftOut(i, (index) => index % FOLDS === fold, known) - values[i]!);
  }
  const widths = groupWidths(errors, lawTimes.slice(0, judged));
  const baseWidth = (i: number): number =>
    (widths.find((w) => lawTimes[i]! <= w.belowSeconds) ?? widths[widths.length - 1]!).halfWidth;

  const gridAt = (index: number): number => grid[index]!;
  const axes = spec.axes.map((name, axis) => {
    const line = lines[axis]!;
    const test = lineErrors(axis, line);
    return {
      name,
      knots: line,
      between: allLines[axis]!.filter((size) => !line.includes(size)),
      offLine: round(test.length > 0 ? conformalQuantile(test) : KAPPA_UNTESTED),
      perOctave: round(outsideErrors(axis, line)),
    };
  });

  /** Errors at measured points of lines that are left out, or were, for every line between others. */
  function lineErrors(axis: number, line: readonly number[]): number[][] {
    const between = allLines[axis]!.slice(1, -1);
    return between.map((size) => {
      const on = sample(timed, (row) => row.sizes[axis] === size, (2 * JUDGED_OUTSIDE) / between.length);
      const kept = line.indexOf(size);
      const without = kept < 0 ? undefined : { axis, line: kept };
      return on.map((i) => Math.abs(interpolateBy(lines, timed[i]!.sizes, gridAt, without) - values[i]!));
    });
  }

  /**
   * What half-widths lack per octave when the lines of the outermost one, two or three octaves are hidden: that of the
   * end where it is more.
   */
  function outsideErrors(axis: number, line: readonly number[]): number {
    const lacksAt = (end: 'low' | 'high'): number[][] =>
      [1, 2, 3].flatMap((octaves) => {
        const rim = end === 'high' ? line[line.length - 1]! / 2 ** octaves : line[0]! * 2 ** octaves;
        const inside = line.filter((size) => (end === 'high' ? size <= rim : size >= rim));
        if (inside.length === 0 || inside.length === line.length) return [];
        const nearest = end === 'high' ? inside[inside.length - 1]! : inside[0]!;
        const beyond = (row: { sizes: number[] }): boolean =>
          end === 'high' ? row.sizes[axis]! > nearest : row.sizes[axis]! < nearest;
        const lacks = sample(timed, beyond, JUDGED_OUTSIDE / 6).map((i) => {
          const sizes = timed[i]!.sizes.map((size, j) => (j === axis ? nearest : size));
          const error = Math.abs(interpolateBy(lines, sizes, gridAt) - values[i]!);
          return lackPerOctave(error, baseWidth(i), Math.abs(Math.log2(timed[i]!.sizes[axis]! / nearest)));
        });
        return lacks.length < FEWEST_OUTSIDE ? [] : [lacks];
      });
    const ends = [lacksAt('low'), lacksAt('high')].filter((lacks) => lacks.length > 0);
    return ends.length > 0 ? Math.max(...ends.map((lacks) => kappaOf(lacks))) : KAPPA_UNTESTED;
  }

  /** The same for calls that take longer than any that were measured. */
  function timeErrors(): number {
    const most = lawTimes.reduce((a, b) => Math.max(a, b), 0);
    const lacks = [1, 2, 3].flatMap((octaves) => {
      const hidden = (index: number): boolean => lawTimes[index]! > most / 2 ** octaves;
      return sample(lawTimes, (_, i) => hidden(i), JUDGED_OUTSIDE / 3).map((i) => {
        const error = Math.abs(field.valueAt(coordinates[i]!, hidden) - values[i]!);
        return lackPerOctave(error, baseWidth(i), Math.log2(lawTimes[i]! / most) + octaves);
      });
    });
    return kappaOf(lacks);
  }

  /**
   * What it costs, for each line of KV heads, to take more heads for more sequences of that line: the errors at the
   * next line. These do not grow with the octaves to it, since kernels are chosen by the count. The last line has those
   * of the line before it.
   */
  function headErrors(): number[] {
    if (!spec.headsAsSequences) return [];
    const line = lines[0]!;
    const batch = spec.axes.indexOf('batch');
    const steps = line.slice(1).map((size, k) => {
      const lower = line[k]!;
      const lacks = sample(timed, (row) => row.sizes[0] === size, JUDGED_HEADS).flatMap((i) => {
        const sizes = timed[i]!.sizes.map((s, j) => (j === 0 ? lower : j === batch ? (s * size) / lower : s));
        if (sizes[batch]! > lines[batch]!.at(-1)!) return [];
        const seconds = lawAt(sizes) * Math.exp(interpolateBy(lines, sizes, gridAt));
        return [lackPerOctave(Math.log(seconds / timed[i]!.seconds), baseWidth(i), 0)];
      });
      return kappaOf(lacks);
    });
    return [...steps, steps.at(-1) ?? KAPPA_UNTESTED];
  }

  function lawAt(sizes: readonly number[]): number {
    const shape: Record<string, number> = { ...fixed };
    spec.axes.forEach((axis, j) => (shape[axis] = sizes[j]!));
    return lawSeconds(law, spec.work(shape), rates);
  }

  const paired = spec.axes.includes('group');
  const configurations = paired
    ? [...new Set(timed.map((row) => `${row.sizes[0]}:${row.sizes[1]}`))].sort(byNumbers)
    : null;

  /**
   * Errors at configurations, and at numbers of heads, of which nothing was measured: the larger. Kernels are chosen by
   * the configuration, so errors of one are alike, and each configuration counts alike.
   */
  function configurationErrors(list: readonly string[]): number {
    if (list.length < FEWEST_CONFIGURATIONS) return KAPPA_UNTESTED;
    const names = timed.map((row) => `${row.sizes[0]}:${row.sizes[1]}`);
    const headCounts = timed.map((row) => String(row.sizes[0]! * row.sizes[1]!));
    return Math.max(
      ...[names, headCounts].map((of) => {
        const kinds = [...new Set(of)];
        return conformalQuantile(
          kinds.map((kind) => {
            const hidden = (index: number): boolean => of[index] === kind;
            const known = new Map<number, number>();
            return sample(of, (_, i) => hidden(i), JUDGED_OUTSIDE / kinds.length).map((i) =>
              Math.abs(predictLeftOut(i, hidden, known) - values[i]!),
            );
          }),
        );
      }),
    );
  }

  return {
    op,
    fixed: { ...fixed },
    law: {
      floorSeconds: Number(law.floorSeconds.toPrecision(6)),
      bandwidthShare: Number(law.bandwidthShare.toPrecision(6)),
      peakShare: Number(law.peakShare.toPrecision(6)),
    },
    axes,
    residuals: packed,
    filledRuns: runs(knots.map((sizes) => !measured.has(sizes.join()))),
    configurations: configurations && configurations.map((name) => name.split(':').map(Number) as [number, number]),
    offConfiguration: configurations ? round(configurationErrors(configurations)) : 0,
    widths,
    perOctave: { heads: headErrors().map(round), time: round(timeErrors()) },
    mostLawSeconds: roundSeconds(lawTimes.reduce((a, b) => Math.max(a, b), 0)),
  };
}

/** Four decimals, upwards: a width is never rounded narrower. */
const round = (x: number): number => Math.ceil(x * 1e4) / 1e4;

/** Five digits of a time, upwards: the longest measured one is never beyond it. */
function roundSeconds(x: number): number {
  const unit = 10 ** (Math.floor(Math.log10(x)) - 4);
  return Number((Math.ceil(x / unit) * unit).toPrecision(5));
}

const byNumbers = (a: string, b: string): number => {
  const [x, y] = [a, b].map((pair) => pair.split(':').map(Number));
  return x![0]! - y![0]! || x![1]! - y![1]!;
};

function shuffle<T>(rows: readonly T[]): T[] {
  const random = randomFrom(SEED);
  const list = [...rows];
  for (let i = list.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [list[i], list[j]] = [list[j]!, list[i]!];
  }
  return list;
}

/** The first `most` indices that pass: the rows are in random order. */
function sample<T>(rows: readonly T[], passes: (row: T, index: number) => boolean, most: number): number[] {
  const found: number[] = [];
  for (let i = 0; i < rows.length && found.length < most; i++) if (passes(rows[i]!, i)) found.push(i);
  return found;
}

/** Half-widths by how long a call takes: launch-bound times are noisier than those that memory sets. */
function groupWidths(errors: readonly number[], lawTimes: readonly number[]): FittedTable['widths'] {
  const order = errors.map((_, i) => i).sort((a, b) => lawTimes[a]! - lawTimes[b]!);
  const groups = Math.max(1, Math.min(MOST_GROUPS, Math.floor(order.length / FEWEST_A_GROUP)));
  const widths: FittedTable['widths'] = [];
  for (let g = 0; g < groups; g++) {
    const part = order.slice(Math.floor((g * order.length) / groups), Math.floor(((g + 1) * order.length) / groups));
    widths.push({
      belowSeconds: roundSeconds(lawTimes[part[part.length - 1]!]!),
      halfWidth: round(conformalQuantile(part.map((i) => errors[i]!)) + ROUNDING),
    });
  }
  return widths;
}

/** Lengths of runs of false, then true, then false, ... */
function runs(flags: readonly boolean[]): number[] {
  const lengths: number[] = [];
  let current = false;
  let length = 0;
  for (const flag of flags) {
    if (flag !== current) {
      lengths.push(length);
      [current, length] = [flag, 0];
    }
    length++;
  }
  return [...lengths, length];
}
