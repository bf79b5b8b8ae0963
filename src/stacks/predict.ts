/**
 * Time of one operation by the kernels of a serving stack, from a table that `lla-sim import` fitted. Needs no Node
 * module: the browser page uses it too.
 */
import { classSpec, type OpClass } from '../kernels/op-classes.js';
import type { OpShape, Rates } from '../kernels/op-class.js';
import { interpolate, placeOf, type Grid } from './grid.js';
import { lawSeconds } from '../cost/law.js';
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
  readonly #measured: readonly ReadonlySet<number>[];
  readonly #configurations: ReadonlySet<string> | null;
  readonly #filled: Uint8Array;

  constructor(
    readonly table: StackTable,
    readonly rates: Rates,
  ) {
    this.#grid = {
      lines: table.axes.map((axis) => axis.knots),
      values: unpack(table.residuals),
    };
    this.#measured = table.axes.map((axis) => new Set([...axis.knots, ...axis.between]));
    this.#configurations = table.configurations && new Set(table.configurations.map((pair) => pair.join(':')));
    this.#filled = new Uint8Array(this.#grid.values.length);
    let at = 0;
    table.filledRuns.forEach((run, i) => {
      if (i % 2 === 1) this.#filled.fill(1, at, at + run);
      at += run;
    });
  }

  /**
   * @param shape the class's axes, and its fixed sizes, which must be the table's
   */
  predict(shape: OpShape): StackPrice {
    const { table } = this;
    const spec = classSpec(table.op);
    const moved = moveHeads(table, shape);
    const sizes = spec.axes.map((name) => moved.shape[name]!);
    const law = lawSeconds(table.law, spec.work({ ...moved.shape, ...table.fixed }), this.rates);
    const estimate = law * Math.exp(interpolate(this.#grid, sizes));

    let widening = moved.octaves * table.perOctave.heads;
    let octavesOutside = 0;
    let width = widthAt(table, law);
    let onKnot = true;
    table.axes.forEach((axis, i) => {
      const size = sizes[i]!;
      const first = axis.knots[0]!;
      const last = axis.knots[axis.knots.length - 1]!;
      const octaves = Math.max(0, Math.log2(first / size), Math.log2(size / last));
      octavesOutside += octaves;
      widening += octaves * axis.perOctave;
      if (placeOf(axis.knots, size).share > 0) onKnot = false;
      if (octaves === 0 && !this.#measured[i]!.has(size)) width = Math.max(width, axis.offLine);
    });
    const beyond = Math.max(0, Math.log2(law / table.mostLawSeconds));
    if (this.#configurations && !this.#configurations.has(`${sizes[0]}:${sizes[1]}`))
      width = Math.max(width, table.offConfiguration);
    octavesOutside = Math.max(octavesOutside, beyond);
    widening = Math.max(widening, beyond * table.perOctave.time);
    const half = width + widening;
    const measured = moved.octaves === 0 && onKnot && octavesOutside === 0 && this.#filled[this.#indexOf(sizes)] === 0;
    return {
      estimate,
      low: estimate * Math.exp(-half),
      high: estimate * Math.exp(half),
      evidence: octavesOutside > 0 ? 'extrapolated' : measured ? 'measured' : 'interpolated',
      octavesOutside,
    };
  }

  #indexOf(sizes: readonly number[]): number {
    return this.#grid.lines.reduce((index, line, i) => index * line.length + line.indexOf(sizes[i]!), 0);
  }
}

/** Half-width in log seconds of what lies between measured points, by how long the call takes. */
function widthAt(table: StackTable, law: number): number {
  const group = table.widths.find((w) => law <= w.belowSeconds) ?? table.widths[table.widths.length - 1]!;
  return group.halfWidth;
}

/**
 * KV heads that a table lacks are sequences to a kernel: 16 heads at batch b are the rows of 8 at batch 2b, of the same
 * group. The nearest line below is taken.
 * @returns the shape on that line, and the octaves between, at least one; 0 where nothing is moved
 */
function moveHeads(table: StackTable, shape: OpShape): { shape: OpShape; octaves: number } {
  const [first] = table.axes;
  const heads = first ? shape[first.name]! : 0;
  if (!first || !MOVED_AXES.includes(table.op) || first.knots.includes(heads) || first.between.includes(heads))
    return { shape, octaves: 0 };
  const line = first.knots.findLast((size) => size < heads);
  if (line === undefined) return { shape, octaves: 0 };
  return {
    shape: { ...shape, [first.name]: line, batch: (shape['batch']! * heads) / line },
    octaves: Math.max(1, Math.log2(heads / line)),
  };
}

/** Classes whose first axis counts KV heads. */
const MOVED_AXES: readonly OpClass[] = [
  'decode-attention',
  'decode-attention-grouped',
  'prefill-attention',
  'prefill-attention-grouped',
  'decode-attention-fp8',
  'decode-attention-grouped-fp8',
  'prefill-attention-fp8',
  'prefill-attention-grouped-fp8',
];

/** Unpacked tables: plans of one file share them, and a plan asks few of a file's tables. */
const UNPACKED = new WeakMap<StackTable, TablePredictor>();

function predictorOf(table: StackTable, rates: Rates): TablePredictor {
  const known = UNPACKED.get(table) ?? new TablePredictor(table, rates);
  UNPACKED.set(table, known);
  return known;
}

/** All tables of one file. */
export class StackPredictor {
  constructor(readonly file: StackFile) {}

  /**
   * Time of one call, or null where no table holds this class at these fixed sizes (another head width is another
   * kernel).
   */
  predict(op: OpClass, shape: OpShape): StackPrice | null {
    const table = this.file.tables.find(
      (t) => t.op === op && Object.entries(t.fixed).every(([name, size]) => shape[name] === size),
    );
    return table ? predictorOf(table, this.file.rates).predict(shape) : null;
  }
}
