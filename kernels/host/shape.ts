/** Reading of kernel shapes, with the checks that all operations share. */
import { KERNELS, type KernelCall, type KernelName } from '../registry.js';
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

export function requirePositive(
  call: KernelCall,
  dims: Readonly<Record<string, number>>,
  ...except: readonly string[]
): void {
  for (const [name, value] of Object.entries(dims)) {
    if (!except.includes(name)) requireShape(value > 0, `${call.kernel}: ${name} must be at least 1`);
  }
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

/** The element type of weights of a variant named after it. */
export function elementOf(call: KernelCall): 'f16' | 'f32' {
  requireShape(
    call.variant === 'f16' || call.variant === 'f32',
    `${call.kernel}: weights are f16 or f32, not ${call.variant}`,
  );
  return call.variant;
}

/** Refuses a variant that the registry does not name. */
export function requireVariant(call: KernelCall): void {
  const kernel: KernelName = call.kernel;
  requireShape(KERNELS[kernel].variants.includes(call.variant), `${kernel} has no variant ${call.variant}`);
}

export const bytesOfPairs = (element: 'f16' | 'f32'): number => (element === 'f16' ? 4 : 8);
