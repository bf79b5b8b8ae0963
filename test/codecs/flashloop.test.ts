/** FlashLoop's definition, against published bytes and a second reading of its formulas. */
import { expect, test } from 'vitest';
import {
  codeFlashloop,
  codeLoopDifferences,
  codeStream,
  flashloopBytes,
  flashloopValues,
  packedAfter,
  packedTokens,
  rowScore,
  selectedKeys,
  selectedRows,
  sparseAttention,
} from '../../src/codecs/flashloop.js';
import { appendRow, packedOf, packRows, readRows } from '../../src/codecs/flashloop-rows.js';
import { toBf16, toF16 } from '../../src/codecs/small-floats.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { mix } from '../../src/numbers/hash.js';
import { randomFrom } from '../../src/numbers/random.js';
import { KiB, MiB, OURO } from '../contract/geometries.js';
import { SEED } from '../gpu/random.js';

const toHalf = (x: number): number => halfValue(halfBits(x));
const uniform = randomFrom(mix(SEED));
const rowsOf = (tokens: number, width: number): number[][] =>
  Array.from({ length: tokens }, () => Array.from({ length: width }, () => toBf16(4 * uniform() - 2)));

test('bytes of Ouro-1.4B: prompt and generated tokens, index, tail', () => {
  const prompt = flashloopBytes(OURO, { packed: 1280, third: 320, fourth: 128, tail: 0 });
  expect(prompt.streams / 1280).toBeCloseTo(126.9 * KiB, 9);
  expect(prompt.index / 1280 / KiB).toBeCloseTo(0.22, 3);
  const generated = flashloopBytes(OURO, { packed: 64, third: 64, fourth: 64, tail: 0 });
  expect(generated).toMatchObject({ streams: 64 * 216 * KiB, index: 64 * 0.375 * KiB });
  // A group of keys that is not full has a pair of each channel, as a full one has.
  const one = flashloopBytes(OURO, { packed: 64, third: 1, fourth: 0, tail: 0 }).streams - 64 * 108 * KiB;
  expect(one).toBe(24 * 16 * (64 + 4 * 128 + 64 + 4 * 2));
  const tail = (tokens: number): number => flashloopBytes(OURO, { packed: 0, third: 0, fourth: 0, tail: tokens }).tail;
  expect([tail(64), tail(127)]).toEqual([48 * MiB, 95.25 * MiB]);
});

test('a prompt keeps a tail of 64 to 127 tokens, and so does every step', () => {
  expect([0, 63, 64, 127, 128, 191, 192].map((n) => packedTokens(n))).toEqual([0, 0, 0, 0, 64, 64, 128]);
  for (const prompt of [10, 100, 300])
    for (let generated = 0; generated < 300; generated++) {
      const packed = packedAfter(prompt, generated);
      expect(packed % 64).toBe(0);
      const tail = prompt + generated - packed;
      expect(tail).toBeLessThan(128);
      if (packed > 0) expect(tail).toBeGreaterThanOrEqual(64);
    }
});

test('codes round half to even by the unrounded pair; the pair is stored in f16', () => {
  const group = codeFlashloop([0, 15, 0.5, 1.5, 2.5, 7], toHalf);
  expect(group).toEqual({ scale: 1, low: 0, codes: [0, 15, 0, 2, 2, 7] });
  expect(codeFlashloop([3, 3], toHalf)).toEqual({ scale: 1, low: 3, codes: [0, 0] });
  const third = codeFlashloop([0, 1], toHalf);
  expect(third.scale).toBe(toHalf(1 / 15));
  expect(flashloopValues(third, toBf16)).toEqual([0, toBf16(Math.fround(15 * toHalf(1 / 15)))]);
});

test(`keys share pairs along tokens, values along channels (LLA_SIM_SEED=${SEED})`, () => {
  const rows = rowsOf(19, 16);
  const how = { size: 8, to: toBf16, toHalf };
  const keys = codeStream(rows, 'keys', how);
  // Three groups of 8, 8 and 3 tokens for each channel.
  expect(keys.groups).toHaveLength(3 * 16);
  expect(keys.groups[3 * 5 + 1]).toEqual(
    codeFlashloop(
      rows.slice(8, 16).map((row) => row[5] as number),
      toHalf,
    ),
  );
  const values = codeStream(rows, 'values', how);
  expect(values.groups).toHaveLength(19 * 2);
  expect(values.rows[7]?.slice(8)).toEqual(flashloopValues(codeFlashloop(rows[7]!.slice(8), toHalf), toBf16));
});

test(`loops are rebuilt from differences; rows that did not run keep the loop before (LLA_SIM_SEED=${SEED})`, () => {
  const all = Array.from({ length: 42 }, (_, i) => i);
  const third = selectedRows(all.map(uniform), 0.25);
  const fourth = selectedRows(all.map(uniform), 0.1, third);
  expect([third.length, fourth.length]).toEqual([11, 5]);
  expect([third.at(-1), fourth.at(-1)]).toEqual([41, 41]);
  for (const token of fourth) expect(third).toContain(token);
  const loops = [1, 2, 3, 4].map(() => rowsOf(42, 16));
  const how = { size: 8, to: toBf16, toHalf };
  const { streams, rebuilt } = codeLoopDifferences(loops, [all, all, third, fourth], 'keys', how);
  expect(streams.map(({ rows }) => rows.length)).toEqual([42, 42, 11, 5]);
  all.forEach((token) => {
    for (const [t, tokens] of [all, all, third, fourth].entries()) {
      if (t === 0) continue;
      const at = tokens.indexOf(token);
      const before = rebuilt[t - 1]![token]!;
      const expected = before.map((x, c) => (at < 0 ? x : toBf16(x + streams[t]!.rows[at]![c]!)));
      expect(rebuilt[t]![token]).toEqual(expected);
    }
  });
  // Differences of rows within 2 lie within 4: codes are a fifteenth of that apart, sums of bf16 a little more.
  for (const token of fourth)
    rebuilt[3]![token]!.forEach((x, c) => expect(Math.abs(x - loops[3]![token]![c]!)).toBeLessThan(0.4));
});

test(`of 42 tokens in groups of 8 with a tail of 8, 32 are packed; a step packs 8 more (LLA_SIM_SEED=${SEED})`, () => {
  const all = Array.from({ length: 42 }, (_, i) => i);
  const third = selectedRows(all.map(uniform), 0.25);
  const fourth = selectedRows(all.map(uniform), 0.1, third);
  for (const to of [toBf16, toF16, Math.fround])
    for (const by of ['keys', 'values'] as const) {
      const loops = [1, 2, 3, 4].map(() => rowsOf(42, 16).map((row) => row.map(to)));
      const packing = { group: 8, tail: 8, to };
      const cache = packRows(loops, [all, all, third, fourth], by, packing);
      expect(packedOf(cache)).toBe(32);
      const before = [all, all, third, fourth].map((tokens) => tokens.filter((token) => token < 32));
      const { rebuilt, streams } = codeLoopDifferences(loops, before, by, { size: 8, to });
      expect(cache.streams.map((s) => s.groups)).toEqual(streams.map((s) => s.groups));
      loops.forEach((rows, t) => {
        const read = readRows(cache, t, to);
        expect(read.slice(0, 32)).toEqual(rebuilt[t]!.slice(0, 32));
        for (let i = 32; i < 42; i++) {
          const ran = t < 2 ? t : fourth.includes(i) && t === 3 ? 3 : third.includes(i) ? 2 : 1;
          expect(read[i]).toEqual(loops[ran]![i]);
        }
        expect(rows).toHaveLength(42);
      });
      let grown = cache;
      for (let i = 0; i < 6; i++) grown = appendRow(grown, rowsOf(4, 16), packing);
      expect(packedOf(grown)).toBe(40);
      expect([...grown.selected[3]!.slice(-6)]).toEqual([42, 43, 44, 45, 46, 47]);
      for (const t of [0, 1, 2, 3]) expect(grown.tail[t]).toHaveLength(8);
      // The old rows of the first loops are where they were: their groups are whole.
      for (const t of [0, 1]) expect(grown.streams[t]!.rows.slice(0, 32)).toEqual(cache.streams[t]!.rows);
    }
});

test(`f16 is that of the GPU's halves (LLA_SIM_SEED=${SEED})`, () => {
  const values = Array.from({ length: 2000 }, () => Math.fround((uniform() - 0.5) * 2 ** (40 * uniform() - 22)));
  for (const x of [...values, 65519, 65520, -65520, 0, 2 ** -25, 3 * 2 ** -25])
    expect(toF16(x) + 0).toBe(toHalf(x) + 0);
});

test('scores are relative changes of a state; the last token is always taken', () => {
  expect(rowScore([3, 4], [3, 0])).toBeCloseTo(0.8, 12);
  expect(selectedRows([9, 1, 8, 0], 0.5)).toEqual([0, 3]);
  expect(selectedRows([5, 5, 5, 0], 0.5)).toEqual([0, 3]);
  // No more than may be chosen.
  expect(selectedRows([9, 8, 7, 0], 1, [1])).toEqual([1, 3]);
  expect(rowScore([0, 0], [0, 0])).toBe(0);
});

test(`a step over 21 keys: the selected ones are read anew, the others as in loop 2 (LLA_SIM_SEED=${SEED})`, () => {
  const scores = Array.from({ length: 21 }, () => 4 * uniform());
  const sum = scores.reduce((total, s) => total + Math.exp(s), 0);
  const probabilities = scores.map((s) => Math.exp(s) / sum);
  const values = rowsOf(21, 8);
  const second = values[0]!.map((_, c) => values.reduce((total, v, i) => total + probabilities[i]! * v[c]!, 0));
  const selected = selectedKeys(probabilities, values);
  expect(selected.keys).toHaveLength(3);
  const least = Math.min(...selected.keys.map((i) => probabilities[i]!));
  expect(probabilities.filter((p) => p > least)).toHaveLength(2);
  // The same keys and values again change nothing.
  const same = sparseAttention(
    second,
    selected,
    selected.keys.map((i) => scores[i]!),
    selected.keys.map((i) => values[i]!),
  );
  same.forEach((x, c) => expect(x).toBeCloseTo(second[c]!, 12));
  // Other values move the output by their share.
  const moved = sparseAttention(
    second,
    selected,
    selected.keys.map((i) => scores[i]!),
    selected.keys.map((i) => values[i]!.map((x) => x + 1)),
  );
  moved.forEach((x, c) => expect(x).toBeCloseTo(second[c]! + selected.mass, 12));
  // All keys: attention of the loop itself.
  const all = selectedKeys(probabilities, values, 1);
  const next = rowsOf(21, 8);
  const whole = sparseAttention(second, all, scores, next);
  whole.forEach((x, c) =>
    expect(x).toBeCloseTo(
      next.reduce((t, v, i) => t + probabilities[i]! * v[c]!, 0),
      12,
    ),
  );
});
