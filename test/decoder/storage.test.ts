/**
 * What storage rounding leaves of cached rows, and of which rows: keys after rotation, latents and values as they are.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { quantise } from '../../src/codecs/quantise.js';
import { accumulate, dot, joined, rotate, softmax, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { decode, encodeShare, groupOf, loadCodec, type AxisCodec } from '../../src/decoder/reference/codec.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { run, type Projection, type Site } from '../../src/decoder/reference/network.js';
import { stored, type CacheType } from '../../src/decoder/reference/storage.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { SEED } from '../gpu/random.js';
import {
  BRANCH,
  codecWeights,
  decodeAll,
  decoderOf,
  distance,
  GEOMETRIES,
  learnedCodecs,
  modelOf,
  promptOf,
} from './models.js';

const EXACT = 1e-9;
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

/**
 * One token at a time, with a substitute for what is cached of earlier tokens: keys ready to meet a rotated query.
 * @param own a token reads itself from there, too
 * @param history takes what was projected, unless given by the caller
 */
function naive(
  model: Model,
  tokens: readonly number[],
  cached: (
    history: Map<string, Projection>[],
    token: number,
    site: Site,
    head: number,
  ) => { key: Vector; value: Vector },
  own = false,
  history: Map<string, Projection>[] = [],
): Vector[] {
  const { rope, headDim, heads, kvHeads } = model.geometry;
  return tokens.map((token, n) => {
    history.push(new Map());
    return run(model, [token], [n], (site, [projection]) => {
      const self = projection!;
      history[n]?.set([site.block, site.layer, site.loop].join(), self);
      return [
        joined(
          self.queries.map((query, head) => {
            const kvHead = Math.floor((head * kvHeads) / heads);
            const rows = history.map((_, m) =>
              m < n || own
                ? cached(history, m, site, kvHead)
                : { key: rotate(self.keys[kvHead]!, n, rope), value: self.values[kvHead]! },
            );
            const out = new Float64Array(headDim);
            softmax(rows.map(({ key }) => dot(rotate(query, n, rope), key) / Math.sqrt(headDim))).forEach((p, m) =>
              accumulate(out, (rows[m] as { value: Vector }).value, p),
            );
            return out;
          }),
        ),
      ];
    })[0]!;
  });
}

describe.each(GEOMETRIES)('cached rows, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, 7, SEED);
  const at = (history: Map<string, Projection>[], token: number, site: Site): Projection =>
    history[token]!.get([site.block, site.layer, site.loop].join())!;
  const fullWidth = (type: CacheType, history: Map<string, Projection>[], token: number, site: Site, head: number) => ({
    key: stored(rotate(at(history, token, site).keys[head]!, token, g.rope), type, GROUP),
    value: stored(at(history, token, site).values[head]!, type, GROUP),
  });

  it.each<[string, Codec, 'f32' | 'f16' | 'q8', CacheType]>([
    ['full in f16', { kind: 'full' }, 'f16', 'f16'],
    ['full in q8', { kind: 'full' }, 'q8', 'q8'],
    ['kv-quant of 8 bits', { kind: 'kv-quant', bits: 8 }, 'f16', 'q8'],
    ['kv-quant of 3 bits', { kind: 'kv-quant', bits: 3 }, 'f16', 'q3'],
    ['kv-quant of 2 bits', { kind: 'kv-quant', bits: 2 }, 'f16', 'q2'],
  ])('%s: keys are rounded after rotation', (_, codec, storage, type) => {
    const steps = decodeAll(decoderOf(model, { codec, choice: { storage, groupSize: GROUP }, seed: SEED }), tokens);
    expect(
      distance(
        steps,
        naive(model, tokens, (...args) => fullWidth(type, ...args)),
      ),
    ).toBeLessThan(EXACT);
  });

  it.each(learnedCodecs(g, 0.5).flatMap((codec) => [['reconstruct', codec] as const, ['fast', codec] as const]))(
    '%s of $kind: rounded are latents, or what is decoded from them',
    (path, codec) => {
      const setup = { codec, path, choice: { storage: 'f16' as const, groupSize: GROUP }, seed: SEED };
      const layers = loadCodec(g, codec, path, BRANCH, codecWeights(g, setup));
      const reconstructed = (
        axis: AxisCodec,
        what: 'keys' | 'values',
        history: Map<string, Projection>[],
        token: number,
        site: Site,
        head: number,
      ): Vector => {
        const latent = new Float64Array(axis.rank);
        for (let loop = 0; loop < g.loops; loop++) {
          for (let h = 0; h < g.kvHeads; h++) {
            if (groupOf(axis, loop, h) === groupOf(axis, site.loop, head))
              encodeShare(axis, latent, loop, h, at(history, token, { ...site, loop })[what][h]!);
          }
        }
        return decode(axis, site.loop, head, path === 'fast' ? latent : stored(latent, 'f16', GROUP));
      };
      const expected = naive(model, tokens, (history, token, site, head) => {
        if (site.block !== 'core') return fullWidth('f16', history, token, site, head);
        const { key, value } = layers[site.layer]!;
        const rows = {
          key: rotate(reconstructed(key, 'keys', history, token, site, head), token, g.rope),
          value: reconstructed(value, 'values', history, token, site, head),
        };
        return path === 'fast'
          ? { key: stored(rows.key, 'f16', GROUP), value: stored(rows.value, 'f16', GROUP) }
          : rows;
      });
      expect(distance(decodeAll(decoderOf(model, setup), tokens), expected)).toBeLessThan(EXACT);
    },
  );

  it.each<[string, Codec, 'f16' | 'q8']>([
    ['full in f16', { kind: 'full' }, 'f16'],
    ['full in q8', { kind: 'full' }, 'q8'],
    ['kv-quant of 2 bits', { kind: 'kv-quant', bits: 2 }, 'f16'],
  ])('a prompt under %s attends to rows of 16 bits, its own tokens included', (_, codec, storage) => {
    const decoder = decoderOf(model, { codec, choice: { storage, groupSize: GROUP }, seed: SEED });
    const expected = naive(model, tokens, (...args) => fullWidth('f16', ...args), true);
    expect(distance(decoder.prefill(tokens, 'accumulated'), expected)).toBeLessThan(EXACT);
  });

  it.each(
    learnedCodecs(g, 0.5).flatMap((codec) =>
      (['accumulated', 'by-layer', 'one-shot'] as const).map((kind) => [codec.kind, kind, codec] as const),
    ),
  )('a prompt under %s, %s, attends to kept rows in both passes, and captures are these', (_, kind, codec) => {
    const setup = { codec, choice: { storage: 'f16' as const, groupSize: GROUP }, seed: SEED };
    const layers = loadCodec(g, codec, 'reconstruct', BRANCH, codecWeights(g, setup));
    const type = kind === 'one-shot' ? 'f32' : 'f16';
    const history: Map<string, Projection>[] = [];
    naive(model, tokens, (...args) => fullWidth(type, ...args), true, history);
    /** A captured row of pass 1, as it was projected. */
    const captured = (what: 'keys' | 'values', token: number, site: Site, head: number): Vector => {
      const row = at(history, token, site)[what][head]!;
      if (kind === 'accumulated') return row;
      return what === 'values'
        ? stored(row, type, GROUP)
        : rotate(stored(rotate(row, token, g.rope), type, GROUP), -token, g.rope);
    };
    const rebuilt = (axis: AxisCodec, what: 'keys' | 'values', token: number, site: Site, head: number): Vector => {
      const latent = new Float64Array(axis.rank);
      for (let loop = 0; loop < g.loops; loop++)
        for (let h = 0; h < g.kvHeads; h++)
          if (groupOf(axis, loop, h) === groupOf(axis, site.loop, head))
            encodeShare(axis, latent, loop, h, captured(what, token, { ...site, loop }, h));
      return decode(axis, site.loop, head, stored(latent, 'f16', GROUP));
    };
    const expected = naive(
      model,
      tokens,
      (_own, token, site, head) => {
        // The cache is that of pass 1.
        if (site.block !== 'core') return fullWidth('f16', history, token, site, head);
        const { key, value } = layers[site.layer]!;
        return {
          key: stored(rotate(rebuilt(key, 'keys', token, site, head), token, g.rope), type, GROUP),
          value: stored(rebuilt(value, 'values', token, site, head), type, GROUP),
        };
      },
      true,
    );
    const decoder = decoderOf(model, setup);
    expect(distance(decoder.prefill(tokens, kind), expected)).toBeLessThan(EXACT);
  });
});
