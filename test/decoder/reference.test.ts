/** The float64 decoder against the exact forward pass, and its paths against each other. */
import { describe, expect, it } from 'vitest';
import { forward } from '../../src/decoder/reference/forward.js';
import type { Codec } from '../../src/codecs/codec.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, decodeAll, decoderOf, distance, GEOMETRIES, learnedCodecs, modelOf, promptOf } from './models.js';

const EXACT = 1e-9;
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
    expect(distance(truth.slice(-1), other.slice(-1))).toBeGreaterThan(1e-4);
    expect(distance(forward(model, tokens.slice(0, 4)), truth.slice(0, 4))).toBeLessThan(EXACT);
  });

  it('step by step over a full cache is the forward pass', () => {
    const steps = decodeAll(decoderOf(model, { codec: { kind: 'full' }, seed: SEED }), tokens);
    expect(distance(steps, truth)).toBeLessThan(EXACT);
  });

  for (const codec of learnedCodecs(g, 1)) {
    it(`${codec.kind} of full ranks reproduces the full cache on every full-RoPE path`, () => {
      for (const path of ['reconstruct', 'block-absorbed', 'fast'] as const) {
        const steps = decodeAll(decoderOf(model, { codec, path, seed: SEED, matrices: 'identity' }), tokens);
        expect(distance(steps, truth)).toBeLessThan(EXACT);
      }
    });
  }

  for (const codec of learnedCodecs(g, 0.5)) {
    it(`${codec.kind} of half ranks loses something, the same on reconstruct, block-absorbed and fast`, () => {
      const over = (path: 'reconstruct' | 'block-absorbed' | 'fast') =>
        decodeAll(decoderOf(model, { codec, path, seed: SEED }), tokens);
      const reconstruct = over('reconstruct');
      expect(distance(reconstruct, truth)).toBeGreaterThan(1e-3);
      expect(distance(over('block-absorbed'), reconstruct)).toBeLessThan(EXACT);
      expect(distance(over('fast'), reconstruct)).toBeLessThan(EXACT);
    });

    it(`${codec.kind} absorbed runs with the branch shared and per head, and differs from full RoPE`, () => {
      const over = (perHead: boolean) =>
        decodeAll(decoderOf(model, { codec, path: 'absorbed', branch: { ...BRANCH, perHead }, seed: SEED }), tokens);
      const shared = over(false);
      expect(shared.flatMap((row) => [...row]).every(Number.isFinite)).toBe(true);
      expect(distance(shared, decodeAll(decoderOf(model, { codec, seed: SEED }), tokens))).toBeGreaterThan(1e-3);
      if (g.kvHeads > 1) expect(distance(shared, over(true))).toBeGreaterThan(1e-6);
    });
  }

  it('refuses a path that the codec has not', () => {
    expect(() => decoderOf(model, { codec: { kind: 'full' }, path: 'absorbed', seed: SEED })).toThrow(
      'full cannot be read by the path absorbed',
    );
    expect(() => decoderOf(model, { codec: { kind: 'lla', rankK: 1000, rankV: 1 }, seed: SEED })).toThrow(
      'rank K 1000 exceeds',
    );
    expect(() =>
      decoderOf(model, {
        codec: learnedCodecs(g, 1)[0]!,
        path: 'absorbed',
        branch: { width: 5, perHead: false },
        seed: SEED,
      }),
    ).toThrow('even width, not 5');
    expect(() => decoderOf(model, { codec: { kind: 'full' }, seed: SEED }).step(g.vocab)).toThrow(
      `not one of the model's ${g.vocab}`,
    );
  });

  it('caches the rows of the layout: on every path as many scalars a token', () => {
    const absorbed = { path: 'absorbed', branch: { ...BRANCH, perHead: true } } as const;
    for (const codec of [{ kind: 'full' }, { kind: 'cla', shareLayers: 2 }, ...learnedCodecs(g, 0.5)] as Codec[]) {
      for (const { path, branch } of codec.rankK === undefined
        ? [{ path: 'full', branch: BRANCH } as const]
        : [{ path: 'reconstruct', branch: BRANCH } as const, { path: 'fast', branch: BRANCH } as const, absorbed]) {
        const decoder = decoderOf(model, { codec, path, branch, seed: SEED });
        decodeAll(decoder, tokens);
        expect(decoder.cachedScalars).toBe(
          LENGTH * scalarsPerToken(layoutOf(g, codec, path, { storage: 'f32', groupSize: 32 }, branch)),
        );
      }
    }
  });

  it('rounds what is cached, and nothing else', () => {
    const codecs: Codec[] = [{ kind: 'full' }, ...learnedCodecs(g, 0.5)];
    for (const codec of codecs) {
      const exact = decodeAll(decoderOf(model, { codec, seed: SEED }), tokens);
      let before = 0;
      // Bounds hold for the first token that meets a rounded one: further on, random models amplify what they are off
      // by.
      for (const [storage, most] of [
        ['f32', 1e-5],
        ['f16', 5e-2],
        ['q8', 0.5],
      ] as const) {
        const rounded = decodeAll(decoderOf(model, { codec, choice: { storage, groupSize: 32 }, seed: SEED }), tokens);
        expect(rounded[0]).toEqual(exact[0]);
        expect(distance(rounded.slice(1, 2), exact.slice(1, 2))).toBeLessThan(most);
        const error = distance(rounded, exact);
        expect(error).toBeGreaterThan(before);
        before = error;
      }
    }
  });
});
