/** Reading of kernel shapes, with the checks that all operations share. */
import { KERNELS, type KernelCall, type KernelName, type ShapeOf } from '../registry.js';
import type { Shape } from '../spec.js';
import { requireShape } from './errors.js';

/** The shape's fields, checked: all there, whole and not negative. */
export function dimensions<K extends string>(call: KernelCall, ...names: readonly K[]): Record<K, number> {
  const out = {} as Record<K, number>;
  for (const name of names) {
    const value: number | undefined = (call.shape as Shape)[name];
    requireShape(
      value !== undefined && Number.isSafeInteger(value) && value >= 0,
      `${call.kernel}: ${name} must be a whole number, not ${String(value)}`,
    );
    out[name] = value;
  }
  return out;
}

/**
 * The shape of a call of a kernel, checked: every field there, whole and at least 1, and the variant one that it has.
 * @param zero fields that may be 0
 */
export function shapeOf<K extends KernelName>(call: KernelCall, ...zero: readonly (keyof ShapeOf<K>)[]): ShapeOf<K> {
  const { dims, variants } = KERNELS[call.kernel];
  requireShape(variants.includes(call.variant), `${call.kernel} has no variant ${call.variant}`);
  const s = dimensions(call, ...dims) as ShapeOf<K>;
  for (const name of dims)
    if (!(zero as readonly string[]).includes(name))
      requireShape((s as Shape)[name] !== 0, `${call.kernel}: ${name} must be at least 1`);
  return s;
}

/** The element type of weights of a variant named after it. Those in 32 bits are listed as those in 16 are. */
export function elementOf(call: KernelCall): 'f16' | 'f32' {
  requireShape(
    call.variant === 'f16' || call.variant === 'f32',
    `${call.kernel}: weights are f16 or f32, not ${call.variant}`,
  );
  return call.variant;
}

export function requireEven(
  call: KernelCall,
  dims: Readonly<Record<string, number>>,
  ...names: readonly string[]
): void {
  for (const name of names)
    requireShape(
      (dims[name] as number) % 2 === 0,
      `${call.kernel}: ${name} must be even, not ${String(dims[name])} (scalars are stored in pairs)`,
    );
}

export const bytesOfPairs = (element: 'f16' | 'f32'): number => (element === 'f16' ? 4 : 8);
