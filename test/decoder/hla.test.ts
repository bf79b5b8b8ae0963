/** HLA's decoder against a second account of its definition (arXiv 2610.07940), index by index from the stored maps. */
import { describe, expect, it } from 'vitest';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import { forward } from '../../src/decoder/reference/forward.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { hybridTensor } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import type { Codec } from '../../src/codecs/codec.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { randomOf, SEED } from '../gpu/random.js';
import {
  BRANCH,
  codecWeights,
  decodeAll,
  decoderOf,
  distance,
  GEOMETRIES,
  modelOf,
  promptOf,
  SINGLE,
} from './models.js';
import { exactMaps } from './hybrid-maps.js';
import { expectSame, projected, byToken } from './account.js';

const OURO = GEOMETRIES[0]!;
const PATH = { path: 'rotated' } as const;

const hla = (rankK: number, rankV: number, rankFirst: number, windowTokens: number): Codec => ({
  kind: 'hla',
  rankK,
  rankV,
  rankFirst,
  windowTokens,
});

/** The two components of latent pair p, and its angle at a distance of one token. */
function pairOf(p: number, { headDim: d, rope }: Geometry): [a: number, b: number, angle: number] {
  const [block, frequency] = [Math.floor(p / (d / 2)) * d, p % (d / 2)];
  const angle = rope.theta ** ((-2 * frequency) / d);
  return rope.pairing === 'adjacent'
    ? [block + 2 * frequency, block + 2 * frequency + 1, angle]
    : [block + frequency, block + frequency + d / 2, angle];
}

/** q·R(distance)k, where R turns each pair: the score of a query `distance` tokens after a key, both not rotated. */
function scoreAt(q: ArrayLike<number>, k: ArrayLike<number>, distance: number, g: Geometry): number {
  let score = 0;
  for (let p = 0; p < q.length / 2; p++) {
    const [a, b, angle] = pairOf(p, g);
    const [qa, qb, ka, kb] = [q[a], q[b], k[a], k[b]] as [number, number, number, number];
    score += Math.cos(distance * angle) * (qa * ka + qb * kb) - Math.sin(distance * angle) * (qb * ka - qa * kb);
  }
  return score;
}

/** Outputs of every (layer, loop) come from latents of older tokens and exact rows of others. */
function naive(model: Model, weights: TensorSource, codec: Codec, tokens: readonly number[]): Vector[] {
  const g = model.geometry;
  const { headDim: d, hidden, kvHeads } = g;
  const known = new Map<string, Float32Array>();
  const tensor = (...of: Parameters<typeof hybridTensor>): Float32Array => {
    const name = hybridTensor(...of);
    if (!known.has(name)) known.set(name, weights.read(name));
    return known.get(name)!;
  };
  return byToken(model, tokens, ({ history, n, site, head, kvHead, own }) => {
    const first = site.loop === 0;
    const [rankK, rankV] = first ? [codec.rankFirst!, codec.rankFirst!] : [codec.rankK!, codec.rankV!];
    const read = (map: 'encode' | 'key' | 'value') => tensor(site.layer, first ? 'first' : 'shared', map);
    const loops = first ? [0] : Array.from({ length: g.loops - 1 }, (_, i) => i + 1);
    /** Component r of the latent of a token: a sum over its loops. */
    const latentOf = (token: number, r: number): number => {
      let sum = 0;
      for (const [i, loop] of loops.entries())
        for (let j = 0; j < hidden; j++)
          sum +=
            projected(history, token, { ...site, loop }).input[j]! *
            read('encode')[(i * hidden + j) * (rankK + rankV) + r]!;
      return sum;
    };
    const row = (i: number): number => ((first ? 0 : site.loop - 1) * kvHeads + kvHead) * d + i;
    const query = own.queries[head]!;
    const absorbed = Array.from({ length: rankK }, (_, r) =>
      query.reduce((sum, q, i) => sum + q * read('key')[row(i) * rankK + r]!, 0),
    );
    return history.map((_, m) => {
      if (m >= n - codec.windowTokens!) {
        const { keys, values } = projected(history, m, site);
        return { score: scoreAt(query, keys[kvHead]!, n - m, g) / Math.sqrt(d), value: values[kvHead]! };
      }
      const latent = Array.from({ length: rankK + rankV }, (_, r) => latentOf(m, r));
      const value = Float64Array.from({ length: d }, (_, i) =>
        latent.slice(rankK).reduce((sum, c, r) => sum + c * read('value')[row(i) * rankV + r]!, 0),
      );
      return { score: scoreAt(absorbed, latent.slice(0, rankK), n - m, g) / Math.sqrt(d), value };
    });
  });
}

describe(`HLA, seed ${SEED}`, () => {
  const cases: [Geometry, Codec][] = [
    [OURO, hla(8, 5, 4, 0)],
    [OURO, hla(12, 6, 8, 3)],
    // Grouped queries, two loops.
    [GEOMETRIES[2]!, hla(4, 3, 4, 2)],
  ];
  it.each(cases)('of $name decodes what the definition says', (g, codec) => {
    const model = modelOf(g, SEED);
    const tokens = promptOf(g, 9, SEED + 1);
    const setup = { ...PATH, codec, seed: SEED + 2 };
    const decoder = decoderOf(model, setup);
    const ours = decodeAll(decoder, tokens);
    expectSame(ours, naive(model, codecWeights(g, setup), codec, tokens));
    const layout = layoutOf(g, codec, 'rotated', SINGLE, BRANCH);
    const ring = Math.min(tokens.length, codec.windowTokens!) * 2 * g.layers * g.loops * g.kvHeads * g.headDim;
    expect(decoder.cachedScalars).toBe(tokens.length * scalarsPerToken(layout) + ring);
  });

  it.each([0, 3])('is exact attention at full ranks and W = %d, after a prompt too', (windowTokens) => {
    for (const g of [OURO, { ...OURO, rope: { ...OURO.rope, pairing: 'adjacent' as const } }]) {
      const model = modelOf(g, SEED + 3);
      const tokens = promptOf(g, 8, SEED + 4);
      const codec = hla(16, 16, 8, windowTokens);
      const setup = {
        ...PATH,
        codec,
        seed: SEED,
        change: () => exactMaps(model, codec, randomOf(SEED + 5)),
      };
      const exact = forward(model, tokens);
      expect(distance(decodeAll(decoderOf(model, setup), tokens), exact)).toBeLessThan(1e-5);
      const decoder = decoderOf(model, setup);
      const prompted = decoder.prefill(tokens.slice(0, 5), 'chunked', 2);
      const rest = tokens.slice(5).map((token) => decoder.step(token));
      expectSame(prompted, exact.slice(0, 5));
      expect(distance(rest, exact.slice(5))).toBeLessThan(1e-5);
      expect(() => decoder.prefill([1], 'accumulated')).toThrow('takes a prompt in whole');
    }
  });
});
