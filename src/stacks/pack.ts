/** Residuals in a file: two characters each, a number of 12 bits in units of 0.0025 log seconds. */

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const BASE = ALPHABET.length;
const ZERO = (BASE * BASE) / 2;
const UNIT = 0.0025;

/** Largest error of a packed value. */
export const ROUNDING = UNIT / 2;
export const PACKED = /^[A-Za-z0-9_-]*$/;
export const CHARACTERS = 2;

/** Values beyond ±5.1 are taken to the end of the range. */
export function pack(values: Float64Array): string {
  let text = '';
  for (const value of values) {
    const code = Math.min(BASE * BASE - 1, Math.max(0, Math.round(value / UNIT) + ZERO));
    text += ALPHABET[Math.floor(code / BASE)]! + ALPHABET[code % BASE]!;
  }
  return text;
}

const DIGITS = new Map([...ALPHABET].map((character, digit) => [character, digit]));

/** The values of a text that the schema has let through. */
export function unpack(text: string): Float64Array {
  return Float64Array.from({ length: text.length / CHARACTERS }, (_, i) => {
    const code = DIGITS.get(text[CHARACTERS * i]!)! * BASE + DIGITS.get(text[CHARACTERS * i + 1]!)!;
    return (code - ZERO) * UNIT;
  });
}
