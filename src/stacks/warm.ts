/**
 * What a repeated measurement may find in the GPU's last cache. A step does not: between two calls that read the same
 * weights or the same sequences' cache it reads gigabytes.
 */
import { classSpec, FP8_BYTES } from '../../kernels/op-classes.js';
import { STORAGE_BYTES, type OpShape, type OpWork, type Rates } from '../../kernels/op-class.js';
import type { TunedCall, TunedClass } from '../../kernels/tuned.js';

/** Below this multiple of the L2 some of it may be there. */
export const L2_MULTIPLE = 2.5;

/** Copies of their weights on which products are timed in turn, by repository; one where it is not listed. */
const WEIGHT_COPIES: Readonly<Record<string, number>> = { 'ai-dynamo/aiconfigurator': 6 };

/** Bytes of weights or cache that a call reads once; 0 of what reads activations alone. */
function streamedBytes(of: TunedClass, shape: OpShape, work: OpWork): number {
  if (of === 'product' || of === 'product-fp8')
    return (of === 'product' ? STORAGE_BYTES : FP8_BYTES) * shape['inner']! * shape['columns']!;
  return of === 'small' || work.onLink ? 0 : (work.cacheBytes ?? work.bytes);
}

/** The same of a call of a step, as a table names it; null where others than weights and a decoding cache are read. */
export const fromMemoryBytes = ({ class: of, table }: TunedCall): number | null =>
  table && isFromMemory(of) ? streamedBytes(of, table.shape, classSpec(table.op).work(table.shape)) : null;

/** Bytes of a call that the L2 may hold when it is timed again and again. @param by the repository that timed it */
export function maybeWarmBytes(of: TunedClass, shape: OpShape, work: OpWork, l2Bytes: number, by: string): number {
  const fits = L2_MULTIPLE * l2Bytes;
  const streamed = streamedBytes(of, shape, work);
  if (streamed === 0) return 0;
  const isProduct = of === 'product' || of === 'product-fp8';
  if (!isProduct) return streamed <= fits ? work.bytes : 0;
  const activations = work.bytes - streamed;
  if ((WEIGHT_COPIES[by] ?? 1) * streamed + activations <= fits) return work.bytes;
  return activations <= fits ? activations : 0;
}

/** Where memory takes less than this share of a call's time, a warm cache hardly matters. */
export const SHARE_THAT_MATTERS = 0.25;

/** Classes whose weights or cache a step reads from memory, whatever a repeated measurement did. */
const FROM_MEMORY: readonly TunedClass[] = ['product', 'product-fp8', 'decode-attention', 'latent-attention'];
export const isFromMemory = (of: TunedClass): boolean => FROM_MEMORY.includes(of);

/** Bytes of weights or cache that a step reads from memory, where a measurement may have had them in the L2; else 0. */
export function warmBytes(
  of: TunedClass,
  shape: OpShape,
  work: OpWork,
  { l2Bytes, by, rates, seconds }: { l2Bytes: number; by: string; rates: Rates; seconds: number },
): number {
  if (!isFromMemory(of) || work.bytes <= SHARE_THAT_MATTERS * seconds * rates.memoryBytesPerSecond) return 0;
  return maybeWarmBytes(of, shape, work, l2Bytes, by) === work.bytes ? streamedBytes(of, shape, work) : 0;
}
