/** The four kinds of prefill, against the definition of the two passes written out. */
import { describe, expect, it } from 'vitest';
import { dot, accumulate, joined, rotate, softmax, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { decode, encode, groupOf, loadCodec, offsetOf, type LayerCodec } from '../../src/decoder/reference/codec.js';
import type { PrefillKind } from '../../src/decoder/reference/decoder.js';
import { exactAttention, forward } from '../../src/decoder/reference/forward.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { run, type Projection, type Site } from '../../src/decoder/reference/network.js';
import type { Codec } from '../../src/codecs/codec.js';
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
const PROMPT = 8;
const KINDS: readonly PrefillKind[] = ['one-shot', 'by-layer', 'accumulated'];

/** Pass 1 captures exact keys and values; pass 2 attends, its own tokens included, to what the codec makes of them. */
function twoPasses(model: Model, codecs: readonly LayerCodec[], tokens: readonly number[]): Float64Array[] {
  const { rope, headDim, heads, kvHeads } = model.geometry;
  const positions = tokens.map((_, n) => n);
  const captured = new Map<string, readonly Projection[]>();
  const name = ({ block, layer, loop }: Site): string => [block, layer, loop].join();
  run(model, tokens, positions, (site, own) => {
    captured.set(name(site), own);
    return exactAttention(model)(site, own);
  });
  const at = (site: Site, token: number): Projection => captured.get(name(site))![token]!;
  const forced = (site: Site, token: number, what: 'keys' | 'values', head: number): Vector => {
    if (site.block !== 'core') return at(site, token)[what][head]!;
    const axis = codecs[site.layer]![what === 'keys' ? 'key' : 'value']!;
    const group = groupOf(axis, site.loop, head);
    const stack = new Float64Array(axis.groups.width);
    for (let loop = 0; loop < model.geometry.loops; loop++) {
      for (let h = 0; h < kvHeads; h++)
        if (groupOf(axis, loop, h) === group)
          stack.set(at({ ...site, loop }, token)[what][h]!, offsetOf(axis, loop, h));
    }
    return decode(axis, site.loop, head, encode(axis, group, stack));
  };
  return run(model, tokens, positions, (site, own) =>
    own.map((token, n) =>
      joined(
        token.queries.map((query, head) => {
          const kvHead = Math.floor((head * kvHeads) / heads);
          const before = positions.slice(0, n + 1);
          const out = new Float64Array(headDim);
          softmax(
            before.map(
              (m) => dot(rotate(query, n, rope), rotate(forced(site, m, 'keys', kvHead), m, rope)) / Math.sqrt(headDim),
            ),
          ).forEach((p, m) => accumulate(out, forced(site, m, 'values', kvHead), p));
          return out;
        }),
      ),
    ),
  );
}

describe.each(GEOMETRIES)('prefill, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const prompt = promptOf(g, PROMPT, SEED);
  const more = promptOf(g, 4, SEED + 1);
  const others: Codec[] = [
    { kind: 'cla', shareLayers: 2 },
    { kind: 'kv-quant', bits: 4 },
    ...(g.loops > 1 ? [{ kind: 'final-loop' } as const] : []),
  ];

  it('of a full cache is the forward pass, whole or in chunks, and decoding goes on from it', () => {
    const truth = forward(model, [...prompt, ...more]);
    for (const [kind, size] of [
      ...KINDS.map((k) => [k, undefined] as const),
      ['chunked', 1] as const,
      ['chunked', 3] as const,
    ]) {
      const decoder = decoderOf(model, { codec: { kind: 'full' }, seed: SEED });
      expect(distance([...decoder.prefill(prompt, kind, size), ...decodeAll(decoder, more)], truth)).toBeLessThan(
        EXACT,
      );
      expect(decoder.length).toBe(PROMPT + more.length);
    }
  });

  for (const codec of learnedCodecs(g, 1)) {
    it(`of ${codec.kind} with full ranks is the forward pass`, () => {
      const truth = forward(model, [...prompt, ...more]);
      for (const path of ['reconstruct', 'fast'] as const) {
        for (const [kind, size] of [...KINDS.map((k) => [k, undefined] as const), ['chunked', 3] as const]) {
          const decoder = decoderOf(model, { codec, path, seed: SEED, matrices: 'identity' });
          expect(distance([...decoder.prefill(prompt, kind, size), ...decodeAll(decoder, more)], truth)).toBeLessThan(
            EXACT,
          );
        }
      }
    });
  }

  for (const codec of learnedCodecs(g, 0.5)) {
    it(`of ${codec.kind} is two passes; one-shot, by-layer, accumulated and one chunk agree`, () => {
      const setup = { codec, seed: SEED };
      const expected = twoPasses(model, loadCodec(g, codec, 'reconstruct', BRANCH, codecWeights(g, setup)), prompt);
      for (const path of ['reconstruct', 'block-absorbed', 'fast'] as const) {
        for (const [kind, size] of [...KINDS.map((k) => [k, undefined] as const), ['chunked', PROMPT + 1] as const]) {
          expect(distance(decoderOf(model, { ...setup, path }).prefill(prompt, kind, size), expected)).toBeLessThan(
            EXACT,
          );
        }
      }
      expect(distance(expected, forward(model, prompt))).toBeGreaterThan(1e-3);
      expect(distance(decodeAll(decoderOf(model, setup), prompt), expected)).toBeGreaterThan(1e-6);
    });

    it(`of ${codec.kind} in chunks is another result from the second chunk on`, () => {
      const whole = decoderOf(model, { codec, seed: SEED }).prefill(prompt, 'accumulated');
      const chunks = decoderOf(model, { codec, seed: SEED }).prefill(prompt, 'chunked', 3);
      expect(distance(chunks.slice(0, 3), whole.slice(0, 3))).toBeLessThan(EXACT);
      if (g.loops > 1 || g.preludeLayers + g.layers > 1)
        expect(distance(chunks.slice(3), whole.slice(3))).toBeGreaterThan(1e-6);
    });

    it(`of ${codec.kind} absorbed agrees among the kinds`, () => {
      const over = (kind: PrefillKind) => {
        const decoder = decoderOf(model, { codec, path: 'absorbed', seed: SEED });
        return [...decoder.prefill(prompt, kind), ...decodeAll(decoder, more)];
      };
      const accumulated = over('accumulated');
      for (const kind of KINDS) expect(distance(over(kind), accumulated)).toBeLessThan(EXACT);
    });
  }

  it('leaves the evicted cache with its budget, and with what was evicted out of reach', () => {
    const codecs: Codec[] = [{ kind: 'full' }, ...others, ...learnedCodecs(g, 0.5)];
    for (const codec of codecs) {
      for (const eviction of [
        { policy: 'streaming', sinkTokens: 1, windowTokens: 3, budgetTokens: 4 } as const,
        { policy: 'h2o', heavyTokens: 2, recentTokens: 2, budgetTokens: 4 } as const,
      ]) {
        const decoder = decoderOf(model, { codec, eviction, choice: { storage: 'f16', groupSize: 32 }, seed: SEED });
        decoder.prefill(prompt, 'accumulated');
        const kept = decoder.keptPositions({ block: 'core', layer: 0, loop: 0 }, 0);
        expect(kept).toHaveLength(4);
        if (eviction.policy === 'streaming') expect(kept).toEqual([0, PROMPT - 3, PROMPT - 2, PROMPT - 1]);
        else expect(kept.slice(2)).toEqual([PROMPT - 2, PROMPT - 1]);
        const perToken = scalarsPerToken(
          layoutOf(
            g,
            codec,
            codec.rankK === undefined ? 'full' : 'reconstruct',
            { storage: 'f16', groupSize: 32 },
            BRANCH,
          ),
        );
        expect(decoder.cachedScalars).toBe(4 * perToken);
        expect(
          decodeAll(decoder, more)
            .flatMap((row) => [...row])
            .every(Number.isFinite),
        ).toBe(true);
      }
    }
  });

  it('keeps the same tokens, of the same mass, by every kind in one run', () => {
    const site = { block: 'core', layer: g.layers - 1, loop: g.loops - 1 } as const;
    for (const codec of [...others, ...learnedCodecs(g, 0.5)]) {
      for (const eviction of [
        { policy: 'streaming', sinkTokens: 1, windowTokens: 3, budgetTokens: 4 } as const,
        { policy: 'h2o', heavyTokens: 2, recentTokens: 2, budgetTokens: 4 } as const,
      ]) {
        const of = ([kind, size]: readonly [PrefillKind, number?]) => {
          const decoder = decoderOf(model, { codec, eviction, seed: SEED });
          const logits = decoder.prefill(prompt, kind, size);
          const kept = decoder.keptPositions(site, 0);
          const masses = Float64Array.from(kept, (position) => decoder.massOf(site, 0, position));
          return { kept, masses, logits: [...logits, ...decodeAll(decoder, more)] };
        };
        const expected = of(['accumulated']);
        for (const kind of [['one-shot'], ['by-layer'], ['chunked', PROMPT]] as const) {
          const { kept, masses, logits } = of(kind);
          expect(kept).toEqual(expected.kept);
          expect(distance([...logits, masses], [...expected.logits, expected.masses])).toBeLessThan(EXACT);
        }
      }
    }
  });

  /** Loops that share rows do so while decoding, or from the prompt on; in two passes they are tested on their own. */
  const sharedAs = (shared: 'all' | 'decode'): Codec[] =>
    others.map((codec) => (codec.kind === 'final-loop' ? { ...codec, shared } : codec));

  it('in chunks of one token under H2O is a step each, without latents', () => {
    const eviction = { policy: 'h2o', heavyTokens: 2, recentTokens: 2, budgetTokens: 4 } as const;
    for (const codec of [{ kind: 'full' } as const, ...sharedAs('all')]) {
      const [chunks, steps] = [0, 1].map(() => decoderOf(model, { codec, eviction, seed: SEED })) as [
        ReturnType<typeof decoderOf>,
        ReturnType<typeof decoderOf>,
      ];
      expect(distance(chunks.prefill(prompt, 'chunked', 1), decodeAll(steps, prompt))).toBeLessThan(EXACT);
      const site = { block: 'core', layer: 0, loop: 0 } as const;
      expect(chunks.keptPositions(site, 0)).toEqual(steps.keptPositions(site, 0));
      for (const position of steps.keptPositions(site, 0))
        expect(chunks.massOf(site, 0, position)).toBeCloseTo(steps.massOf(site, 0, position), 9);
    }
  });

  it('of codecs without latents is one pass over exact keys and values; cla shares them among layers', () => {
    // Those that change what is stored, not what a prompt reads: storage.test.ts.
    for (const codec of sharedAs('decode').filter(({ bits }) => bits === undefined)) {
      const expected =
        codec.kind === 'cla' ? decodeAll(decoderOf(model, { codec, seed: SEED }), prompt) : forward(model, prompt);
      for (const kind of KINDS) {
        const decoder = decoderOf(model, { codec, seed: SEED });
        expect(distance(decoder.prefill(prompt, kind), expected)).toBeLessThan(EXACT);
        expect(distance(decodeAll(decoder, more), forward(model, [...prompt, ...more]).slice(PROMPT))).toBeGreaterThan(
          1e-6,
        );
      }
    }
  });

  it('refuses an empty prompt and a chunk of nothing', () => {
    const decoder = decoderOf(model, { codec: { kind: 'full' }, seed: SEED });
    expect(() => decoder.prefill([], 'accumulated')).toThrow('no tokens');
    expect(() => decoder.prefill(prompt, 'chunked', 0)).toThrow('whole number of tokens a chunk');
  });
});
