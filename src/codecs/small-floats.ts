/** Rounding to bf16, f16 and FP8 E4M3 in float64: to nearest, ties to even. */

/** The nearest whole number, of two the even one. */
export function nearestEven(x: number): number {
  const below = Math.floor(x);
  const up = x - below > 0.5 || (x - below === 0.5 && below % 2 !== 0);
  return below + (up ? 1 : 0);
}

/** Exponent of the largest power of two that is not above |x| > 0. */
function exponentOf(x: number): number {
  const guess = Math.floor(Math.log2(Math.abs(x)));
  return 2 ** guess > Math.abs(x) ? guess - 1 : 2 ** (guess + 1) <= Math.abs(x) ? guess + 1 : guess;
}

/** Rounds to `bits` significant bits, with exponents of at least `least`. */
function rounded(x: number, bits: number, least: number): number {
  if (x === 0 || !Number.isFinite(x)) return x;
  const step = 2 ** (Math.max(least, exponentOf(x)) - (bits - 1));
  return nearestEven(x / step) * step;
}

export const toBf16 = (x: number): number => rounded(x, 8, -126);

/** The largest f16 number: what rounds beyond it is infinite. */
const MOST_F16 = 65504;

export function toF16(x: number): number {
  const near = rounded(x, 11, -14);
  return Math.abs(near) > MOST_F16 ? Math.sign(x) * Infinity : near;
}

/** The largest FP8 E4M3 number: larger ones are stored as it. */
export const MOST_FP8 = 448;

export const toFp8 = (x: number): number => Math.min(MOST_FP8, Math.max(-MOST_FP8, rounded(x, 4, -6)));

/** The byte of an FP8 number. NaN is 0x7f. */
export function fp8Byte(x: number): number {
  if (Number.isNaN(x)) return 0x7f;
  const sign = x < 0 || Object.is(x, -0) ? 0x80 : 0;
  const size = Math.abs(x);
  if (size < 2 ** -6) return sign + size * 512;
  const exponent = exponentOf(size);
  return sign + (exponent + 7) * 8 + (size / 2 ** exponent - 1) * 8;
}

/** The number of an FP8 byte. The two codes of NaN are what kernels read there where no NaN may be stored: ±480. */
export function fp8Value(byte: number): number {
  const [sign, exponent, fraction] = [byte & 0x80 ? -1 : 1, (byte >> 3) & 15, byte & 7];
  return sign * (exponent === 0 ? fraction / 512 : (8 + fraction) * 2 ** (exponent - 10));
}

const single = new Float32Array(1);
const singleWord = new Uint32Array(single.buffer);

/** The 16 bits of a bf16 number, and back. */
export function bf16Bits(x: number): number {
  single[0] = x;
  return (singleWord[0] as number) >>> 16;
}
export function bf16Value(bits: number): number {
  singleWord[0] = (bits << 16) >>> 0;
  return single[0] as number;
}
