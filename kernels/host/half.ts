/** IEEE half precision in TypeScript: Node 20 has no Float16Array. */

const word = new Uint32Array(1);
const single = new Float32Array(word.buffer);

/** Bits of the half nearest to `value`, ties to even; beyond 65504 infinity. */
export function halfBits(value: number): number {
  single[0] = value;
  const bits = word[0] as number;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x47800000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Subnormal half: a multiple of 2^-24. Math.round sends ties upwards, so correct them to even.
    const scaled = Math.abs(single[0] as number) * 2 ** 24;
    const rounded = Math.round(scaled);
    return sign | (rounded - scaled === 0.5 && rounded % 2 === 1 ? rounded - 1 : rounded);
  }
  const lower = magnitude & 0x1fff;
  const half = (magnitude >>> 13) - (112 << 10);
  return sign | (half + (lower > 0x1000 || (lower === 0x1000 && (half & 1) === 1) ? 1 : 0));
}

function decodeHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

/** All halves by their bits: references decode millions of them. */
const VALUES = Float64Array.from({ length: 65536 }, (_, bits) => decodeHalf(bits));

/** The value of half `bits`. */
export const halfValue = (bits: number): number => VALUES[bits] as number;
