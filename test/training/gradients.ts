/** Gradients of jax-js beside differences of a loss in float64. */
import { valueAndGrad, type numpy as np } from '@jax-js/jax';
import { expect } from 'vitest';
import type { TensorSource } from '../../src/decoder/weights.js';

/** The value of a loss, and its gradients by the names of its first argument. */
export const withGradients = (loss: unknown) =>
  valueAndGrad(loss as never) as unknown as (...args: unknown[]) => [np.Array, Record<string, np.Array>];

/** @param lossOf of other values of the tensors of `source`, along a direction near each tensor's gradient */
export function expectGradients(
  gradients: readonly { readonly name: string; readonly values: Float32Array }[],
  source: TensorSource,
  lossOf: (source: TensorSource) => number,
  random: () => number,
): void {
  for (const { name, values } of gradients) {
    const length = Math.hypot(...values);
    expect(length, name).toBeGreaterThan(0);
    const direction = values.map((x) => x / length + (random() - 0.5) / Math.sqrt(values.length));
    const shifted = (by: number): number => {
      const read: TensorSource['read'] = (other) =>
        source.read(other).map((x, i) => (other === name ? x + by * (direction[i] as number) : x));
      return lossOf({ shapes: source.shapes, read });
    };
    const step = 2 ** -9;
    const numeric = (shifted(step) - shifted(-step)) / (2 * step);
    const analytic = values.reduce((sum, x, i) => sum + x * (direction[i] as number), 0);
    expect(Math.abs(numeric - analytic) / Math.abs(analytic), name).toBeLessThan(0.01);
  }
}
