/**
 * Time of one operation by the kernels of a serving stack, from a table that `lla-sim import` fitted. Needs no Node
 * module: the browser page uses it too.
 */
import { classSpec, type OpClass } from '../../kernels/op-classes.js';
import type { OpShape, Rates } from '../../kernels/op-class.js';
import { lawParts, nearestOf, leftOutOf, type Because, type CallExplanation } from '../cost/explain.js';
import * as words from './explain.js';
import { interpolateAt, knotSizes, placeOf, type Grid, type Place } from './grid.js';
import type { Interval } from '../cost/evidence.js';
import { CONSTANTS } from '../cost/constants.js';
import { lawSeconds } from '../cost/law.js';
import { unpack } from './pack.js';
import { explainedInAStep, inAStep } from './warm.js';
import type { StackFile, StackTable } from './stack-schema.js';

/** Seconds of a call. */
export interface StackPrice extends Interval {
  readonly evidence: 'measured' | 'interpolated' | 'extrapolated';
  /** Octaves by which the shape lies outside what was measured; 0 inside. */
  readonly octavesOutside: number;
}

const PER_OCTAVE_INSIDE = CONSTANTS.perOctaveInside.value;

/** A table that is ready to predict from. */
export class TablePredictor {
  readonly #grid: Grid;
  /** Sorted, axis by axis. */
  readonly #measured: readonly (readonly number[])[];
  /** Second sizes that were measured with each first one. */
  readonly #configurations: ReadonlyMap<number, ReadonlySet<number>> | null;
  readonly #filled: Uint8Array;
  /** Logarithms of the sizes of measured knots, axis by axis. */
  #largest: readonly (readonly number[])[] | null = null;
  readonly #fixed: readonly (readonly [string, number])[];

  constructor(
    readonly table: StackTable,
    readonly rates: Rates,
  ) {
    this.#grid = { lines: table.axes.map((axis) => axis.knots), values: unpack(table.residuals) };
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

  /** @param shape the class's axes, and its fixed sizes, which must be the table's */
  predict(shape: OpShape, because?: Because): StackPrice {
    const { table } = this;
    const spec = classSpec(table.op);
    const moved = this.#moveHeads(shape);
    if (moved.shape !== shape) because?.(words.moved(spec.axes[0]!, shape, moved.shape), moved.widening, 'added');
    const sizes = spec.axes.map((name) => moved.shape[name]!);
    const law = lawSeconds(table.law, spec.work(this.#whole(moved.shape)), this.rates);

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
    const beyondAll = this.#octavesBeyond(sizes, places);
    const added = beyondAll * PER_OCTAVE_INSIDE;
    octavesOutside += beyondAll;
    widening += added;
    if (beyondAll > 0) because?.(words.outside('their combination', beyondAll, PER_OCTAVE_INSIDE), added, 'added');
    const estimate = law * Math.exp(interpolateAt(this.#grid.lines, places, (index) => this.#grid.values[index]!));
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
      moved.shape === shape && onKnot && octavesOutside === 0 && this.#filled[this.#indexOf(sizes)] === 0;
    return {
      estimate,
      low: estimate * Math.exp(-half),
      high: estimate * Math.exp(half),
      evidence: octavesOutside > 0 ? 'extrapolated' : measured ? 'measured' : 'interpolated',
      octavesOutside,
    };
  }

  /** Why that price. */
  explain(shape: OpShape): CallExplanation {
    const { table } = this;
    const spec = classSpec(table.op);
    const points = knotSizes(this.#grid.lines)
      .filter((_, i) => this.#filled[i] === 0)
      .map((sizes) => Object.fromEntries(spec.axes.map((axis, j) => [axis, sizes[j]!])));
    return {
      law: lawParts(table.law, spec.work(this.#whole(shape)), this.rates),
      data: nearestOf(points, this.#moveHeads(shape).shape, spec.axes),
      leftOut: leftOutOf((because) => this.predict(shape, because)),
    };
  }

  /**
   * Octaves to the nearest measured knot from a size inside the grid of which none is as large on every axis: of many
   * sequences tables have no long contexts.
   */
  #octavesBeyond(sizes: readonly number[], places: readonly Place[]): number {
    const { lines } = this.#grid;
    const corner = places.reduce((index, { above }, i) => index * lines[i]!.length + above, 0);
    if (this.#filled[corner] === 0) return 0;
    this.#largest ??= knotSizes(lines)
      .filter((_, i) => this.#filled[i] === 0)
      .map((knot) => knot.map(Math.log2));
    const inGrid = sizes.map((size, i) => Math.log2(Math.min(size, lines[i]!.at(-1)!)));
    let least = Infinity;
    for (const knot of this.#largest) {
      let away = 0;
      for (let i = 0; i < knot.length; i++) away += Math.max(0, inGrid[i]! - knot[i]!);
      if (away < least) least = away;
    }
    return least;
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
  const { below, above } = placeOf(measured, size);
  return [measured[below]!, measured[above]!];
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
  const [first, last] = [knots[0]!, knots.at(-1)!];
  return size >= first && size <= last ? 0 : Math.max(0, Math.log2(first / size), Math.log2(size / last));
};

/** Unpacked tables: plans of one file share them, and a plan asks few of a file's tables. */
const UNPACKED = new WeakMap<StackTable, TablePredictor>();

/** All tables of one file. */
export class StackPredictor {
  constructor(readonly file: StackFile) {}

  /**
   * Time of one call, or null where no table holds this class at these fixed sizes (another head width is another
   * kernel).
   */
  predict(op: OpClass, shape: OpShape): StackPrice | null {
    const found = this.#find(op, shape);
    return found && inAStep(this.file, found.table, shape, (of) => found.predict(of));
  }

  /** Why that time; null where `predict` knows none. */
  explain(op: OpClass, shape: OpShape): CallExplanation | null {
    const found = this.#find(op, shape);
    if (!found) return null;
    const why = found.explain(shape);
    const { repository } = this.file.sources[found.table.source]!;
    const told = { ...why, data: why.data && { ...why.data, source: `${repository} on ${this.file.device}` } };
    return explainedInAStep(this.file, found.table, shape, (of) => found.predict(of), told);
  }

  #find(op: OpClass, shape: OpShape): TablePredictor | null {
    const isAsked = ({ op: of, fixed }: StackTable): boolean =>
      of === op && Object.entries(fixed).every(([name, size]) => shape[name] === size);
    const found = this.file.tables.find(isAsked);
    if (found && !UNPACKED.has(found)) UNPACKED.set(found, new TablePredictor(found, this.file.rates));
    return (found && UNPACKED.get(found)) ?? null;
  }
}
