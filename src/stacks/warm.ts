/**
 * What a repeated measurement may find in the GPU's last cache. A step does not: between two calls that read the same
 * weights or the same sequences' cache it reads gigabytes.
 */
import { classSpec, FP8_BYTES, type OpClass } from '../../kernels/op-classes.js';
import { STORAGE_BYTES, type OpShape, type OpWork } from '../../kernels/op-class.js';
import { tunedClass, type TunedCall, type TunedClass } from '../../kernels/tuned.js';
import type { CallExplanation } from '../cost/explain.js';
import { lawSeconds } from '../cost/law.js';
import { DEVICES } from '../devices/catalogue.js';
import { WARM } from './explain.js';
import type { StackPrice } from './predict.js';
import type { StackFile, StackTable } from './stack-schema.js';

/** Below this multiple of the L2 some of it may be there. */
export const L2_MULTIPLE = 2.5;

/** Copies of their weights on which products are timed in turn, by repository; one where it is not listed. */
const WEIGHT_COPIES: Readonly<Record<string, number>> = { 'ai-dynamo/aiconfigurator': 6 };

const isProduct = (of: TunedClass): boolean => of === 'product' || of === 'product-fp8';

/** Bytes of weights or cache that a call reads once; 0 of what reads activations alone. */
function streamedBytes(of: TunedClass, shape: OpShape, work: OpWork): number {
  if (isProduct(of)) return (of === 'product' ? STORAGE_BYTES : FP8_BYTES) * shape['inner']! * shape['columns']!;
  return of === 'small' || work.onLink ? 0 : (work.cacheBytes ?? work.bytes);
}

/** The same of a call of a step, as a table names it; null where others than weights and a decoding cache are read. */
export function fromMemoryBytes({ class: of, table, stored }: TunedCall): number | null {
  if (!table || !isFromMemory(of)) return null;
  const streamed = streamedBytes(of, table.shape, classSpec(table.op).work(table.shape));
  return stored && stored !== 'blocks' ? (stored.bits / 8 / STORAGE_BYTES) * streamed : streamed;
}

/**
 * Share of a small kernel's bytes that come from memory. What the kernel before it wrote is in the L2 while all that it
 * touches takes half of that, and nothing is at one and a half times (LLMServingSim's tables of RTX 4090 and RTX PRO
 * 6000). Norms and rotations write where they read.
 */
export function coldShare(op: OpClass, bytes: number, l2Bytes: number): number {
  const touched = op === 'activation' ? bytes : bytes / 2;
  return Math.min(1, Math.max(0, touched / l2Bytes - 0.5));
}

/** Bytes of a call that the L2 may hold when it is timed again and again. @param by the repository that timed it */
export function maybeWarmBytes(of: TunedClass, shape: OpShape, work: OpWork, l2Bytes: number, by: string): number {
  const fits = L2_MULTIPLE * l2Bytes;
  const streamed = streamedBytes(of, shape, work);
  if (streamed === 0) return 0;
  if (!isProduct(of)) return streamed <= fits ? work.bytes : 0;
  const activations = work.bytes - streamed;
  if ((WEIGHT_COPIES[by] ?? 1) * streamed + activations <= fits) return work.bytes;
  return activations <= fits ? activations : 0;
}

/** Where memory takes less than this share of a call's time, a warm cache hardly matters. */
export const SHARE_THAT_MATTERS = 0.25;

/** Classes whose weights or cache a step reads from memory, whatever a repeated measurement did. */
const FROM_MEMORY: readonly TunedClass[] = ['product', 'product-fp8', 'decode-attention', 'latent-attention'];
const isFromMemory = (of: TunedClass): boolean => FROM_MEMORY.includes(of);

const L2_BYTES = new Map(DEVICES.map(({ id, l2Bytes }) => [id, l2Bytes ?? 0]));

/**
 * The least that reading weights or a cache from memory takes, as a step does, where a time may be one of a repeated
 * measurement that had them in the L2; else 0.
 */
function coldSeconds({ device, rates, sources }: StackFile, table: StackTable, shape: OpShape, known: number): number {
  const of = tunedClass(table.op);
  if (!isFromMemory(of)) return 0;
  const work = classSpec(table.op).work(shape);
  if (work.bytes <= SHARE_THAT_MATTERS * known * rates.memoryBytesPerSecond) return 0;
  const isWarm =
    maybeWarmBytes(of, shape, work, L2_BYTES.get(device) ?? 0, sources[table.source]!.repository) === work.bytes;
  return isWarm ? streamedBytes(of, shape, work) / rates.memoryBytesPerSecond : 0;
}

/** A table's time over its own law's, at most 1, at the fewest sequences whose cache the L2 cannot hold. */
function coldFactor(file: StackFile, table: StackTable, shape: OpShape, predict: Predicted): number {
  const { batch } = shape;
  if (batch === undefined) return 1;
  const bytes = classSpec(table.op).work(shape).cacheBytes ?? 0;
  const least = L2_MULTIPLE * (L2_BYTES.get(file.device) ?? 0);
  const more = { ...shape, batch: Math.ceil((batch * least) / bytes) + 1 };
  return Math.min(1, predict(more).estimate / lawSeconds(table.law, classSpec(table.op).work(more), file.rates));
}

type Predicted = (shape: OpShape) => StackPrice;

/**
 * A table's price as a step has it. What may be warm has its law as its slow end. Weights that were read faster than
 * memory allows are certainly warm, and priced by the law; a cache takes no less than the law, moved as the nearest
 * time that is not warm.
 */
export function inAStep(file: StackFile, table: StackTable, shape: OpShape, predict: Predicted): StackPrice {
  const price = predict(shape);
  const cold = coldSeconds(file, table, shape, price.estimate);
  if (cold === 0) return price;
  const law = lawSeconds(table.law, classSpec(table.op).work(shape), file.rates);
  // Other sequences of a batch tell what their cache takes from memory; nothing tells that of weights.
  const known = price.estimate < cold || shape['batch'] !== undefined;
  const fromMemory = known ? Math.max(cold, law * coldFactor(file, table, shape, predict)) : 0;
  const estimate = Math.max(price.estimate, fromMemory);
  const by = estimate / price.estimate;
  return {
    ...price,
    estimate,
    low: Math.max(by * price.low, cold),
    high: Math.max(by * price.high, law),
    evidence: by > 1 && price.evidence === 'measured' ? 'interpolated' : price.evidence,
  };
}

/** The same of an explanation of that price. */
export function explainedInAStep(
  file: StackFile,
  table: StackTable,
  shape: OpShape,
  predict: Predicted,
  why: CallExplanation,
): CallExplanation {
  const price = predict(shape);
  const { estimate, high } = inAStep(file, table, shape, predict);
  if (estimate > price.estimate) return { ...why, law: { ...why.law, warm: true } };
  if (high <= price.high) return why;
  return { ...why, leftOut: [...why.leftOut, { what: WARM, halfWidth: Math.log(high / estimate), enters: 'instead' }] };
}
