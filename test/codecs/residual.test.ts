/** The arithmetic of residual-quant, against its definition written out a second time. */
import { expect, test } from 'vitest';
import { codeGroup, codeLoops, nearestCode, rebuiltRow, valuesOf } from '../../src/codecs/residual.js';
import { bf16Bits, bf16Value, fp8Byte, fp8Value, toBf16, toFp8 } from '../../src/codecs/small-floats.js';
import { randomFrom } from '../../src/numbers/random.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED } from '../gpu/random.js';

const FORM = { anchorBits: 4, anchorGroup: 32, residualGroup: 32 };

test('FP8 and bf16 round to the nearest number there is, and ties to the even one', () => {
  const bytes = Array.from({ length: 127 }, (_, i) => i);
  for (const byte of bytes) expect(fp8Byte(fp8Value(byte))).toBe(byte);
  for (const byte of bytes.slice(0, -1)) {
    const [low, high] = [fp8Value(byte), fp8Value(byte + 1)];
    const middle = (low + high) / 2;
    expect(toFp8(middle)).toBe(byte % 2 === 0 ? low : high);
    expect([toFp8(middle * 0.999), toFp8(-middle * 1.001)]).toEqual([low, -high]);
  }
  expect([toFp8(1000), toFp8(-1000), fp8Value(0x7e), fp8Value(1)]).toEqual([448, -448, 448, 2 ** -9]);
  const random = randomOf(mix(SEED));
  for (let i = 0; i < 200; i++) {
    // Above 0x7f7f lies infinity, which has no middle.
    const bits = random.whole(1, 0x7f7e);
    const [low, high] = [bf16Value(bits), bf16Value(bits + 1)];
    expect(toBf16((low + high) / 2)).toBe(bits % 2 === 0 ? low : high);
    expect(bf16Bits(toBf16(low + 0.4 * (high - low)))).toBe(bits);
  }
});

test('a half between two codes rounds down', () => {
  expect([0.5, 0.5000001, 1.5, 2.5, -3, 9].map((x) => nearestCode(x, 2))).toEqual([0, 1, 1, 2, 0, 3]);
  // Range 0 to 15 in steps of 1: the pair is exact, and so are halves.
  const values = [0, 15, 0.5, 1.5, 7.5, 7.53125, 14.5];
  expect(codeGroup(values, 4)).toEqual({ scale: 1, offset: 0, codes: [0, 15, 0, 1, 7, 8, 14] });
});

test('two bits span nine tenths of the range about its centre, four all of it', () => {
  const { scale, offset } = codeGroup([-10, 10, 3], 2);
  expect([scale, offset]).toEqual([toFp8((0.9 * 20) / 3), toFp8(-9)]);
  expect(codeGroup([-10, 5], 4)).toMatchObject({ scale: 1, offset: -10 });
});

test('a group of one value, and an anchor of zeros', () => {
  expect(codeGroup([2, 2, 2], 4)).toEqual({ scale: 0, offset: 2, codes: [0, 0, 0] });
  const zeros = new Array<number>(32).fill(0);
  const row = zeros.map((_, i) => i / 8);
  const { residuals, rows } = codeLoops([row, zeros], FORM);
  expect(residuals[0]?.coefficient).toBe(0);
  expect(rows[0]).toEqual(valuesOf(residuals[0]?.groups ?? []).map(toBf16));
  expect(rows[1]).toEqual(zeros);
});

test(`chains of loops are what the definition says (LLA_SIM_SEED=${SEED})`, () => {
  const uniform = randomFrom(mix(SEED + 1));
  const normal = (): number => Array.from({ length: 12 }, uniform).reduce((sum, x) => sum + x, -6);
  for (const residualGroup of [16, 32]) {
    const width = 64;
    const anchorRow = Array.from({ length: width }, () => toBf16(4 * normal()));
    const loops = [0.5, 0.9, 1.1].map((share) => anchorRow.map((x) => toBf16(share * x + 0.3 * normal())));
    const { anchor, residuals, rows } = codeLoops([...loops, anchorRow], { ...FORM, residualGroup });
    const R = anchor.flatMap(({ scale, offset, codes }) => codes.map((code) => toBf16(code * scale + offset)));
    expect(rows[3]).toEqual(R);
    loops.forEach((x, t) => {
      let [above, below] = [0, 0];
      R.forEach((r, i) => {
        above += (x[i] as number) * r;
        below += r * r;
      });
      const a = toBf16(above / below);
      const own = residuals[t] as (typeof residuals)[number];
      expect(own.coefficient).toBe(a);
      const rest = x.map((value, i) => toBf16(Math.fround(value - toBf16(a * (R[i] as number)))));
      own.groups.forEach((group, g) =>
        expect(group).toEqual(codeGroup(rest.slice(g * residualGroup, (g + 1) * residualGroup), 2)),
      );
      const read = R.map((r, i) => {
        const { scale, offset, codes } = own.groups[Math.floor(i / residualGroup)] as (typeof own.groups)[number];
        return toBf16(Math.fround(toBf16(a * r) + ((codes[i % residualGroup] as number) * scale + offset)));
      });
      expect(rows[t]).toEqual(read);
      expect(rebuiltRow(R, a, own.groups)).toEqual(read);
      // The anchor tells most of a row: what is left is a few per cent.
      const errorOf = (of: readonly number[]): number => Math.hypot(...of.map((y, i) => y - (x[i] as number)));
      expect(errorOf(read)).toBeLessThan(0.2 * Math.hypot(...x));
    });
  }
});
