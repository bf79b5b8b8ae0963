/**
 * A stack file: how long the kernels of one serving stack take on one GPU, fitted by `lla-sim import` to tables that
 * others measured. Times are in seconds, widths and residuals in log seconds, sizes in elements (all-reduce: bytes).
 */
import { z } from 'zod';
import { OP_CLASS_NAMES, classSpec, type OpClass } from '../../kernels/op-classes.js';
import { knotsOf } from './grid.js';
import { CHARACTERS, PACKED } from './pack.js';

export const STACK_SCHEMA_VERSION = 2;
/** Largest stack file that is written or read. */
export const MAX_STACK_BYTES = 100 * 1024;

const within = (min: number, max: number) => z.number().min(min).max(max);
const label = z
  .string()
  .min(1)
  .max(400)
  .regex(/^[^\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$/, 'must not hold control characters');
const size = within(1, 2 ** 50);
const logWidth = within(0, 20);
const ascending = (list: readonly number[]): boolean => list.every((x, i) => i === 0 || x > list[i - 1]!);

const axisSchema = z.strictObject({
  name: label,
  /** Sizes at which residuals are stored. */
  knots: z.array(size).min(1).max(200).refine(ascending, 'must ascend'),
  /** Sizes that were measured too and that interpolation between knots reproduces. */
  between: z.array(size).max(1000).refine(ascending, 'must ascend'),
  /** Half-width at sizes that were not measured, between knots. */
  offLine: logWidth,
  /** What an octave outside the knots adds to the half-width. */
  perOctave: logWidth,
});

const tableSourceSchema = z.strictObject({
  repository: label,
  commit: label,
  path: label,
  /** A table of the same commit whose times were taken off: what this stack's kernels do not do. */
  less: label.optional(),
  framework: label,
  version: label,
  licence: label,
  /** Rows of the file that were used, and that the screen dropped. */
  rowsUsed: z.int().nonnegative(),
  rowsDropped: z.int().nonnegative(),
});

const rate = within(1e6, 1e21);

const knots = ({ axes }: { axes: readonly { knots: readonly number[] }[] }): number =>
  knotsOf(axes.map((axis) => axis.knots));

export const stackTableSchema = z
  .strictObject({
    op: z.enum(OP_CLASS_NAMES as [OpClass, ...OpClass[]]),
    fixed: z.record(z.string(), size),
    /** Index into the file's sources. */
    source: z.int().nonnegative(),
    law: z.object({ floorSeconds: within(1e-9, 1), bandwidthShare: within(1e-4, 100), peakShare: within(1e-4, 100) }),
    axes: z.array(axisSchema).min(1).max(4),
    /** Log of time over the law at every knot, packed (stacks/pack.ts); the last axis runs fastest. */
    residuals: z.string().regex(PACKED),
    /** Lengths of runs of knots that were measured, then interpolated, then measured, ... */
    filledRuns: z.array(z.int().nonnegative()),
    /** Pairs of the first two axes that were measured, where these belong together (heads and groups); else null. */
    configurations: z.array(z.tuple([size, size])).nullable(),
    /** Half-width at pairs that were not. */
    offConfiguration: logWidth,
    /** Half-widths inside the grid by the law's time; the last holds beyond, too. */
    widths: z
      .array(z.object({ belowSeconds: within(0, 1e4), halfWidth: logWidth }))
      .min(1)
      .max(8),
    /**
     * What the half-width gains per octave: for each knot of the heads, where sequences of that many stand for heads
     * that the table lacks (empty where they cannot); and for calls that take longer than any that was measured.
     */
    perOctave: z.object({ heads: z.array(logWidth).max(200), time: logWidth }),
    /** The longest time by the law that was measured. */
    mostLawSeconds: within(1e-9, 1e4),
  })
  .refine((t) => t.axes.map((a) => a.name).join() === classSpec(t.op).axes.join(), 'must have the axes of its class')
  .refine(
    (t) => t.perOctave.heads.length === (classSpec(t.op).headsAsSequences ? t.axes[0]!.knots.length : 0),
    'must say for each knot of the heads what taking them for sequences costs',
  )
  .refine((t) => Object.keys(t.fixed).join() === classSpec(t.op).fixed.join(), 'must fix the sizes of its class')
  .refine((t) => t.residuals.length === CHARACTERS * knots(t), 'must hold one residual a knot')
  .refine((t) => t.filledRuns.reduce((n, run) => n + run, 0) === knots(t), 'runs must cover all knots');
export type StackTable = z.infer<typeof stackTableSchema>;
export type TableSource = z.infer<typeof tableSourceSchema>;

export const stackFileSchema = z
  .strictObject({
    schema: z.literal('lla-sim/stack'),
    schemaVersion: z.literal(STACK_SCHEMA_VERSION),
    stack: label,
    /** Version of the stack: the newest of its tables. */
    version: label,
    /** Id of the device in the catalogue. */
    device: label,
    /** Datasheet rates that the laws' shares refer to. */
    rates: z.strictObject({ memoryBytesPerSecond: rate, linkBytesPerSecond: rate, operationsPerSecond: rate }),
    tables: z.array(stackTableSchema).min(1).max(40),
    sources: z.array(tableSourceSchema).min(1).max(40),
    /** Tables and rows that were not used, and why. */
    dropped: z.array(label).max(200),
  })
  .refine((f) => f.tables.every((t) => t.source < f.sources.length), 'every table must have a source');
export type StackFile = z.infer<typeof stackFileSchema>;
