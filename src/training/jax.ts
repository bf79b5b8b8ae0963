/** jax-js with the types of what it is given here: records of arrays. */
import { defaultDevice, init, jit, numpy as np, valueAndGrad } from '@jax-js/jax';
import { UserError } from '../errors.js';

export type Arrays = Record<string, np.Array>;

/** Prepares jax-js to compute in WebAssembly. Call once before anything else. */
export async function startJax(): Promise<void> {
  const devices = await init('cpu', 'wasm');
  if (!devices.includes('wasm'))
    throw new UserError('this Node.js runs no WebAssembly with SIMD', 'use Node.js 20.19 or later');
  defaultDevice('wasm');
}

/** A function that is traced once for each shape of its arguments. */
export const compiled = <F>(f: F): F => jit(f as never) as unknown as F;

/** A loss with its gradients by the first argument. */
export const withGradients = <A extends unknown[]>(loss: (p: Arrays, ...others: A) => np.Array) =>
  valueAndGrad(loss as never) as unknown as (p: Arrays, ...others: A) => [np.Array, Arrays];

export function free(...records: readonly Arrays[]): void {
  for (const arrays of records) for (const array of Object.values(arrays)) array.dispose();
}
