/**
 * The decoder against a second, naive account of each codec (account.ts): the paper's definition of what earlier tokens
 * are replaced by, written out.
 */
import { describe, expect, it } from 'vitest';
import { dot, product, rotate, split, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { matrixOf } from '../../src/decoder/reference/model.js';
import type { Site } from '../../src/decoder/reference/network.js';
import { loadCodec } from '../../src/decoder/reference/codec.js';
import { branchTensor } from '../../src/decoder/tensors.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { SEED } from '../gpu/random.js';
import {
  byToken,
  decoded,
  decoderFor,
  exactlyOf,
  exactRow,
  expectOther,
  expectSame,
  overRows,
  projected,
  rebuiltRow,
  reconstructing,
} from './account.js';
import { BRANCH, codecWeights, decodeAll, GEOMETRIES, learnedCodecs, modelOf, promptOf, SINGLE } from './models.js';

const LENGTH = 7;

describe.each(GEOMETRIES)('definitions, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, LENGTH, SEED);
  const exact = exactRow(model);

  it('cla: layers read the first layer of their group, for the current token as well', () => {
    const first = (site: Site): Site =>
      site.block === 'core' ? { ...site, layer: site.layer - (site.layer % 2) } : site;
    const expected = byToken(
      model,
      tokens,
      overRows(model, (token, head) => exact(token, head, first(head.site))),
    );
    expectSame(decoded(model, { codec: { kind: 'cla', shareLayers: 2 } }, tokens), expected);
  });

  for (const codec of learnedCodecs(g, 0.6)) {
    const substituting = (setup: { codec: typeof codec }, window = 0) => {
      const rebuilding = reconstructing(model, setup.codec, codecWeights(g, { ...setup, seed: SEED }));
      return overRows(model, (token, head) =>
        head.site.block !== 'core' || token >= head.n - window
          ? exact(token, head)
          : rebuiltRow(model, rebuilding(exactlyOf(head.history)))(token, head),
      );
    };

    if (codec.kind === 'lla')
      it.each(['reconstruct', 'block-absorbed'] as const)(
        'lla-window, %s: the last tokens exactly, older ones through Eq. encode and Eq. decode',
        (path) => {
          const windowTokens = 3;
          const setup = { codec: { ...codec, kind: 'lla-window' as const, windowTokens }, path };
          const decoder = decoderFor(model, setup);
          const steps = decodeAll(decoder, tokens);
          expectSame(steps, byToken(model, tokens, substituting(setup, windowTokens)));
          for (const other of [windowTokens - 1, windowTokens + 1])
            expectOther(steps, byToken(model, tokens, substituting(setup, other)), 1e-4);
          // Latents of all tokens, and exact rows of the last of them in the core.
          const rows = 2 * g.layers * g.loops * g.kvHeads * g.headDim;
          expect(decoder.cachedScalars).toBe(
            LENGTH * scalarsPerToken(layoutOf(g, setup.codec, path, SINGLE, BRANCH)) + windowTokens * rows,
          );
        },
      );

    it(`${codec.kind}: Eq. encode, then Eq. decode`, () => {
      expectSame(decoded(model, { codec }, tokens), byToken(model, tokens, substituting({ codec })));
    });

    for (const perHead of [false, true]) {
      it(`${codec.kind} absorbed, ${perHead ? 'own' : 'shared'} branch: content without RoPE, and rotated`, () => {
        const setup = { codec, path: 'absorbed' as const, branch: { ...BRANCH, perHead } };
        const weights = codecWeights(g, { ...setup, seed: SEED });
        const rebuilding = reconstructing(model, codec, weights);
        expect(loadCodec(g, codec, 'absorbed', setup.branch, weights)).toHaveLength(g.layers);
        const all = overRows(model, exact);
        const expected = byToken(model, tokens, (of) => {
          const { history, n, site, head, kvHead, own } = of;
          if (site.block !== 'core') return all(of);
          const branch = (part: 'query' | 'key', input: Vector): Vector[] =>
            split(product(matrixOf(weights, branchTensor(site.layer, part)), input), BRANCH.width);
          const q = branch('query', own.input)[head]!;
          const exactly = exactlyOf(history);
          return history.map((_, m) => {
            const row = m < n ? rebuilding(exactly) : exactly;
            const source = projected(history, m, { ...site, loop: codec.kind === 'mla-head' ? site.loop : 0 });
            const k = branch('key', source.input)[perHead ? kvHead : 0]!;
            const content = dot(own.queries[head]!, row('key', m, site, kvHead));
            const score = (content + dot(rotate(q, n - m, g.rope), k)) / Math.sqrt(g.headDim + BRANCH.width);
            return { score, value: row('value', m, site, kvHead) };
          });
        });
        expectSame(decoded(model, setup, tokens), expected);
      });
    }
  }
});
