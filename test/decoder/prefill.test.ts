/** The four kinds of prefill, against the definition of the two passes written out. */
import { describe, expect, it } from 'vitest';
import type { PrefillKind } from '../../src/decoder/reference/decoder.js';
import { forward } from '../../src/decoder/reference/forward.js';
import type { Model } from '../../src/decoder/reference/model.js';
import type { Codec } from '../../src/codecs/codec.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, codecWeights, decodeAll, GEOMETRIES, learnedCodecs, modelOf, promptOf, F16 } from './models.js';
import {
  type History,
  byToken,
  overRows,
  exactRow,
  exactlyOf,
  reconstructing,
  rebuiltRow,
  expectSame,
  expectOther,
  decoderFor,
  decoded,
} from './account.js';

const PROMPT = 8;
const KINDS: readonly PrefillKind[] = ['one-shot', 'by-layer', 'accumulated'];
/** Each kind, and chunks of so many tokens. */
const ways = (...chunks: number[]): [PrefillKind, number?][] => [
  ...KINDS.map((kind): [PrefillKind] => [kind]),
  ...chunks.map((size): [PrefillKind, number] => ['chunked', size]),
];

/** Pass 1 captures exact keys and values; pass 2 attends, its own tokens included, to what the codec makes of them. */
function twoPasses(model: Model, codec: Codec, tokens: readonly number[]): Float64Array[] {
  const captured: History = [];
  const exact = exactRow(model);
  byToken(model, tokens, overRows(model, exact), captured);
  const weights = codecWeights(model.geometry, { codec, seed: SEED });
  const rebuilt = rebuiltRow(model, reconstructing(model, codec, weights)(exactlyOf(captured)));
  return byToken(
    model,
    tokens,
    overRows(model, (token, head) =>
      head.site.block === 'core' ? rebuilt(token, head) : exact(token, { ...head, history: captured }),
    ),
  );
}
const EVICTIONS = [
  { policy: 'streaming', sinkTokens: 1, windowTokens: 3, budgetTokens: 4 },
  { policy: 'h2o', heavyTokens: 2, recentTokens: 2, budgetTokens: 4 },
] as const;

describe.each(GEOMETRIES)('prefill, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const prompt = promptOf(g, PROMPT, SEED);
  const more = promptOf(g, 4, SEED + 1);
  const others: Codec[] = [
    { kind: 'cla', shareLayers: 2 },
    { kind: 'kv-quant', bits: 4 },
    ...(g.loops > 1 ? [{ kind: 'final-loop' } as const] : []),
  ];

  it('of a full cache, or of full ranks, is the forward pass, and decoding goes on from it', () => {
    const truth = forward(model, [...prompt, ...more]);
    const learned = learnedCodecs(g, 1).flatMap((codec) => [{ codec }, { codec, path: 'fast' as const }]);
    for (const setup of [{ codec: { kind: 'full' } as const }, ...learned])
      for (const [kind, size] of ways(1, 3).filter(([, size]) => size !== 1 || setup.codec.kind === 'full')) {
        const decoder = decoderFor(model, { ...setup, matrices: 'identity' });
        expectSame([...decoder.prefill(prompt, kind, size), ...decodeAll(decoder, more)], truth);
        expect(decoder.length).toBe(PROMPT + more.length);
      }
  });

  for (const codec of learnedCodecs(g, 0.5)) {
    it(`of ${codec.kind} is two passes; one-shot, by-layer, accumulated and one chunk agree`, () => {
      const expected = twoPasses(model, codec, prompt);
      for (const path of ['reconstruct', 'block-absorbed', 'fast'] as const) {
        for (const [kind, size] of ways(PROMPT + 1))
          expectSame(decoderFor(model, { codec, path }).prefill(prompt, kind, size), expected);
      }
      expectOther(expected, forward(model, prompt), 1e-3);
      expectOther(decoded(model, { codec }, prompt), expected);
    });

    it(`of ${codec.kind} in chunks is another result from the second chunk on`, () => {
      const whole = decoderFor(model, { codec }).prefill(prompt, 'accumulated');
      const chunks = decoderFor(model, { codec }).prefill(prompt, 'chunked', 3);
      expectSame(chunks.slice(0, 3), whole.slice(0, 3));
      if (g.loops > 1 || g.preludeLayers + g.layers > 1) expectOther(chunks.slice(3), whole.slice(3));
    });

    it(`of ${codec.kind} absorbed agrees among the kinds`, () => {
      const over = (kind: PrefillKind) => {
        const decoder = decoderFor(model, { codec, path: 'absorbed' });
        return [...decoder.prefill(prompt, kind), ...decodeAll(decoder, more)];
      };
      const accumulated = over('accumulated');
      for (const kind of KINDS) expectSame(over(kind), accumulated);
    });
  }

  it('leaves the evicted cache with its budget, and with what was evicted out of reach', () => {
    const codecs: Codec[] = [{ kind: 'full' }, ...others, ...learnedCodecs(g, 0.5)];
    for (const codec of codecs) {
      for (const eviction of EVICTIONS) {
        const decoder = decoderFor(model, { codec, eviction, choice: F16 });
        decoder.prefill(prompt, 'accumulated');
        const kept = decoder.keptPositions({ block: 'core', layer: 0, loop: 0 }, 0);
        expect(kept).toHaveLength(4);
        if (eviction.policy === 'streaming') expect(kept).toEqual([0, PROMPT - 3, PROMPT - 2, PROMPT - 1]);
        else expect(kept.slice(2)).toEqual([PROMPT - 2, PROMPT - 1]);
        const path = codec.rankK === undefined ? 'full' : 'reconstruct';
        expect(decoder.cachedScalars).toBe(4 * scalarsPerToken(layoutOf(g, codec, path, F16, BRANCH)));
        for (const row of decodeAll(decoder, more)) expect(row.every(Number.isFinite)).toBe(true);
      }
    }
  });

  it('keeps the same tokens, of the same mass, by every kind in one run', () => {
    const site = { block: 'core', layer: g.layers - 1, loop: g.loops - 1 } as const;
    for (const codec of [...others, ...learnedCodecs(g, 0.5)]) {
      for (const eviction of EVICTIONS) {
        const of = ([kind, size]: readonly [PrefillKind, number?]) => {
          const decoder = decoderFor(model, { codec, eviction });
          const logits = decoder.prefill(prompt, kind, size);
          const kept = decoder.keptPositions(site, 0);
          const masses = Float64Array.from(kept, (position) => decoder.massOf(site, 0, position));
          return { kept, masses, logits: [...logits, ...decodeAll(decoder, more)] };
        };
        const expected = of(['accumulated']);
        for (const kind of [['one-shot'], ['by-layer'], ['chunked', PROMPT]] as const) {
          const { kept, masses, logits } = of(kind);
          expect(kept).toEqual(expected.kept);
          expectSame([...logits, masses], [...expected.logits, expected.masses]);
        }
      }
    }
  });

  /** Loops that share rows do so while decoding, or from the prompt on; in two passes they are tested on their own. */
  const sharedAs = (shared: 'all' | 'decode'): Codec[] =>
    others.map((codec) => (codec.kind === 'final-loop' ? { ...codec, shared } : codec));

  it('in chunks of one token under H2O is a step each, without latents', () => {
    const [, eviction] = EVICTIONS;
    for (const codec of [{ kind: 'full' } as const, ...sharedAs('all')]) {
      const [chunks, steps] = [decoderFor(model, { codec, eviction }), decoderFor(model, { codec, eviction })];
      expectSame(chunks.prefill(prompt, 'chunked', 1), decodeAll(steps, prompt));
      const site = { block: 'core', layer: 0, loop: 0 } as const;
      expect(chunks.keptPositions(site, 0)).toEqual(steps.keptPositions(site, 0));
      for (const position of steps.keptPositions(site, 0))
        expect(chunks.massOf(site, 0, position)).toBeCloseTo(steps.massOf(site, 0, position), 9);
    }
  });

  it('of codecs without latents is one pass over exact keys and values; cla shares them among layers', () => {
    // Those that change what is stored, not what a prompt reads: storage.test.ts.
    for (const codec of sharedAs('decode').filter(({ bits }) => bits === undefined)) {
      const expected = codec.kind === 'cla' ? decoded(model, { codec }, prompt) : forward(model, prompt);
      for (const kind of KINDS) {
        const decoder = decoderFor(model, { codec });
        expectSame(decoder.prefill(prompt, kind), expected);
        expectOther(decodeAll(decoder, more), forward(model, [...prompt, ...more]).slice(PROMPT));
      }
    }
  });

  it('refuses an empty prompt and a chunk of nothing', () => {
    const decoder = decoderFor(model, { codec: { kind: 'full' } });
    expect(() => decoder.prefill([], 'accumulated')).toThrow('no tokens');
    expect(() => decoder.prefill(prompt, 'chunked', 0)).toThrow('whole number of tokens a chunk');
  });
});
