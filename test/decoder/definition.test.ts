/**
 * The decoder against a second, naive account of each codec: one token at a time over every exact key and value, with
 * the paper's definition of what earlier tokens are replaced by written out.
 */
import { describe, expect, it } from 'vitest';
import {
  accumulate,
  dot,
  joined,
  product,
  rotate,
  softmax,
  split,
  type Vector,
} from '../../src/decoder/reference/arithmetic.js';
import { matrixOf, type Model } from '../../src/decoder/reference/model.js';
import { run, type Projection, type Site } from '../../src/decoder/reference/network.js';
import { loadCodec } from '../../src/decoder/reference/codec.js';
import { branchTensor, codecTensor } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
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
const LENGTH = 7;

/** Every exact projection, by token and site. */
type History = Map<string, Projection>[];
const keyOf = ({ block, layer, loop }: Site): string => [block, layer, loop].join();

interface Substitute {
  key(history: History, token: number, site: Site, head: number): Vector;
  value(history: History, token: number, site: Site, head: number): Vector;
}

/**
 * One token at a time; earlier tokens' keys and values are substituted in the core, the token's own are exact unless
 * `ownToo`, and so are those of the last `exact` tokens before it.
 */
function naive(model: Model, tokens: readonly number[], substitute: Substitute, ownToo = false, exact = 0): Vector[] {
  const { rope, headDim, heads, kvHeads } = model.geometry;
  const history: History = [];
  return tokens.map((token, n) => {
    history.push(new Map());
    return run(model, [token], [n], (site, [own]) => {
      history[n]!.set(keyOf(site), own!);
      return [
        joined(
          own!.queries.map((query, head) => {
            const kvHead = Math.floor((head * kvHeads) / heads);
            const of = (m: number, what: 'key' | 'value'): Vector =>
              (m < n - exact || ownToo) && site.block === 'core'
                ? substitute[what](history, m, site, kvHead)
                : history[m]!.get(keyOf(site))![`${what}s`][kvHead]!;
            const scores = history.map(
              (_, m) => dot(rotate(query, n, rope), rotate(of(m, 'key'), m, rope)) / Math.sqrt(headDim),
            );
            const out = new Float64Array(headDim);
            softmax(scores).forEach((p, m) => accumulate(out, of(m, 'value'), p));
            return out;
          }),
        ),
      ];
    })[0]!;
  });
}

/** Substitutes that reuse the key and value of another site of the same token. */
const reuse = (source: (site: Site) => Site): Substitute => {
  const of = (what: 'keys' | 'values') => (history: History, token: number, site: Site, head: number) =>
    history[token]!.get(keyOf(source(site)))![what][head]!;
  return { key: of('keys'), value: of('values') };
};

/**
 * x̂ = (x − mu) W_down W_upᵀ + mu over the whole stack of (loop, head) pairs, index by index from the stored tensors.
 */
function reconstruction(
  model: Model,
  weights: TensorSource,
  stackOf: (site: Site, head: number) => { group: number; members: [loop: number, head: number][] },
): Substitute {
  const d = model.geometry.headDim;
  const of = (axis: 'key' | 'value') => (history: History, token: number, site: Site, head: number) => {
    const [, width, rank] = weights.shapes.get(codecTensor(site.layer, axis, 'down')) as [number, number, number];
    const { group, members } = stackOf(site, head);
    const [down, up, mean] = (['down', 'up', 'mean'] as const).map((part) =>
      weights.read(codecTensor(site.layer, axis, part)),
    ) as [Float32Array, Float32Array, Float32Array];
    const stack = members.flatMap(([loop, h]) => [...history[token]!.get(keyOf({ ...site, loop }))![`${axis}s`][h]!]);
    expect(stack.length).toBe(width);
    const at = members.findIndex(([loop, h]) => loop === site.loop && h === head) * d;
    const latent = Array.from({ length: rank }, (_, r) =>
      stack.reduce((c, x, i) => c + (x - mean[group * width + i]!) * down[(group * width + i) * rank + r]!, 0),
    );
    return Float64Array.from({ length: d }, (_, i) =>
      latent.reduce((x, c, r) => x + c * up[(group * width + at + i) * rank + r]!, mean[group * width + at + i]!),
    );
  };
  return { key: of('key'), value: of('value') };
}

const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

describe.each(GEOMETRIES)('definitions, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, LENGTH, SEED);

  it('cla: layers read the first layer of their group, for the current token as well', () => {
    const steps = decodeAll(decoderOf(model, { codec: { kind: 'cla', shareLayers: 2 }, seed: SEED }), tokens);
    expect(
      distance(
        steps,
        naive(
          model,
          tokens,
          reuse((site) => ({ ...site, layer: site.layer - (site.layer % 2) })),
          true,
        ),
      ),
    ).toBeLessThan(EXACT);
  });

  it('final-loop: loops read the last one', () => {
    if (g.loops === 1)
      return expect(() => decoderOf(model, { codec: { kind: 'final-loop' }, seed: SEED })).toThrow(
        'at least two loops',
      );
    const steps = decodeAll(decoderOf(model, { codec: { kind: 'final-loop' }, seed: SEED }), tokens);
    expect(
      distance(
        steps,
        naive(
          model,
          tokens,
          reuse((site) => ({ ...site, loop: g.loops - 1 })),
        ),
      ),
    ).toBeLessThan(EXACT);
  });

  for (const codec of learnedCodecs(g, 0.6)) {
    const stacks = {
      lla: (_: Site, head: number) => ({
        group: head,
        members: range(g.loops).map((t): [number, number] => [t, head]),
      }),
      'lla-2d': () => ({
        group: 0,
        members: range(g.loops).flatMap((t) => range(g.kvHeads).map((h): [number, number] => [t, h])),
      }),
      'mla-head': (site: Site) => ({
        group: site.loop,
        members: range(g.kvHeads).map((h): [number, number] => [site.loop, h]),
      }),
    };

    if (codec.kind === 'lla')
      it.each(['reconstruct', 'block-absorbed'] as const)(
        'lla-window, %s: the last tokens exactly, older ones through Eq. encode and Eq. decode',
        (path) => {
          const windowTokens = 3;
          const setup = { codec: { ...codec, kind: 'lla-window' as const, windowTokens }, path, seed: SEED };
          const weights = codecWeights(g, setup);
          const decoder = decoderOf(model, setup);
          const steps = decodeAll(decoder, tokens);
          const substitute = reconstruction(model, weights, stacks.lla);
          const exact = naive(model, tokens, substitute, false, windowTokens);
          expect(distance(steps, exact)).toBeLessThan(EXACT);
          for (const other of [windowTokens - 1, windowTokens + 1])
            expect(distance(steps, naive(model, tokens, substitute, false, other))).toBeGreaterThan(1e-4);
          // Latents of all tokens, and exact rows of the last of them in the core.
          const layout = layoutOf(g, setup.codec, path, { storage: 'f32', groupSize: 32 }, BRANCH);
          const rows = 2 * g.layers * g.loops * g.kvHeads * g.headDim;
          expect(decoder.cachedScalars).toBe(LENGTH * scalarsPerToken(layout) + windowTokens * rows);
        },
      );

    it(`${codec.kind}: Eq. encode, then Eq. decode`, () => {
      const setup = { codec, seed: SEED };
      const weights = codecWeights(g, setup);
      const steps = decodeAll(decoderOf(model, setup), tokens);
      expect(
        distance(
          steps,
          naive(model, tokens, reconstruction(model, weights, stacks[codec.kind as keyof typeof stacks])),
        ),
      ).toBeLessThan(EXACT);
    });

    for (const perHead of [false, true]) {
      it(`${codec.kind} absorbed, ${perHead ? 'own' : 'shared'} branch: content without RoPE, and rotated`, () => {
        const setup = { codec, path: 'absorbed' as const, branch: { ...BRANCH, perHead }, seed: SEED };
        const weights = codecWeights(g, setup);
        const substitute = reconstruction(model, weights, stacks[codec.kind as keyof typeof stacks]);
        expect(loadCodec(g, codec, 'absorbed', setup.branch, weights)).toHaveLength(g.layers);
        const history: History = [];
        const expected = tokens.map((token, n) => {
          history.push(new Map());
          return run(model, [token], [n], (site, [projection]) => {
            const own = projection!;
            history[n]!.set(keyOf(site), own);
            const core = site.block === 'core';
            return [
              joined(
                own.queries.map((query, head) => {
                  const kvHead = Math.floor((head * g.kvHeads) / g.heads);
                  const exact = (m: number, what: 'keys' | 'values', at = site): Vector =>
                    history[m]!.get(keyOf(at))![what][kvHead]!;
                  const score = (m: number): number => {
                    if (!core)
                      return dot(rotate(query, n, g.rope), rotate(exact(m, 'keys'), m, g.rope)) / Math.sqrt(g.headDim);
                    const content = dot(query, m < n ? substitute.key(history, m, site, kvHead) : exact(m, 'keys'));
                    const branchLoop = codec.kind === 'mla-head' ? site.loop : 0;
                    const source = history[m]!.get(keyOf({ ...site, loop: branchLoop }))!;
                    const q = split(
                      product(matrixOf(weights, branchTensor(site.layer, 'query')), own.input),
                      BRANCH.width,
                    )[head]!;
                    const k = split(
                      product(matrixOf(weights, branchTensor(site.layer, 'key')), source.input),
                      BRANCH.width,
                    )[perHead ? kvHead : 0]!;
                    return (content + dot(rotate(q, n - m, g.rope), k)) / Math.sqrt(g.headDim + BRANCH.width);
                  };
                  const out = new Float64Array(g.headDim);
                  softmax(history.map((_, m) => score(m))).forEach((p, m) =>
                    accumulate(out, core && m < n ? substitute.value(history, m, site, kvHead) : exact(m, 'values'), p),
                  );
                  return out;
                }),
              ),
            ];
          })[0]!;
        });
        expect(distance(decodeAll(decoderOf(model, setup), tokens), expected)).toBeLessThan(EXACT);
      });
    }
  }
});
