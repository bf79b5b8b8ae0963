/**
 * Compares what a kernel wrote with the float64 reference. Large outputs are checked on a random subset of rows, so
 * that the reference costs about as much as one more measurement.
 */
import type { OperationOptions } from '../../kernels/options.js';
import type { Device } from '../gpu/device.js';
import { halfValue } from '../../kernels/host/half.js';
import { bufferOf, type OperationPlan } from '../../kernels/host/plan.js';
import type { Scalars, Subject } from '../../kernels/reference.js';
import { REFERENCES } from '../../kernels/references.js';
import { workOf, type KernelCall } from '../../kernels/registry.js';
import type { Operands } from './inputs.js';
import { mix } from '../numbers/hash.js';

/** Default number of operations that the reference may spend on one check: a few seconds. */
const REFERENCE_FLOPS = 1e8;
/** Operations in whose time the reference compares one element: reading it, and its expected value. */
const ELEMENT_FLOPS = 4;

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
  const checker = REFERENCES[call.kernel].reference;
  const outputs = new Map<string, Contents>();
  for (const name of checker.outputs) outputs.set(name, await download(device, plan, operands, name));
  const output = (name: string): Contents => {
    const found = outputs.get(name);
    if (!found) throw new Error(`the checker of ${call.kernel} does not name its output ${name}`);
    return found;
  };
  const subject: Subject = {
    call,
    options,
    plan,
    input: remembered((name) => operands.scalar(name)),
    output: (name) => output(name).scalars,
    inputWords: remembered((name) => operands.words(name)),
    outputWords: (name) => output(name).words,
  };
  const total = checker.rows(call.shape);
  const rowAt = (i: number) => checker.row(subject, i);
  const costOfRow = Math.max(workOf(call).flops / total, ELEMENT_FLOPS * rowAt(mix(seed) % total).expected.length);
  const count = Math.max(1, Math.min(total, Math.floor(mostFlops / costOfRow)));
  let difference = 0;
  let norm = 0;
  for (let i = 0; i < count; i++) {
    const { expected, actual } = rowAt(count === total ? i : mix(seed + i) % total);
    expected.forEach((value, j) => {
      const off = actual(j) - value;
      difference += off * off;
      norm += value * value;
    });
  }
  return norm === 0 ? (difference === 0 ? 0 : Infinity) : Math.sqrt(difference / norm);
}

/** The reader of each buffer, made once: references ask for it at every element. */
function remembered(readerOf: (name: string) => Scalars): (name: string) => Scalars {
  const readers = new Map<string, Scalars>();
  return (name) => {
    const reader = readers.get(name) ?? readerOf(name);
    readers.set(name, reader);
    return reader;
  };
}

/** What a buffer holds: readers of its scalars, and of its words. */
interface Contents {
  readonly scalars: Scalars;
  readonly words: Scalars;
}

async function download(device: Device, plan: OperationPlan, operands: Operands, name: string): Promise<Contents> {
  const { content, bytes } = bufferOf(plan, name);
  const data = await device.read(operands.buffers.get(name)!, bytes);
  const raw = new Uint32Array(data);
  const halves = new Uint16Array(data);
  const singles = new Float32Array(data);
  const words = (i: number): number => raw[i] as number;
  if (content === 'f16') return { words, scalars: (i) => halfValue(halves[i] as number) };
  return { words, scalars: content === 'u32' ? words : (i) => singles[i] as number };
}
