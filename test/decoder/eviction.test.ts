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
import { BRANCH, decodeAll, decoderOf, distance, GEOMETRIES, learnedCodecs, modelOf, promptOf } from './models.js';

const EXACT = 1e-9;
const LENGTH = 14;

const streaming = (sinkTokens: number, windowTokens: number): Eviction => ({
  policy: 'streaming',
  sinkTokens,
  windowTokens,
  budgetTokens: sinkTokens + windowTokens,
});
const h2o = (heavyTokens: number, recentTokens: number): Eviction => ({
  policy: 'h2o',
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
 * H2O over a full cache: nothing is removed, tokens become invisible. One forward pass over the whole prefix a step, as
 * the mask of a step depends on the attention of all sites in the step before. Sites and heads that `unitOf` gives one
 * name lose tokens together.
 * @returns logits of every step, and how many tokens any unit ever showed
 */
function maskedH2o(
  model: Model,
  tokens: readonly number[],
  { heavyTokens, recentTokens }: { heavyTokens: number; recentTokens: number },
  unitOf: UnitOf,
): { logits: Float64Array[]; most: number } {
  const { heads, kvHeads } = model.geometry;
  const visible: Map<string, number[]>[] = [];
  const mass = new Map<string, number[]>();
  let most = 0;
  const logits = tokens.map((_, n) => {
    const now = new Map<string, number[]>();
    for (const [name, weights] of mass) {
      const candidates = [...(visible[n - 1]?.get(name) ?? []), n - 1];
      const older = candidates.slice(0, -recentTokens);
      while (older.length > heavyTokens) {
        const lightest = older.reduce((worst, p) => (weights[p]! <= weights[worst]! ? p : worst), older[0]!);
        older.splice(older.indexOf(lightest), 1);
      }
      now.set(name, [...older, ...candidates.slice(-recentTokens)]);
      most = Math.max(most, older.length + Math.min(candidates.length, recentTokens));
    }
    visible.push(now);
    return forward(model, tokens.slice(0, n + 1), {
      reindexed: false,
      visible: (position, site, kvHead) => visible[position]?.get(unitOf(site, kvHead)) ?? [],
      observe(weights, position, site, head) {
        if (position !== n) return;
        const name = unitOf(site, Math.floor((head * kvHeads) / heads));
        const sums = mass.get(name) ?? new Array<number>(tokens.length).fill(0);
        mass.set(name, sums);
        (now.get(name) ?? []).forEach((p, i) => (sums[p] = sums[p]! + weights[i]!));
      },
    }).at(-1) as Float64Array;
  });
  return { logits, most };
}

/**
 * H2O after a prompt that was taken in whole: one forward pass over all of it, which shows what each token gives to
 * those before it, then one pass a token behind a mask of what is kept, as `maskedH2o`.
 * @returns logits of every token, and the tokens that each unit keeps of the prompt
 */
function maskedH2oPrompt(
  model: Model,
  prompt: readonly number[],
  more: readonly number[],
  { heavyTokens, recentTokens }: { heavyTokens: number; recentTokens: number },
  unitOf: UnitOf,
): { logits: Float64Array[]; kept: Map<string, number[]> } {
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
  /** One pass over the first `count` tokens, of which those from `from` on give mass. */
  const pass = (count: number, from: number): Float64Array[] =>
    forward(model, [...prompt, ...more].slice(0, count), {
      reindexed: false,
      visible: (position, site, kvHead) =>
        position < prompt.length ? range(0, position) : before[position - prompt.length]!.get(unitOf(site, kvHead))!,
      observe(weights, position, site, head) {
        if (position < from) return;
        const kvHead = Math.floor((head * kvHeads) / heads);
        const sums = mass.get(unitOf(site, kvHead)) ?? new Float64Array(prompt.length + more.length);
        mass.set(unitOf(site, kvHead), sums);
        const seen =
          position < prompt.length ? range(0, position) : before[position - prompt.length]!.get(unitOf(site, kvHead))!;
        seen.forEach((p, i) => (sums[p] = sums[p]! + weights[i]!));
      },
    });
  const logits = pass(prompt.length, 0);
  before.push(keep(mass.keys(), () => range(0, prompt.length)));
  more.forEach((_, i) => {
    const at = prompt.length + i;
    logits.push(pass(at + 1, at).at(-1)!);
    before.push(keep(mass.keys(), (name) => [...before[i]!.get(name)!, at]));
  });
  return { logits, kept: before[0]! };
}

describe.each(GEOMETRIES)('eviction, $name (seed ' + SEED + ')', (g) => {
  const model = modelOf(g, SEED);
  const tokens = promptOf(g, LENGTH, SEED);
  const identity = learnedCodecs(g, 1);

  it('with a budget of the whole length changes nothing', () => {
    const codecs: Codec[] = [{ kind: 'full' }, { kind: 'cla', shareLayers: 2 }, ...learnedCodecs(g, 0.5)];
    for (const codec of codecs) {
      const plain = decodeAll(decoderOf(model, { codec, seed: SEED }), tokens);
      for (const eviction of [streaming(2, LENGTH - 2), h2o(3, LENGTH - 3), budget(LENGTH)]) {
        expect(distance(decodeAll(decoderOf(model, { codec, eviction, seed: SEED }), tokens), plain)).toBeLessThan(
          EXACT,
        );
      }
    }
  });

  it('StreamingLLM is a mask of sinks and window, with positions inside the cache', () => {
    for (const [sink, window] of [
      [2, 4],
      [0, 3],
      [1, 1],
    ] as const) {
      const visible = (n: number): number[] => [
        ...range(0, Math.min(sink, n)),
        ...range(Math.max(sink, n - window), n),
      ];
      const masked = forward(model, tokens, { visible, reindexed: true });
      for (const setup of [
        { codec: { kind: 'full' } as Codec },
        ...identity.map((codec) => ({ codec, matrices: 'identity' as const })),
        { codec: identity[0]!, path: 'fast' as const, matrices: 'identity' as const },
      ]) {
        const decoder = decoderOf(model, { ...setup, eviction: streaming(sink, window), seed: SEED });
        expect(distance(decodeAll(decoder, tokens), masked)).toBeLessThan(EXACT);
        expect(decoder.keptPositions({ block: 'core', layer: 0, loop: 0 }, 0)).toEqual(visible(LENGTH));
      }
    }
  });

  it('keeping original positions instead would be another result', () => {
    const visible = (n: number): number[] => [...range(0, Math.min(2, n)), ...range(Math.max(2, n - 4), n)];
    const kept = forward(model, tokens, { visible, reindexed: false });
    expect(
      distance(
        decodeAll(decoderOf(model, { codec: { kind: 'full' }, eviction: streaming(2, 4), seed: SEED }), tokens),
        kept,
      ),
    ).toBeGreaterThan(1e-6);
  });

  it('a bare budget is a sliding window', () => {
    const masked = forward(model, tokens, { visible: (n) => range(Math.max(0, n - 5), n), reindexed: false });
    expect(
      distance(
        decodeAll(decoderOf(model, { codec: { kind: 'full' }, eviction: budget(5), seed: SEED }), tokens),
        masked,
      ),
    ).toBeLessThan(EXACT);
  });

  const site = ({ block, layer, loop }: Site): string => [block, layer, loop].join();
  const cases: { name: string; codec: Codec; path?: 'fast'; unitOf: UnitOf }[] = [
    {
      name: 'full: each layer, loop and head alone',
      codec: { kind: 'full' },
      unitOf: (s, head) => `${site(s)},${head}`,
    },
    {
      name: 'lla: pooled over loops',
      codec: identity[0]!,
      unitOf: (s, head) => `${site({ ...s, loop: 0 })},${head}`,
    },
    {
      name: 'lla-2d: pooled over loops and heads',
      codec: identity[1]!,
      unitOf: (s, head) => `${site({ ...s, loop: 0 })},${s.block === 'core' ? 0 : head}`,
    },
    {
      name: 'mla-head: pooled over heads',
      codec: identity[2]!,
      unitOf: (s, head) => `${site(s)},${s.block === 'core' ? 0 : head}`,
    },
    {
      name: 'lla on the fast path: full-width rows, each alone',
      codec: identity[0]!,
      path: 'fast',
      unitOf: (s, head) => `${site(s)},${head}`,
    },
  ];
  it.each(cases)('H2O, $name, is a mask of what its mass has dropped', ({ codec, path, unitOf }) => {
    for (const policy of [
      { heavyTokens: 3, recentTokens: 2 },
      { heavyTokens: 1, recentTokens: 1 },
    ]) {
      const { logits, most } = maskedH2o(model, tokens, policy, unitOf);
      expect(most).toBe(policy.heavyTokens + policy.recentTokens);
      const decoder = decoderOf(model, {
        codec,
        ...(path ? { path } : {}),
        eviction: h2o(policy.heavyTokens, policy.recentTokens),
        seed: SEED,
        matrices: 'identity',
      });
      expect(distance(decodeAll(decoder, tokens), logits)).toBeLessThan(EXACT);
    }
  });

  it.each(cases)(
    'a prompt under H2O, $name, attends to itself in full, and then the heaviest and last of it stay',
    ({ codec, path, unitOf }) => {
      const policy = { heavyTokens: 3, recentTokens: 2 };
      const eviction = h2o(policy.heavyTokens, policy.recentTokens);
      const setup = { codec, ...(path ? { path } : {}), eviction, seed: SEED, matrices: 'identity' } as const;
      for (const length of [4, 9]) {
        const [prompt, more] = [tokens.slice(0, length), tokens.slice(length)];
        const { logits, kept } = maskedH2oPrompt(model, prompt, more, policy, unitOf);
        const decoder = decoderOf(model, setup);
        const whole = decoder.prefill(prompt, 'accumulated');
        for (const block of blocksOf(g)) {
          for (const [layer, loop, head] of range(0, block.layers * block.loops * g.kvHeads).map(
            (i) =>
              [
                Math.floor(i / (block.loops * g.kvHeads)),
                Math.floor(i / g.kvHeads) % block.loops,
                i % g.kvHeads,
              ] as const,
          )) {
            const at = { block: block.name, layer, loop };
            expect(decoder.keptPositions(at, head)).toEqual(kept.get(unitOf(at, head)));
          }
        }
        expect(distance([...whole, ...decodeAll(decoder, more)], logits)).toBeLessThan(EXACT);
        // Token by token it is the same within the budget, and another result beyond it.
        const single = distance(decodeAll(decoderOf(model, setup), prompt), whole);
        if (length <= eviction.budgetTokens) expect(single).toBeLessThan(EXACT);
        else expect(single).toBeGreaterThan(1e-6);
      }
    },
  );

  it('H2O on the absorbed path: heads that share a rotary branch lose tokens together, others alone', () => {
    const site = { block: 'core', layer: 0, loop: 0 } as const;
    for (const codec of learnedCodecs(g, 0.5)) {
      for (const perHead of [false, true]) {
        const branch = { ...BRANCH, perHead };
        const decoder = decoderOf(model, { codec, path: 'absorbed', branch, eviction: h2o(4, 2), seed: SEED });
        decodeAll(decoder, tokens);
        const layout = layoutOf(g, codec, 'absorbed', { storage: 'f32', groupSize: 32 }, branch);
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

describe('keptPositions', () => {
  const mass = new Map([
    [0, 5],
    [1, 1],
    [2, 5],
    [3, 0.5],
    [4, 9],
    [5, 0],
  ]);
  const all = [0, 1, 2, 3, 4, 5];

  it('keeps all within the budget', () => {
    for (const policy of [null, streaming(3, 3), h2o(4, 2), budget(6)])
      expect(keptPositions(all, mass, policy)).toEqual(all);
  });

  it('H2O keeps the heaviest of the older and the last; the older of equals stays', () => {
    expect(keptPositions(all, mass, h2o(1, 1))).toEqual([4, 5]);
    expect(keptPositions(all, mass, h2o(2, 2))).toEqual([0, 2, 4, 5]);
    expect(keptPositions(all, mass, h2o(1, 3))).toEqual([0, 3, 4, 5]);
    expect(keptPositions(all, mass, h2o(2, 0))).toEqual([0, 4]);
  });

  it('StreamingLLM keeps sinks and window, either of which may be empty', () => {
    expect(keptPositions(all, mass, streaming(2, 3))).toEqual([0, 1, 3, 4, 5]);
    expect(keptPositions(all, mass, streaming(4, 0))).toEqual([0, 1, 2, 3]);
    expect(keptPositions(all, mass, streaming(0, 2))).toEqual([4, 5]);
  });
});

it('reads every form of a policy, and names them where it cannot', () => {
  for (const form of POLICY_FORMS) {
    const text = form.replaceAll(/[A-Z]+/g, '3');
    expect(parseEviction(text, '--eviction'), text).not.toBeNull();
    expect(() => parseEviction('x', '--eviction')).toThrow(form);
  }
  expect(parseEviction('none', '--eviction')).toBeNull();
});

it('keeps the heaviest tokens and the last ones, in their order', () => {
  const mass = new Map([4, 9, 7, 1, 0, 0].map((of, position) => [position, of]));
  expect(keptPositions([0, 1, 2, 3, 4, 5], mass, h2o(3, 2))).toEqual([0, 1, 2, 4, 5]);
  expect(keptPositions([0, 1, 2, 3, 4, 5], new Map([[3, 1]]), h2o(2, 1))).toEqual([0, 3, 5]);
});
