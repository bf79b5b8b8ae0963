/**
 * Tables of the rotary angles, computed in float64 and rounded once. f32 angles theta * position are wrong by 5e-2 at
 * position 900,000; here a position is split into a block of 32 and an offset, and the kernel adds the two angles (error 1.4e-7).
 * Read by kernels/rotary.wgsl.
 */
import type { BufferPlan } from './plan.js';

export const ROTARY_BLOCK = 32;

/** theta_m = base^(-2m/d), m = 0 … d/2 − 1 (Su et al., RoFormer, eq. 15). */
export const rotaryFrequencies = (base: number, headDim: number): Float64Array => Float64Array.from({ length: headDim / 2 }, (_, m) => base ** ((-2 * m) / headDim));

/** Cosine and sine side by side: `[outer][inner]` pairs of floats. */
function turns(outer: number, inner: number, angle: (o: number, i: number) => number): Float32Array<ArrayBuffer> {
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
}

/** The two tables as buffers: `centres` [position / 32][pair] and `offsets` [pair][position % 32]. */
export function rotaryTables(headDim: number, { ropeBase, positions }: RotaryOptions): BufferPlan[] {
  const pairs = headDim / 2;
  const blocks = Math.ceil(positions / ROTARY_BLOCK);
  const theta = rotaryFrequencies(ropeBase, headDim);
  return [
    { name: 'centres', role: 'table', content: 'f32', bytes: blocks * pairs * 8, data: () => turns(blocks, pairs, (block, m) => block * ROTARY_BLOCK * (theta[m] as number)) },
    { name: 'offsets', role: 'table', content: 'f32', bytes: ROTARY_BLOCK * pairs * 8, data: () => turns(pairs, ROTARY_BLOCK, (m, offset) => offset * (theta[m] as number)) },
  ];
}
