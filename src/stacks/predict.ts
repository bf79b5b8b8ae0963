/**
 * Time of one operation by the kernels of a serving stack, from a table that `lla-sim import` fitted. Needs no Node
 * module: the browser page uses it too.
 */
import { classSpec, type OpClass } from '../../kernels/op-classes.js';
import type { OpShape, Rates } from '../../kernels/op-class.js';
import { lawParts, nearestOf, leftOutOf, type Because, type CallExplanation } from '../cost/explain.js';
import * as words from './explain.js';
import { interpolateAt, knotSizes, placeOf, type Grid, type Place } from './grid.js';
import { lawSeconds } from '../cost/law.js';
import { DEVICES } from '../devices/catalogue.js';
import { tunedClass } from '../../kernels/tuned.js';
import { isFromMemory, warmBytes } from './warm.js';
import { unpack } from './pack.js';
import type { StackFile, StackTable } from './stack-schema.js';

export interface StackPrice {
  /** Seconds. */
  readonly estimate: number;
  readonly low: number;
  readonly high: number;
  readonly evidence: 'measured' | 'interpolated' | 'extrapolated';
  /** Octaves by which the shape lies outside what was measured; 0 inside. */
  readonly octavesOutside: number;
}

/** A table that is ready to predict from. */
export class TablePredictor {
  readonly #grid: Grid;
  /** Sorted, axis by axis. */
  readonly #measured: readonly (readonly number[])[];
  /** Second sizes that were measured with each first one. */
  readonly #configurations: ReadonlyMap<number, ReadonlySet<number>> | null;
  readonly #filled: Uint8Array;
  readonly #fixed: readonly (readonly [string, number])[];

  /** @param timed the L2 of the GPU that was timed, and the repository that did; none is taken to be warm without */
  constructor(
    readonly table: StackTable,
    readonly rates: Rates,
    private readonly timed: { readonly l2Bytes: number; readonly by: string } | null = null,
  ) {
    this.#grid = {
      lines: table.axes.map((axis) => axis.knots),
      values: unpack(table.residuals),
    };
    this.#measured = table.axes.map((axis) => [...axis.knots, ...axis.between].sort((a, b) => a - b));
    this.#configurations = table.configurations && pairsOf(table.configurations);
    this.#filled = new Uint8Array(this.#grid.values.length);
    this.#fixed = Object.entries(table.fixed);
    let at = 0;
    table.filledRuns.forEach((run, i) => {
      if (i % 2 === 1) this.#filled.fill(1, at, at + run);
      at += run;
    });
  }

  /**
   * @param shape the class's axes, and its fixed sizes, which must be the table's
   */
  predict(shape: OpShape, because?: Because): StackPrice {
    const { table } = this;
    const spec = classSpec(table.op);
    const moved = this.#moveHeads(shape);
    if (moved.shape !== shape) because?.(words.moved(spec.axes[0]!, shape, moved.shape), moved.widening, 'added');
    const sizes = spec.axes.map((name) => moved.shape[name]!);
    const work = spec.work(this.#whole(moved.shape));
    const law = lawSeconds(table.law, work, this.rates);

    const places: Place[] = [];
    let widening = moved.widening;
    let octavesOutside = 0;
    const points = widthAt(table.widths, law);
    let width = points;
    because?.(words.single(points), points);
    let onKnot = true;
    for (let i = 0; i < sizes.length; i++) {
      const axis = table.axes[i]!;
      const size = sizes[i]!;
      const place = placeOf(axis.knots, size);
      places.push(place);
      const octaves = octavesFrom(axis.knots, size);
      octavesOutside += octaves;
      const added = octaves * axis.perOctave;
      widening += added;
      if (octaves > 0) because?.(words.outside(`${axis.name} ${size}`, octaves, axis.perOctave), added, 'added');
      if (place.share > 0) onKnot = false;
      const off = octaves === 0 ? offLines(this.#measured[i]!, size) : 0;
      if (off > 0) {
        const excess = Math.max(0, axis.offLine - points) * off;
        width = Math.max(width, points + excess);
        because?.(words.between(axis, size, neighboursOf(this.#measured[i]!, size), off, points), points + excess);
      }
    }
    const known = law * Math.exp(interpolateAt(this.#grid, places));
    const cold = this.#coldSeconds(this.#whole(shape), known);
    // Faster than memory is certainly warm, and tells nothing of a step.
    const estimate = known >= cold ? known : Math.max(law, cold);
    const beyond = Math.max(0, Math.log2(law / table.mostLawSeconds));
    // A size that no table has is told by its own line above.
    const areLines = this.#measured[0]!.includes(sizes[0]!) && this.#measured[1]?.includes(sizes[1]!) === true;
    if (areLines && this.#configurations && this.#configurations.get(sizes[0]!)?.has(sizes[1]!) !== true) {
      width = Math.max(width, table.offConfiguration);
      because?.(words.pair(spec.axes, sizes, table.offConfiguration), table.offConfiguration);
    }
    octavesOutside = Math.max(octavesOutside, beyond);
    const late = Math.max(0, beyond * table.perOctave.time - widening);
    if (late > 0) because?.(words.outside('its time', beyond, table.perOctave.time), late, 'added');
    widening += late;
    const half = width + widening;
    const measured =
      moved.shape === shape &&
      onKnot &&
      cold <= known &&
      octavesOutside === 0 &&
      this.#filled[this.#indexOf(sizes)] === 0;
    const high = estimate * Math.exp(half);
    if (cold > 0 && law > high) because?.(words.WARM, Math.log(law / estimate), 'instead');
    return {
      estimate,
      low: Math.max(estimate * Math.exp(-half), cold),
      // Where weights or a cache were warm, the law of those that were not is the slow end.
      high: Math.max(high, cold > 0 ? law : 0),
      evidence: octavesOutside > 0 ? 'extrapolated' : measured ? 'measured' : 'interpolated',
      octavesOutside,
    };
  }

  /**
   * Where that time may be one of a repeated call, whose weights or cache are in the L2, the least that reading them
   * from memory takes, as a step does; else 0.
   */
  #coldSeconds(shape: OpShape, seconds: number): number {
    const { timed, rates, table } = this;
    if (timed === null) return 0;
    const [of, work] = [tunedClass(table.op), classSpec(table.op).work(shape)];
    const warm = warmBytes(of, shape, work, { ...timed, rates, seconds });
    return warm / rates.memoryBytesPerSecond;
  }

  /** Why that price. */
  explain(shape: OpShape): CallExplanation {
    const { table } = this;
    const spec = classSpec(table.op);
    const points = knotSizes(this.#grid.lines)
      .filter((_, i) => this.#filled[i] === 0)
      .map((sizes) => Object.fromEntries(spec.axes.map((axis, j) => [axis, sizes[j]!])));
    const law = lawParts(table.law, spec.work(this.#whole(shape)), this.rates);
    const { estimate } = this.predict(shape);
    return {
      law: estimate === law.seconds && this.#coldSeconds(this.#whole(shape), 0) > 0 ? { ...law, warm: true } : law,
      data: nearestOf(points, this.#moveHeads(shape).shape, spec.axes),
      leftOut: leftOutOf((because) => this.predict(shape, because)),
    };
  }

  #indexOf(sizes: readonly number[]): number {
    return this.#grid.lines.reduce((index, line, i) => index * line.length + line.indexOf(sizes[i]!), 0);
  }

  /** The shape with the table's fixed sizes. */
  #whole(shape: OpShape): OpShape {
    for (const [name, value] of this.#fixed) if (shape[name] !== value) return { ...shape, ...this.table.fixed };
    return shape;
  }

  /**
   * KV heads that a table lacks are sequences to a kernel: 16 heads at batch b are the rows of 8 at batch 2b, of the
   * same group. The nearest line below is taken.
   * @returns the shape on that line, and what this adds to the half-width; the shape itself where nothing is moved
   */
  #moveHeads(shape: OpShape): { shape: OpShape; widening: number } {
    const [first] = this.table.axes;
    const perOctave = this.table.perOctave.heads;
    const heads = first ? shape[first.name]! : 0;
    if (!first || perOctave.length === 0 || this.#measured[0]!.includes(heads)) return { shape, widening: 0 };
    const line = first.knots.findLastIndex((size) => size < heads);
    if (line < 0) return { shape, widening: 0 };
    const lower = first.knots[line]!;
    return {
      shape: { ...shape, [first.name]: lower, batch: (shape['batch']! * heads) / lower },
      widening: Math.max(1, Math.log2(heads / lower)) * perOctave[line]!,
    };
  }
}

function pairsOf(pairs: readonly (readonly number[])[]): Map<number, Set<number>> {
  const found = new Map<number, Set<number>>();
  for (const [first, second] of pairs) found.set(first!, (found.get(first!) ?? new Set()).add(second!));
  return found;
}

/** Half-width in log seconds of what lies between measured points, by how long the call takes. */
export const widthAt = (widths: StackTable['widths'], law: number): number =>
  (widths.find((w) => law <= w.belowSeconds) ?? widths.at(-1)!).halfWidth;

/** The measured sizes on both sides of one that lies between them. */
const neighboursOf = (measured: readonly number[], size: number): readonly number[] => {
  const above = measured.findIndex((line) => line > size);
  return measured.slice(above - 1, above + 1);
};

/**
 * How far a size lies from measured ones: 0 on one of them, 1 halfway between two, where a line that was left out lies
 * from its neighbours. Errors grow on the way.
 */
function offLines(measured: readonly number[], size: number): number {
  const { share } = placeOf(measured, size);
  return 2 * Math.min(share, 1 - share);
}

/** Octaves by which a size lies outside the knots. */
const octavesFrom = (knots: readonly number[], size: number): number => {
  const [first, last] = [knots[0]!, knots[knots.length - 1]!];
  return size >= first && size <= last ? 0 : Math.max(0, Math.log2(first / size), Math.log2(size / last));
};

/** Unpacked tables: plans of one file share them, and a plan asks few of a file's tables. */
const UNPACKED = new WeakMap<StackTable, TablePredictor>();

function predictorOf(table: StackTable, { rates, device, sources }: StackFile): TablePredictor {
  const known = UNPACKED.get(table);
  if (known) return known;
  const l2Bytes = DEVICES.find(({ id }) => id === device)?.l2Bytes;
  const timed =
    l2Bytes && isFromMemory(tunedClass(table.op)) ? { l2Bytes, by: sources[table.source]!.repository } : null;
  const made = new TablePredictor(table, rates, timed);
  UNPACKED.set(table, made);
  return made;
}

/** All tables of one file. */
export class StackPredictor {
  /** Tables of each class, with their fixed sizes. */
  readonly #tables = new Map<OpClass, { readonly table: StackTable; readonly fixed: [string, number][] }[]>();

  constructor(readonly file: StackFile) {
    for (const table of file.tables) {
      const same = this.#tables.get(table.op) ?? [];
      same.push({ table, fixed: Object.entries(table.fixed) });
      this.#tables.set(table.op, same);
    }
  }

  /**
   * Time of one call, or null where no table holds this class at these fixed sizes (another head width is another
   * kernel).
   */
  predict(op: OpClass, shape: OpShape): StackPrice | null {
    return this.#find(op, shape)?.predict(shape) ?? null;
  }

  /** Why that time; null where `predict` knows none. */
  explain(op: OpClass, shape: OpShape): CallExplanation | null {
    const found = this.#find(op, shape);
    if (!found) return null;
    const why = found.explain(shape);
    const { repository } = this.file.sources[found.table.source]!;
    return { ...why, data: why.data && { ...why.data, source: `${repository} on ${this.file.device}` } };
  }

  #find(op: OpClass, shape: OpShape): TablePredictor | null {
    const found = this.#tables.get(op)?.find(({ fixed }) => fixed.every(([name, size]) => shape[name] === size));
    return found ? predictorOf(found.table, this.file) : null;
  }
}
