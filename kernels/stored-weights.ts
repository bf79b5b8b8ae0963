/**
 * Weights in fewer than 16 bits beside activations in 16, as variants of a product: `packed-4.25` has so many bits a
 * weight, scales included. Servers have such kernels, this project has none.
 */

export interface StoredWeights {
  /** `packed`: the product widens them on the way. `unpacked`: another kernel writes them in 16 bits before it. */
  readonly as: 'packed' | 'unpacked';
  /** Of a weight, scales included. */
  readonly bits: number;
}

/** 8-bit floats with a scale a block of 128 × 128. */
export const FLOAT8_BLOCKS = 'f8-blocks';

export const storedVariant = ({ as, bits }: StoredWeights): string => `${as}-${bits}`;

/** How a variant's weights are stored; null where a kernel multiplies them as they are. */
export function storedIn(variant: string): StoredWeights | null {
  const [as, bits] = variant.split('-');
  return as === 'packed' || as === 'unpacked' ? { as, bits: Number(bits) } : null;
}
