/**
 * The table of the rotary angles, computed in float64 and rounded once. f32 angles theta * position are wrong by 5e-2
 * at position 900,000; here a position is split into a block of 32 and an offset, and the kernel adds the two angles
 * (error 1.4e-7). Read by rotary.wgsl.
 */
import { f32, type BufferPlan } from './plan.js';

const ROTARY_BLOCK = 32;

/** theta_m = base^(-2m/d), m = 0 … d/2 − 1 (Su et al., RoFormer, eq. 15). */
export const rotaryFrequencies = (base: number, headDim: number): Float64Array =>
  Float64Array.from({ length: headDim / 2 }, (_, m) => base ** ((-2 * m) / headDim));

/** Cosine and sine side by side, from float64: `[outer][inner]` pairs of floats. */
export function turns(
  outer: number,
  inner: number,
  angle: (o: number, i: number) => number,
): Float32Array<ArrayBuffer> {
  const table = new Float32Array(2 * outer * inner);
  for (let o = 0; o < outer; o++) {
    for (let i = 0; i < inner; i++) {
      table[2 * (o * inner + i)] = Math.cos(angle(o, i));
      table[2 * (o * inner + i) + 1] = Math.sin(angle(o, i));
    }
  }
  return table;
}

export interface RotaryOptions {
  /** Base of the frequencies: 1e6 for Ouro. */
  ropeBase: number;
  /** Positions below this can be looked up. */
  positions: number;
  /** The other way round: takes a rotation by the same position back. */
  back?: boolean;
}

/**
 * Bytes of a table and its contents: offsets [pair][position % 32], then block starts [position / 32][pair], as (cos,
 * sin).
 */
export function rotaryTable(headDim: number, { ropeBase, positions, back = false }: RotaryOptions): BufferPlan {
  const pairs = headDim / 2;
  const blocks = Math.ceil(positions / ROTARY_BLOCK);
  const theta = rotaryFrequencies(ropeBase, headDim).map((frequency) => (back ? -frequency : frequency));
  return f32('turns', 'table', 2 * (ROTARY_BLOCK + blocks) * pairs, {
    data: () => {
      const table = new Float32Array(2 * (ROTARY_BLOCK + blocks) * pairs);
      table.set(turns(pairs, ROTARY_BLOCK, (m, offset) => offset * (theta[m] as number)));
      table.set(
        turns(blocks, pairs, (block, m) => block * ROTARY_BLOCK * (theta[m] as number)),
        2 * ROTARY_BLOCK * pairs,
      );
      return table;
    },
  });
}
