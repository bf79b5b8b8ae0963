/**
 * Compares what a kernel wrote with the float64 reference. Large outputs are checked on a random subset of rows, so that the
 * reference costs about as much as one more measurement.
 */
import type { Device } from '../gpu/device.js';
import { capacityOf } from '../gpu/cache-layout.js';
import { halfValue } from '../gpu/half.js';
import { bufferOf, type OperationPlan } from '../gpu/plan.js';
import { DEFAULTS, type OperationOptions } from '../gpu/operations/index.js';
import { workOf, type KernelCall, type Shape } from '../schedule/kernels.js';
import { keyRow, mix, valueRow, type Operands, type Scalars } from './inputs.js';
import { attendLatentRow, attendRow, mergedRow, rebuiltRow } from './reference/attention.js';
import { appendedTile, embedRow, matmulRow, ropeRow, rmsnormRow, sampleRow, swigluRow } from './reference/pointwise.js';

/** Multiply-adds that the reference may spend on one check: a few tenths of a second. */
const REFERENCE_FLOPS = 1e8;
/** Columns of a product that are checked in a row. */
const MOST_COLUMNS = 64;

interface Subject {
  call: KernelCall;
  options: OperationOptions;
  /** Operands as they were before the run. */
  input: (name: string) => Scalars;
  /** Output as it is after the run. */
  output: (name: string) => Scalars;
}

/** One row of outputs: as it should be, and as it is. */
interface Row {
  expected: readonly number[];
  actual: (index: number) => number;
}

interface Checker {
  outputs: readonly string[];
  rows(shape: Shape): number;
  row(subject: Subject, row: number): Row;
}

const dim = (shape: Shape, name: string): number => shape[name] as number;
const queryHeads = (shape: Shape): number => dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'group');
const merged = (s: Subject, row: number, width: number): ((i: number) => number) => {
  const values = mergedRow(s.output('partials'), row, dim(s.call.shape, 'splits'), width);
  return (i) => values[i] as number;
};
/** A checker of an output that has one row of `width(shape)` scalars for each of the shape's rows. */
const plain = (output: string, width: (shape: Shape) => number, expected: (s: Subject, row: number) => number[]): Checker => ({
  outputs: [output],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => ({ expected: expected(s, row), actual: (i) => s.output(output)(row * width(s.call.shape) + i) }),
});
const widthOf = (shape: Shape): number => dim(shape, 'width');

const latent: Checker = {
  outputs: ['partials'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const scale = s.options.scale ?? dim(shape, 'headDim') ** -0.5;
    const positions = s.call.kernel === 'attend_rebuild' ? s.input('positions') : (token: number) => token + (s.options.firstPosition ?? 0);
    const capacity = capacityOf(dim(shape, 'context'));
    const base = (kvRow: number): number =>
      s.options.positionsOf === 'head' ? kvRow * capacity : s.options.positionsOf === 'sequence' ? Math.floor(kvRow / dim(shape, 'kvHeads')) * capacity : 0;
    const expected = attendLatentRow(shape, scale, s.options.ropeBase ?? DEFAULTS.ropeBase, s.input, row, (kvRow, token) => positions(base(kvRow) + token));
    return { expected, actual: merged(s, row, dim(shape, 'rankV')) };
  },
};

const CHECKERS: Partial<Record<KernelCall['kernel'], Checker>> = {
  attend: {
    outputs: ['partials'],
    rows: queryHeads,
    row: (s, row) => {
      const { shape } = s.call;
      const scale = s.options.scale ?? (dim(shape, 'keyWidth') + dim(shape, 'branchWidth')) ** -0.5;
      return { expected: attendRow(shape, scale, s.input, row), actual: merged(s, row, dim(shape, 'valueWidth')) };
    },
  },
  attend_rebuild: latent,
  attend_block_absorbed: latent,
  rebuild: {
    outputs: ['rows'],
    rows: (shape) => dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'context'),
    row: (s, index) => {
      const { shape, variant } = s.call;
      const [context, headDim] = [dim(shape, 'context'), dim(shape, 'headDim')];
      const [row, token] = [Math.floor(index / context), index % context];
      const stored = (variant === 'rope' ? keyRow : valueRow)(s.output('rows'), capacityOf(context), headDim);
      const position = variant === 'rope' ? s.input('positions')(token) : null;
      return { expected: rebuiltRow(shape, s.options.ropeBase ?? DEFAULTS.ropeBase, s.input, row, token, position), actual: (i) => stored(row, token, i) };
    },
  },
  attend_merge: plain('output', widthOf, (s, row) => mergedRow(s.input('partials'), row, dim(s.call.shape, 'splits'), widthOf(s.call.shape))),
  matmul: {
    outputs: ['y'],
    rows: (shape) => dim(shape, 'groups') * dim(shape, 'm'),
    row: (s, row) => {
      const n = dim(s.call.shape, 'n');
      const count = Math.min(n, MOST_COLUMNS);
      const from = mix(row) % (n - count + 1);
      return { expected: matmulRow(s.call.shape, s.input, row, from, from + count), actual: (i) => s.output('y')(row * n + from + i) };
    },
  },
  rmsnorm: plain('target', widthOf, (s, row) => rmsnormRow(s.call.shape, s.call.variant, s.options.eps ?? DEFAULTS.eps, s.input, row)),
  rope: plain(
    'data',
    (shape) => dim(shape, 'heads') * dim(shape, 'headDim'),
    (s, row) => ropeRow(s.call.shape, s.call.variant, s.options.ropeBase ?? DEFAULTS.ropeBase, s.input, row),
  ),
  swiglu: plain('output', widthOf, (s, row) => swigluRow(s.call.shape, s.input, row)),
  embed: plain('output', widthOf, (s, row) => embedRow(s.call.shape, s.input, row)),
  sample: plain('tokens', () => 1, (s, row) => sampleRow(s.call.shape, s.input, row)),
  append: plain('cache', (shape) => capacityOf(1) * widthOf(shape), (s, row) => appendedTile(s.call.shape, s.call.variant, s.input, row)),
};

/**
 * Relative RMS error, sqrt(Σ (actual − expected)² / Σ expected²), over the rows checked. NaN where an output was left out.
 */
export async function relativeError(device: Device, call: KernelCall, plan: OperationPlan, operands: Operands, options: OperationOptions, seed: number): Promise<number> {
  const checker = CHECKERS[call.kernel];
  if (!checker) throw new Error(`${call.kernel} has no reference`);
  const outputs = new Map<string, Scalars>();
  for (const name of checker.outputs) outputs.set(name, await download(device, plan, operands, name));
  const subject: Subject = { call, options, input: (name) => operands.scalar(name), output: (name) => outputs.get(name) as Scalars };
  const total = checker.rows(call.shape);
  const costOfRow = Math.max(1, workOf(call).flops / total);
  const count = Math.max(1, Math.min(total, Math.floor(REFERENCE_FLOPS / costOfRow)));
  let difference = 0;
  let norm = 0;
  for (let i = 0; i < count; i++) {
    const { expected, actual } = checker.row(subject, count === total ? i : mix(seed + i) % total);
    expected.forEach((value, j) => {
      difference += (actual(j) - value) ** 2;
      norm += value ** 2;
    });
  }
  return norm === 0 ? (difference === 0 ? 0 : Infinity) : Math.sqrt(difference / norm);
}

async function download(device: Device, plan: OperationPlan, operands: Operands, name: string): Promise<Scalars> {
  const { content, bytes } = bufferOf(plan, name);
  const data = await device.read(operands.buffers.get(name) as NonNullable<ReturnType<Operands['buffers']['get']>>, bytes);
  if (content === 'f16') {
    const halves = new Uint16Array(data);
    return (i) => halfValue(halves[i] as number);
  }
  const words = content === 'u32' ? new Uint32Array(data) : new Float32Array(data);
  return (i) => words[i] as number;
}
