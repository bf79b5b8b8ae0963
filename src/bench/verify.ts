/**
 * Compares what a kernel wrote with the float64 reference. Large outputs are checked on a random subset of rows, so
 * that the reference costs about as much as one more measurement.
 */
import type { Device } from '../gpu/device.js';
import { halfValue } from '../gpu/half.js';
import { bufferOf, type OperationPlan } from '../gpu/plan.js';
import type { OperationOptions } from '../kernels/launch.js';
import { workOf, type KernelCall } from '../kernels/registry.js';
import { ATTENTION_CHECKERS } from './latent-checkers.js';
import { BLOCK_CHECKERS } from './block-checkers.js';
import { CACHE_CHECKERS } from './cache-checkers.js';
import { dim, type Checker, type Subject } from './checker.js';
import { ELEMENTWISE_CHECKERS } from './elementwise-checkers.js';
import type { Operands, Scalars } from './inputs.js';
import { PREFILL_CHECKERS } from './prefill-checkers.js';
import { mix } from '../hash.js';
import { matmulRow, sampleRow } from './reference/pointwise.js';

/** Operations that the reference may spend on one check unless told: a few tenths of a second. */
const REFERENCE_FLOPS = 1e8;
/** Columns of a product that are checked in a row. */
const MOST_COLUMNS = 64;

const CHECKERS: Partial<Record<KernelCall['kernel'], Checker>> = {
  matmul: {
    outputs: ['y'],
    rows: (shape) => dim(shape, 'groups') * dim(shape, 'm'),
    row: (s, row) => {
      const n = dim(s.call.shape, 'n');
      const count = Math.min(n, MOST_COLUMNS);
      const from = mix(row) % (n - count + 1);
      return {
        expected: matmulRow(s.call.shape, s.input, row, from, from + count),
        actual: (i) => s.output('y')(row * n + from + i),
      };
    },
  },
  sample: {
    outputs: ['tokens'],
    rows: (shape) => dim(shape, 'rows'),
    row: (s, row) => ({ expected: sampleRow(s.call.shape, s.input, row), actual: () => s.output('tokens')(row) }),
  },
  ...ELEMENTWISE_CHECKERS,
  ...ATTENTION_CHECKERS,
  ...BLOCK_CHECKERS,
  ...CACHE_CHECKERS,
  ...PREFILL_CHECKERS,
};

/**
 * Relative RMS error, sqrt(Σ (actual − expected)² / Σ expected²), over the rows checked. NaN where an output was left
 * out.
 * @param mostFlops operations that the reference may spend: beyond them rows are drawn at random from the seed, at
 * least one
 */
export async function relativeError(
  device: Device,
  call: KernelCall,
  plan: OperationPlan,
  operands: Operands,
  options: OperationOptions,
  seed: number,
  mostFlops = REFERENCE_FLOPS,
): Promise<number> {
  const checker = CHECKERS[call.kernel];
  if (!checker) throw new Error(`${call.kernel} has no reference`);
  const outputs = new Map<string, { scalars: Scalars; words: Scalars }>();
  for (const name of checker.outputs) outputs.set(name, await download(device, plan, operands, name));
  const output = (name: string): { scalars: Scalars; words: Scalars } => {
    const found = outputs.get(name);
    if (!found) throw new Error(`the checker of ${call.kernel} does not name its output ${name}`);
    return found;
  };
  const subject: Subject = {
    call,
    options,
    plan,
    input: (name) => operands.scalar(name),
    output: (name) => output(name).scalars,
    inputWords: (name) => operands.words(name),
    outputWords: (name) => output(name).words,
  };
  const total = checker.rows(call.shape);
  const costOfRow = Math.max(1, workOf(call).flops / total);
  const count = Math.max(1, Math.min(total, Math.floor(mostFlops / costOfRow)));
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

async function download(
  device: Device,
  plan: OperationPlan,
  operands: Operands,
  name: string,
): Promise<{ scalars: Scalars; words: Scalars }> {
  const { content, bytes } = bufferOf(plan, name);
  const data = await device.read(
    operands.buffers.get(name) as NonNullable<ReturnType<Operands['buffers']['get']>>,
    bytes,
  );
  const raw = new Uint32Array(data);
  const halves = new Uint16Array(data);
  const singles = new Float32Array(data);
  const words = (i: number): number => raw[i] as number;
  if (content === 'f16') return { words, scalars: (i) => halfValue(halves[i] as number) };
  return { words, scalars: content === 'u32' ? words : (i) => singles[i] as number };
}
