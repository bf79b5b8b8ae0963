/** The float64 decoder against the exact forward pass, and its paths against each other. */
import { describe, expect, it } from 'vitest';
import { forward } from '../../src/decoder/reference/forward.js';
import type { Codec } from '../../src/codecs/codec.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, decodeAll, distance, GEOMETRIES, learnedCodecs, modelOf, promptOf, SINGLE } from './models.js';
import { expectSame, expectOther, decoderFor, decoded } from './account.js';

const LENGTH = 9;

describe.each(GEOMETRIES)('reference decoder, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, LENGTH, SEED);
  const truth = forward(model, tokens);

  it('has ordinary activations and logits that depend on the whole prefix', () => {
    const size = Math.sqrt(truth.flatMap((row) => [...row]).reduce((sum, x) => sum + x * x, 0) / (LENGTH * g.vocab));
    expect(size).toBeGreaterThan(0.1);
    expect(size).toBeLessThan(10);
    const other = forward(model, [(tokens[0]! + 1) % g.vocab, ...tokens.slice(1)]);
    expectOther(truth.slice(-1), other.slice(-1), 1e-4);
    expectSame(forward(model, tokens.slice(0, 4)), truth.slice(0, 4));
  });

  for (const codec of learnedCodecs(g, 0.5)) {
    it(`${codec.kind} of half ranks loses something, the same on reconstruct, block-absorbed and fast`, () => {
      const over = (path: 'reconstruct' | 'block-absorbed' | 'fast') => decoded(model, { codec, path }, tokens);
      const reconstruct = over('reconstruct');
      expectOther(reconstruct, truth, 1e-3);
      expectSame(over('block-absorbed'), reconstruct);
      expectSame(over('fast'), reconstruct);
    });
  }

  it('refuses a path that the codec has not', () => {
    expect(() => decoderFor(model, { codec: { kind: 'full' }, path: 'absorbed' })).toThrow(
      'full cannot be read by the path absorbed',
    );
    expect(() => decoderFor(model, { codec: { kind: 'lla', rankK: 1000, rankV: 1 } })).toThrow('rank K 1000 exceeds');
    expect(() =>
      decoderFor(model, { codec: learnedCodecs(g, 1)[0]!, path: 'absorbed', branch: { width: 5, perHead: false } }),
    ).toThrow('even width, not 5');
    expect(() => decoderFor(model, { codec: { kind: 'full' } }).step(g.vocab)).toThrow(
      `not one of the model's ${g.vocab}`,
    );
  });

  it('caches the rows of the layout: on every path as many scalars a token', () => {
    const absorbed = { path: 'absorbed', branch: { ...BRANCH, perHead: true } } as const;
    for (const codec of [{ kind: 'full' }, { kind: 'cla', shareLayers: 2 }, ...learnedCodecs(g, 0.5)] as Codec[]) {
      for (const { path, branch } of codec.rankK === undefined
        ? [{ path: 'full', branch: BRANCH } as const]
        : [{ path: 'reconstruct', branch: BRANCH } as const, { path: 'fast', branch: BRANCH } as const, absorbed]) {
        const decoder = decoderFor(model, { codec, path, branch });
        decodeAll(decoder, tokens);
        expect(decoder.cachedScalars).toBe(LENGTH * scalarsPerToken(layoutOf(g, codec, path, SINGLE, branch)));
      }
    }
  });

  it('rounds what is cached, and nothing else', () => {
    const codecs: Codec[] = [{ kind: 'full' }, ...learnedCodecs(g, 0.5)];
    for (const codec of codecs) {
      const exact = decoded(model, { codec }, tokens);
      let before = 0;
      // Bounds hold for the first token that meets a rounded one: further on, random models amplify what they are off
      // by.
      for (const [storage, most] of [
        ['f32', 1e-5],
        ['f16', 5e-2],
        ['q8', 0.5],
      ] as const) {
        const rounded = decoded(model, { codec, choice: { storage, groupSize: 32 } }, tokens);
        expect(rounded[0]).toEqual(exact[0]);
        expect(distance(rounded.slice(1, 2), exact.slice(1, 2))).toBeLessThan(most);
        const error = distance(rounded, exact);
        expect(error).toBeGreaterThan(before);
        before = error;
      }
    }
  });
});
