/**
 * What storage rounding leaves of cached rows, and of which rows: keys after rotation, latents and values as they are.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { quantise } from '../../src/codecs/quantise.js';
import { rotate } from '../../src/decoder/reference/arithmetic.js';
import { stored, type CacheType } from '../../src/decoder/reference/storage.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { SEED } from '../gpu/random.js';
import { codecWeights, GEOMETRIES, learnedCodecs, modelOf, promptOf, F16 } from './models.js';
import {
  type History,
  type Head,
  byToken,
  type Row,
  overRows,
  exactRow,
  type RowOf,
  exactlyOf,
  reconstructing,
  rebuiltRow,
  expectSame,
  decoderFor,
  decoded,
} from './account.js';

const half = (x: number): number => halfValue(halfBits(x));
const GROUP = 32;

describe('stored', () => {
  it('rounds f32 and f16 to the nearest, and leaves f64 alone', () => {
    const row = Float64Array.from([1 / 3, -1e-7, 70000, 0]);
    expect([...stored(row, 'f64', GROUP)]).toEqual([...row]);
    expect([...stored(row, 'f32', GROUP)]).toEqual([...row].map(Math.fround));
    expect([...stored(row, 'f16', GROUP)]).toEqual([...row].map(half));
  });

  it('quantises by groups: the nearest of 2^n levels around 0, at most half a step off', () => {
    const numbers = fc.array(fc.double({ min: -50, max: 50, noNaN: true }), { minLength: 1, maxLength: 100 });
    fc.assert(
      fc.property(numbers, fc.constantFrom(2, 3, 4, 8), (values, bits) => {
        const out = stored(Float64Array.from(values), `q${bits}` as CacheType, GROUP);
        values.forEach((x, i) => {
          const group = values.slice(i - (i % GROUP), i - (i % GROUP) + GROUP);
          const step = half((2 * Math.max(...group.map(Math.abs))) / (2 ** bits - 1));
          if (step === 0) return expect(Math.abs(out[i]!)).toBe(0);
          const code = out[i]! / step + (2 ** bits - 1) / 2;
          expect(Math.abs(code - Math.round(code))).toBeLessThan(1e-9);
          expect(code).toBeGreaterThan(-0.5);
          expect(code).toBeLessThan(2 ** bits - 0.5);
          // The scale is a rounded half, so the outermost level may fall short of the largest value by 2^-11 of it,
          // more for a tiny scale.
          expect(Math.abs(out[i]! - x)).toBeLessThanOrEqual(step / 2 + Math.abs(x) * 2 ** -11 + 2 ** -25 * 2 ** bits);
        });
      }),
      { seed: SEED },
    );
  });

  it('takes a value between two levels to the even code, as the kernels do', () => {
    // Of two bits: 0 lies between the codes 1 and 2, one scale up between 2 and 3.
    expect([-1, 0, 1].map((x) => quantise(0.25 * x, 0.25, 2))).toEqual([0, 2, 2]);
  });

  it('gives each group its own scale', () => {
    const row = Float64Array.from({ length: 40 }, (_, i) => (i < 32 ? 100 : 0.01) * (i % 2 ? 1 : -1));
    expect(Math.abs(stored(row, 'q8', 32)[39]! - 0.01)).toBeLessThan(1e-4);
    expect(Math.abs(stored(row, 'q8', 64)[39]! - 0.01)).toBeGreaterThan(0.1);
  });
});

describe.each(GEOMETRIES)('cached rows, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, 7, SEED);
  const exact = exactRow(model);
  const rounded = (type: CacheType, { key, value }: Row): Row => ({
    key: stored(key, type, GROUP),
    value: stored(value, type, GROUP),
  });
  const rounding = (type: CacheType) => (token: number, head: Head) => rounded(type, exact(token, head));
  /** Rows that are cached of earlier tokens, and this token's own, exact. */
  const cached = (rowOf: (token: number, head: Head) => Row) =>
    byToken(
      model,
      tokens,
      overRows(model, (token, head) => (token < head.n ? rowOf : exact)(token, head)),
    );
  const rebuilding = (codec: Codec, round = true) =>
    reconstructing(model, codec, codecWeights(g, { codec, seed: SEED }), (latent) =>
      round ? stored(latent, 'f16', GROUP) : latent,
    );

  it.each<[string, Codec, 'f32' | 'f16' | 'q8', CacheType]>([
    ['full in f16', { kind: 'full' }, 'f16', 'f16'],
    ['full in q8', { kind: 'full' }, 'q8', 'q8'],
    ['kv-quant of 8 bits', { kind: 'kv-quant', bits: 8 }, 'f16', 'q8'],
    ['kv-quant of 3 bits', { kind: 'kv-quant', bits: 3 }, 'f16', 'q3'],
    ['kv-quant of 2 bits', { kind: 'kv-quant', bits: 2 }, 'f16', 'q2'],
  ])('%s: keys are rounded after rotation', (_, codec, storage, type) => {
    const steps = decoded(model, { codec, choice: { storage, groupSize: GROUP } }, tokens);
    expectSame(steps, cached(rounding(type)));
  });

  it.each(learnedCodecs(g, 0.5).flatMap((codec) => [['reconstruct', codec] as const, ['fast', codec] as const]))(
    '%s of $kind: rounded are latents, or what is decoded from them',
    (path, codec) => {
      const rebuilt = rebuilding(codec, path !== 'fast');
      const expected = cached((token, head) => {
        if (head.site.block !== 'core') return rounding('f16')(token, head);
        const row = rebuiltRow(model, rebuilt(exactlyOf(head.history)))(token, head);
        return path === 'fast' ? rounded('f16', row) : row;
      });
      expectSame(decoded(model, { codec, path, choice: F16 }, tokens), expected);
    },
  );

  it.each<[string, Codec, 'f16' | 'q8']>([
    ['full in f16', { kind: 'full' }, 'f16'],
    ['full in q8', { kind: 'full' }, 'q8'],
    ['kv-quant of 2 bits', { kind: 'kv-quant', bits: 2 }, 'f16'],
  ])('a prompt under %s attends to rows of 16 bits, its own tokens included', (_, codec, storage) => {
    const decoder = decoderFor(model, { codec, choice: { storage, groupSize: GROUP } });
    expectSame(decoder.prefill(tokens, 'accumulated'), byToken(model, tokens, overRows(model, rounding('f16'))));
  });

  it.each(
    learnedCodecs(g, 0.5).flatMap((codec) =>
      (['accumulated', 'by-layer', 'one-shot'] as const).map((kind) => [codec.kind, kind, codec] as const),
    ),
  )('a prompt under %s, %s, attends to kept rows in both passes, and captures are these', (_, kind, codec) => {
    const type = kind === 'one-shot' ? 'f32' : 'f16';
    const history: History = [];
    byToken(model, tokens, overRows(model, rounding(type)), history);
    /** A captured row of pass 1, as it was projected. */
    const captured: RowOf = (axis, token, site, head) => {
      const row = exactlyOf(history)(axis, token, site, head);
      if (kind === 'accumulated') return row;
      return axis === 'value'
        ? stored(row, type, GROUP)
        : rotate(stored(rotate(row, token, g.rope), type, GROUP), -token, g.rope);
    };
    const rebuilt = rebuiltRow(model, rebuilding(codec)(captured));
    // The cache is that of pass 1.
    const second = overRows(model, (token, head) =>
      head.site.block === 'core' ? rounded(type, rebuilt(token, head)) : rounding('f16')(token, { ...head, history }),
    );
    expectSame(decoderFor(model, { codec, choice: F16 }).prefill(tokens, kind), byToken(model, tokens, second));
  });
});
