/** Evicted caches against a full cache in which what was evicted is masked out. */
import { describe, expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { scalarsPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { blocksOf } from '../../src/geometry/geometry.js';
import { keptPositions, parseEviction, POLICY_FORMS, type Eviction } from '../../src/eviction/policy.js';
import { forward } from '../../src/decoder/reference/forward.js';
import type { Model } from '../../src/decoder/reference/model.js';
import type { Site } from '../../src/decoder/reference/network.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, decodeAll, GEOMETRIES, learnedCodecs, modelOf, promptOf, SINGLE } from './models.js';
import { expectSame, expectOther, decoderFor, decoded } from './account.js';

const LENGTH = 14;

const streaming = (sinkTokens: number, windowTokens: number): Eviction => ({
  policy: 'streaming',
  sinkTokens,
  windowTokens,
  budgetTokens: sinkTokens + windowTokens,
});
const h2o = (heavyTokens: number, recentTokens: number) => ({
  policy: 'h2o' as const,
  heavyTokens,
  recentTokens,
  budgetTokens: heavyTokens + recentTokens,
});
const budget = (budgetTokens: number): Eviction => ({ policy: 'budget', budgetTokens });

const range = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);

/** How sites and heads of a codec lose tokens together. */
type UnitOf = (site: Site, kvHead: number) => string;

/**
 * H2O over a full cache: nothing is removed, tokens become invisible. One forward pass over all of a prompt shows what
 * each token gives to those before it; then one over the whole prefix a token, as its mask depends on what all sites
 * attended to before. Sites and heads that `unitOf` gives one name lose tokens together.
 * @returns logits of every token, the tokens that each unit keeps of the prompt, and how many any unit ever kept
 */
function maskedH2o(
  model: Model,
  prompt: readonly number[],
  more: readonly number[],
  { heavyTokens, recentTokens }: { heavyTokens: number; recentTokens: number },
  unitOf: UnitOf,
): { logits: Float64Array[]; kept: Map<string, number[]>; most: number } {
  const { heads, kvHeads } = model.geometry;
  const mass = new Map<string, Float64Array>();
  const before: Map<string, number[]>[] = [];
  const keep = (names: Iterable<string>, tokens: (name: string) => readonly number[]): Map<string, number[]> =>
    new Map(
      [...names].map((name) => {
        const older = tokens(name).slice(0, -recentTokens);
        const weight = (p: number): number => mass.get(name)![p]!;
        const heavy = older.filter(
          (p) => older.filter((q) => weight(q) > weight(p) || (weight(q) === weight(p) && q < p)).length < heavyTokens,
        );
        return [name, [...heavy, ...tokens(name).slice(-recentTokens)]];
      }),
    );
  const seenBy = (position: number, name: string): number[] =>
    position < prompt.length ? range(0, position) : (before[position - prompt.length]!.get(name) ?? []);
  /** One pass over the first `count` tokens, of which those from `from` on give mass. */
  const pass = (count: number, from: number): Float64Array[] =>
    forward(model, [...prompt, ...more].slice(0, count), {
      reindexed: false,
      visible: (position, site, kvHead) => seenBy(position, unitOf(site, kvHead)),
      observe(weights, position, site, head) {
        if (position < from) return;
        const name = unitOf(site, Math.floor((head * kvHeads) / heads));
        const sums = mass.get(name) ?? new Float64Array(prompt.length + more.length);
        mass.set(name, sums);
        seenBy(position, name).forEach((p, i) => (sums[p] = sums[p]! + weights[i]!));
      },
    });
  const logits = pass(prompt.length, 0);
  before.push(keep(mass.keys(), () => range(0, prompt.length)));
  more.forEach((_, i) => {
    const at = prompt.length + i;
    logits.push(pass(at + 1, at).at(-1)!);
    before.push(keep(mass.keys(), (name) => [...(before[i]!.get(name) ?? []), at]));
  });
  const most = Math.max(...before.flatMap((of) => [...of.values()].map(({ length }) => length)));
  return { logits, kept: before[0]!, most };
}

describe.each(GEOMETRIES)('eviction, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, LENGTH, SEED);
  const identity = learnedCodecs(g, 1);

  it('with a budget of the whole length changes nothing', () => {
    const codecs: Codec[] = [{ kind: 'full' }, { kind: 'cla', shareLayers: 2 }, ...learnedCodecs(g, 0.5)];
    for (const codec of codecs) {
      const plain = decoded(model, { codec }, tokens);
      for (const eviction of [streaming(2, LENGTH - 2), h2o(3, LENGTH - 3), budget(LENGTH)]) {
        expectSame(decoded(model, { codec, eviction }, tokens), plain);
      }
    }
  });

  it('StreamingLLM is a mask of sinks and window, with positions inside the cache; a bare budget is a window', () => {
    const full = { codec: { kind: 'full' } as Codec };
    const setups = [
      full,
      ...identity.map((codec) => ({ codec, matrices: 'identity' as const })),
      { codec: identity[0]!, path: 'fast' as const, matrices: 'identity' as const },
    ];
    for (const [eviction, sink, window] of [
      [streaming(2, 4), 2, 4],
      [streaming(0, 3), 0, 3],
      [streaming(1, 1), 1, 1],
      [budget(5), 0, 5],
    ] as const) {
      const visible = (n: number): number[] => [
        ...range(0, Math.min(sink, n)),
        ...range(Math.max(sink, n - window), n),
      ];
      const bare = eviction.policy === 'budget';
      const masked = forward(model, tokens, { visible, reindexed: !bare });
      for (const setup of bare ? [full] : setups) {
        const decoder = decoderFor(model, { ...setup, eviction });
        expectSame(decodeAll(decoder, tokens), masked);
        expect(decoder.keptPositions({ block: 'core', layer: 0, loop: 0 }, 0)).toEqual(visible(LENGTH));
      }
      if (window === 4) expectOther(masked, forward(model, tokens, { visible, reindexed: false }));
    }
  });

  const site = ({ block, layer, loop }: Site): string => [block, layer, loop].join();
  const whole = (s: Site, head: number): number => (s.block === 'core' ? 0 : head);
  const [lla, lla2d, mla] = identity as [Codec, Codec, Codec];
  type Pooled = [name: string, setup: { codec: Codec; path?: 'fast' }, unitOf: UnitOf];
  const cases: Pooled[] = [
    ['full: each layer, loop and head alone', { codec: { kind: 'full' } }, (s, head) => `${site(s)},${head}`],
    ['lla: pooled over loops', { codec: lla }, (s, head) => `${site({ ...s, loop: 0 })},${head}`],
    [
      'lla-2d: pooled over loops and heads',
      { codec: lla2d },
      (s, head) => `${site({ ...s, loop: 0 })},${whole(s, head)}`,
    ],
    ['mla-head: pooled over heads', { codec: mla }, (s, head) => `${site(s)},${whole(s, head)}`],
    [
      'lla on the fast path: full-width rows, each alone',
      { codec: lla, path: 'fast' },
      (s, head) => `${site(s)},${head}`,
    ],
  ];
  it.each(cases)('H2O, %s, is a mask of what its mass has dropped', (_, setup, unitOf) => {
    for (const eviction of [h2o(3, 2), h2o(1, 1)]) {
      const { logits, most } = maskedH2o(model, [], tokens, eviction, unitOf);
      expect(most).toBe(eviction.budgetTokens);
      expectSame(decoded(model, { ...setup, eviction, matrices: 'identity' }, tokens), logits);
    }
  });

  it.each(cases)(
    'a prompt under H2O, %s, attends to itself in full, and then the heaviest and last of it stay',
    (_, of, unitOf) => {
      const eviction = h2o(3, 2);
      const setup = { ...of, eviction, matrices: 'identity' } as const;
      for (const length of [4, 9]) {
        const [prompt, more] = [tokens.slice(0, length), tokens.slice(length)];
        const { logits, kept } = maskedH2o(model, prompt, more, eviction, unitOf);
        const decoder = decoderFor(model, setup);
        const whole = decoder.prefill(prompt, 'accumulated');
        for (const block of blocksOf(g))
          for (const layer of range(0, block.layers))
            for (const loop of range(0, block.loops))
              for (const head of range(0, g.kvHeads)) {
                const at = { block: block.name, layer, loop };
                expect(decoder.keptPositions(at, head)).toEqual(kept.get(unitOf(at, head)));
              }
        expectSame([...whole, ...decodeAll(decoder, more)], logits);
        // Token by token it is the same within the budget, and another result beyond it.
        (length <= eviction.budgetTokens ? expectSame : expectOther)(decoded(model, setup, prompt), whole);
      }
    },
  );

  it('H2O on the absorbed path: heads that share a rotary branch lose tokens together, others alone', () => {
    const site = { block: 'core', layer: 0, loop: 0 } as const;
    for (const codec of learnedCodecs(g, 0.5)) {
      for (const perHead of [false, true]) {
        const branch = { ...BRANCH, perHead };
        const decoder = decoderFor(model, { codec, path: 'absorbed', branch, eviction: h2o(4, 2) });
        decodeAll(decoder, tokens);
        const layout = layoutOf(g, codec, 'absorbed', SINGLE, branch);
        expect(decoder.cachedScalars).toBe(6 * scalarsPerToken(layout));
        const together = !perHead || codec.kind !== 'lla';
        const masses = Array.from({ length: g.kvHeads }, (_, head) => decoder.massOf(site, head, LENGTH - 2));
        expect(new Set(masses).size).toBe(together ? 1 : g.kvHeads);
        // Seen by the newest token alone: at most 1 from every query head and loop that shares the unit.
        expect(masses[0]).toBeGreaterThan(0);
        expect(decoder.massOf(site, 0, LENGTH - 1)).toBe(0);
        expect(masses[0]).toBeLessThanOrEqual(
          (together ? g.heads : g.heads / g.kvHeads) * (codec.kind === 'mla-head' ? 1 : g.loops),
        );
      }
    }
  });
});

const MASS = new Map([5, 1, 5, 0.5, 9, 0].map((of, position) => [position, of]));
it.each<[string, Eviction | null, number[], Map<number, number>?]>([
  ['all without a policy', null, [0, 1, 2, 3, 4, 5]],
  ['all within sinks and window', streaming(3, 3), [0, 1, 2, 3, 4, 5]],
  ['all within heavy and recent', h2o(4, 2), [0, 1, 2, 3, 4, 5]],
  ['all within a budget', budget(6), [0, 1, 2, 3, 4, 5]],
  ['the heaviest and the last', h2o(1, 1), [4, 5]],
  ['in their order', h2o(2, 2), [0, 2, 4, 5]],
  ['the older of equals', h2o(1, 3), [0, 3, 4, 5]],
  ['no recent tokens', h2o(2, 0), [0, 4]],
  ['tokens of no mass last, the older of them', h2o(2, 1), [0, 3, 5], new Map([[3, 1]])],
  ['sinks and window', streaming(2, 3), [0, 1, 3, 4, 5]],
  ['sinks alone', streaming(4, 0), [0, 1, 2, 3]],
  ['a window alone', streaming(0, 2), [4, 5]],
])('keptPositions: %s', (_, policy, kept, mass = MASS) => {
  expect(keptPositions([0, 1, 2, 3, 4, 5], mass, policy)).toEqual(kept);
});

it('reads every form of a policy, and names them where it cannot', () => {
  for (const form of POLICY_FORMS) {
    const text = form.replaceAll(/[A-Z]+/g, '3');
    expect(parseEviction(text, '--eviction'), text).not.toBeNull();
    expect(() => parseEviction('x', '--eviction')).toThrow(form);
  }
  expect(parseEviction('none', '--eviction')).toBeNull();
});
