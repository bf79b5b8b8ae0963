/** The rule by which claims are judged, and every claim, on made-up numbers. */
import { describe, expect, it } from 'vitest';
import { claimsText } from '../../src/fidelity/claims-text.js';
import {
  askedOf,
  judged,
  meanEffect,
  needId,
  needsOf,
  tryClaims,
  verdictOf,
  type ClaimResult,
  type Effect,
  type Evidence,
  type Need,
} from '../../src/fidelity/claims/claim.js';
import { klRatio } from '../../src/fidelity/claims/effects.js';
import { paperClaims } from '../../src/fidelity/claims/list.js';
import type { Verdict } from '../../src/schema/claim-words.js';
import { LONG_ROLLOUT } from '../../src/fidelity/items.js';
import type { ItemScore } from '../../src/fidelity/score.js';
import type { SideStructure } from '../../src/fit/spectra.js';
import { findPreset } from '../../src/geometry/presets.js';
import { randomFrom } from '../../src/numbers/random.js';
import { bootstrap, bootstrapMean } from '../../src/numbers/statistics.js';
import { tinyGeometry } from '../../src/tiny/model.js';
import { SEED } from '../gpu/random.js';

const g = tinyGeometry();
const random = randomFrom(SEED);

/** So much on each of some texts, more or less. */
const draws = (value: number, spread: number, texts = 12): number[] =>
  Array.from({ length: texts }, () => value + spread * (random() - 0.5));
const around = (value: number, spread = 0.1, texts = 12): Effect => meanEffect(draws(value, spread, texts));

describe(`the verdict (seed ${SEED})`, () => {
  const CASES: readonly (readonly [own: number, twin: number, Verdict])[] = [
    [1, 0, 'agrees'],
    [1, 0.5, 'agrees'],
    [1, -1, 'agrees'],
    // The twin shows it as well, or more.
    [1, 1, 'not shown by this'],
    [0.267, 0.338, 'not shown by this'],
    [1, 2, 'not shown by this'],
    // A counter-example, whatever the twin shows.
    [-1, 0, 'contradicts'],
    [-1, -1, 'contradicts'],
    [-1, -2, 'contradicts'],
    [0, -1, 'not decided'],
    [0, 1, 'not decided'],
  ];
  it.each(CASES)('of %d beside %d is: %s', (own, twin, verdict) => {
    // Of nothing, half the texts say more and half less.
    const values = own === 0 ? Array.from({ length: 12 }, (_, i) => (i < 6 ? 0.2 : -0.2)) : draws(own, 0.05);
    // A twin of the same effect has more on half of the texts, and less by as much on the others.
    const other = own === twin ? values.map((v, i) => v + (i % 2 === 0 ? 0.02 : -0.02)) : draws(twin, 0.05);
    expect(judged(meanEffect(values), meanEffect(other)).verdict).toBe(verdict);
  });

  it('wants the effect to exceed the twin by more than their joint interval', () => {
    // 0.2 above the twin in the mean, but as often as not below it.
    const noisy = (mean: number): Effect =>
      meanEffect(Array.from({ length: 12 }, (_, i) => mean + 3 * Math.sin(7 * i)));
    const steady = around(5, 0.01);
    expect(judged(noisy(5.2), steady)).toMatchObject({ verdict: 'not shown by this' });
    expect(judged(noisy(8.5), steady)).toMatchObject({ verdict: 'agrees' });
    // Texts are resampled together: what both share on a text does not widen the joint interval.
    expect(judged(noisy(5.2), noisy(5)).verdict).toBe('agrees');
    const { beyond } = judged(noisy(5.2), noisy(5));
    expect(beyond?.low).toBeCloseTo(0.2, 9);
    expect(beyond?.high).toBeCloseTo(0.2, 9);
  });

  it('is not decided without texts, or without a twin, and other texts are refused', () => {
    expect(judged(null, around(0))).toMatchObject({ verdict: 'not decided', estimate: null, beyond: null });
    expect(judged(meanEffect([]), meanEffect([])).verdict).toBe('not decided');
    expect(judged(around(1), null)).toMatchObject({ verdict: 'not decided', control: null });
    expect(judged(around(-1), null).verdict).toBe('contradicts');
    expect(() => judged(around(1, 0.1, 3), around(0, 0.1, 4))).toThrow(/3 texts of the model, 4 of its twin/);
    const ends = (low: number, high: number) => ({ estimate: (low + high) / 2, low, high });
    // An interval that touches zero decides nothing, nor does a joint one show anything.
    expect(verdictOf(ends(0, 2), ends(1, 2))).toBe('not decided');
    expect(verdictOf(ends(-2, 0), null)).toBe('not decided');
    expect(verdictOf(ends(1, 2), ends(0, 2))).toBe('not shown by this');
  });

  it('of a ratio of divergences does not depend on their size', () => {
    const [a, b] = [1, 2].map(() => Array.from({ length: 12 }, () => 0.01 + random())) as [number[], number[]];
    const small = [a, b].map((kls) => kls.map((kl) => kl / 50)) as [number[], number[]];
    const [large, little] = [klRatio(a, b), klRatio(...small)].map((e) => bootstrap(e.over, 12, 1));
    for (const end of ['estimate', 'low', 'high'] as const)
      expect(little?.[end]).toBeCloseTo(large?.[end] as number, 9);
    const sum = (kls: number[]): number => kls.reduce((x, y) => x + y, 0);
    expect(large?.estimate).toBeCloseTo(Math.log10(sum(a) / sum(b)), 9);
    // Rounding alone is no effect.
    expect(klRatio([0, 0], [1e-12, 1e-12]).over([0, 1])).toBe(0);
  });

  it('has bootstrap intervals of any statistic, of which the mean is one', () => {
    const values = Array.from({ length: 9 }, random);
    const largest = bootstrap((items) => Math.max(...items.map((i) => values[i] as number)), 9, 3);
    expect(largest.estimate).toBe(Math.max(...values));
    expect(largest.low).toBeLessThan(largest.estimate);
    expect(largest.high).toBe(largest.estimate);
    const mean = bootstrap((items) => items.reduce((sum, i) => sum + (values[i] as number), 0) / items.length, 9, 3);
    expect(bootstrapMean(values, 3)).toEqual(mean);
  });
});

describe(`claims (seed ${SEED})`, () => {
  const claims = paperClaims(g);
  const needs = needsOf(g, claims);

  /** What is made up of a model: divergence, tokens followed and whether a passkey is found, of each configuration. */
  interface Made {
    readonly kl?: (need: Need) => number;
    readonly follows?: (need: Need) => number;
    readonly finds?: (need: Need, context: number) => boolean;
    readonly loopRank?: number;
    readonly alongLoops?: readonly [key: number, value: number];
    readonly settled?: readonly [key: number, value: number];
  }
  const evidence = ({
    kl = () => 1,
    follows = () => 10,
    finds = () => false,
    loopRank = 0.7,
    alongLoops = [0.2, 0.2],
    settled = [0.5, 0.5],
  }: Made): Evidence => {
    const scoresOf = (need: Need): ItemScore[] => {
      const score = (kind: ItemScore['kind'], i: number, context: number, scored: number): ItemScore => ({
        ...{ kind, context, scored, top1: 1, loss: 1 },
        kl: kl(need) * (1 + 0.1 * Math.sin(i)),
        agreed: follows(need) + Math.sin(i),
        exact: kind === 'passkey' && finds(need, context) ? 1 : 0,
      });
      return need.asked.flatMap((asked) => {
        if (asked === 'long rollout') return Array.from({ length: 8 }, (_, i) => score('rollout', i, 64, LONG_ROLLOUT));
        if (asked === 'passkey')
          return Array.from({ length: 18 }, (_, i) => score(asked, i, [64, 128, 256][i % 3]!, 5));
        return Array.from({ length: 12 }, (_, i) => score(asked, i, 64, 24));
      });
    };
    const axis = (name: 'loop' | 'head', effectiveRank: number) =>
      ({ axis: name, places: 4, shares: [1, 0, 0, 0], effectiveRank }) as const;
    const sideOf = (i: 0 | 1, text: number): SideStructure => ({
      side: i === 0 ? 'key' : 'value',
      axes: [axis('loop', loopRank + 0.001 * Math.sin(text)), axis('head', 0.7)],
      varianceAlongLoops: alongLoops[i] + 0.001 * Math.sin(text + i),
      change: [],
      cosineToLast: [settled[i] + 0.001 * Math.cos(text + i), 1],
    });
    return {
      scores: new Map(needs.map((need) => [needId(g, need), scoresOf(need)])),
      structure: Array.from({ length: 12 }, (_, text) => ({ key: sideOf(0, text), value: sideOf(1, text) })),
    };
  };
  /** @param begins of the claims that are tried */
  const tried = (model: Made, twin: Made = {}, begins = ''): ClaimResult[] => {
    const own = claims.filter(({ claim }) => claim.startsWith(begins));
    return tryClaims(g, own, evidence(model), evidence(twin));
  };
  const verdictsOf = (model: Made, twin?: Made): Record<string, Verdict> =>
    Object.fromEntries(tried(model, twin).map((r) => [r.claim, r.verdict]));
  const verdictOn = (claim: string, model: Made, twin?: Made): Verdict | undefined =>
    tried(model, twin, claim)[0]?.verdict;

  it('need each configuration once, with all that it is asked, and no other', () => {
    const ids = needs.map((need) => needId(g, need));
    expect(new Set(ids).size).toBe(ids.length);
    const plain = needs.find(
      ({ row, training }) => !training && needId(g, { row, training, asked: [] }) === 'lla-4x(12,20)/reconstruct/f16',
    );
    expect(new Set(plain?.asked)).toEqual(new Set(['text', 'rollout', 'passkey', 'recall']));
    expect(needs.filter(({ training }) => training).length).toBe(5);
    expect([askedOf({ kind: 'rollout' }), askedOf({ kind: 'rollout', rolloutTokens: LONG_ROLLOUT })]).toEqual([
      'rollout',
      'long rollout',
    ]);
    // Names are told apart, and every claim has a source.
    expect(new Set(claims.map(({ claim }) => claim)).size).toBe(claims.length);
    for (const { paper } of claims) expect(paper).toMatch(/\((Table|Sec\.|Fig\.) /);
    for (const preset of ['ouro-1.4b', 'huginn-3.5b']) {
      const other = findPreset(preset);
      const all = needsOf(other, paperClaims(other)).map((need) => needId(other, need));
      expect(new Set(all).size).toBe(all.length);
    }
  });

  it('of equal configurations decide nothing', () => {
    const found = verdictsOf({});
    const decided = Object.entries(found).filter(([, verdict]) => verdict !== 'not decided');
    // Training that removes nothing contradicts that it removes most; both apart cost twice what both together do.
    expect(decided.map(([claim, verdict]) => [claim.slice(0, 12), verdict])).toEqual([
      ['eviction com', 'not shown by this'],
      ['distillation', 'contradicts'],
    ]);
  });

  it('are judged by configuration: better, worse, and as the twin', () => {
    const kl = ({ row: { codec, initialisation } }: Need): number =>
      initialisation === 'svd' && codec.kind === 'lla' && codec.rankK !== codec.rankV ? 0.1 : 1;
    const better = verdictsOf({ kl });
    const same = verdictsOf({ kl }, { kl: (need) => kl(need) / 40 });
    const worse = verdictsOf({ kl: (need) => 1 / kl(need) });
    const verdicts = ['agrees', 'not shown by this', 'contradicts'];
    for (const claim of [
      'SVD initialisation is far better than random',
      "directions of all loops are better than the first loop's",
      'r_k < r_v is better than equal ranks at one budget',
      'LLA is better than mla-head at one budget (4×)',
      'LLA is better than cla at one budget (2×)',
      'LLA is better than kv-quant at one budget (4×)',
      'LLA is better than lla-2d at one budget (5.33×)',
    ])
      expect([better[claim], same[claim], worse[claim]], claim).toEqual(verdicts);
    const extreme = 'LLA-2D is better than LLA at extreme compression (21.33×), teacher-forced';
    expect([better[extreme], worse[extreme]]).toEqual(['contradicts', 'agrees']);
  });

  it('about keys and values are judged by text', () => {
    const of = verdictOn;
    const axis = 'the loop axis has a lower effective rank than the head and layer axes';
    expect(of(axis, { loopRank: 0.4 })).toBe('agrees');
    expect(of(axis, { loopRank: 0.4 }, { loopRank: 0.36 })).toBe('not shown by this');
    expect(of(axis, { loopRank: 0.75 })).toBe('contradicts');
    const more = 'V carries more variance along the loops than K';
    expect(of(more, { alongLoops: [0.06, 0.17] })).toBe('agrees');
    expect(of(more, { alongLoops: [0.3, 0.22] })).toBe('contradicts');
    expect(of(more, { alongLoops: [0.06, 0.17] }, { alongLoops: [0.06, 0.17] })).toBe('not shown by this');
    const slower = 'V moves slower to the last loop than K';
    expect(of(slower, { settled: [0.6, 0.5] })).toBe('agrees');
    expect(of(slower, { settled: [0.5, 0.6] })).toBe('contradicts');
    const found = tried({ alongLoops: [0.3, 0.22] }).find(({ claim }) => claim === more);
    expect(found).toMatchObject({
      paper: 'V 17 %, K 6 % (Sec. structure)',
      note: 'here V 22 %, K 30 %; untrained V 20 %, K 20 %',
    });
  });

  it('about trainings are judged by what was trained', () => {
    const trainedKl =
      (value: (training: NonNullable<Need['training']>, need: Need) => number) =>
      (need: Need): number =>
        need.training ? value(need.training, need) : 1;
    const of = verdictOn;
    const closes = (kl: number, twin = 1): Verdict | undefined =>
      of('distillation closes', { kl: trainedKl(() => kl) }, { kl: trainedKl(() => twin) });
    expect([closes(0.2), closes(0.8), closes(0.2, 0.1)]).toEqual(['agrees', 'contradicts', 'not shown by this']);
    const matching = (alone: number): Verdict | undefined =>
      of('attention-output matching', { kl: trainedKl(({ lambdaAttn }) => (lambdaAttn === 0 ? alone : 0.5)) });
    expect([matching(0.7), matching(0.5), matching(0.3)]).toEqual(['agrees', 'not decided', 'contradicts']);
    const branch = (narrow: number): Verdict | undefined =>
      of('a narrower rotary branch', { kl: trainedKl((_, { row }) => (row.branch?.width === 4 ? narrow : 0.5)) });
    expect([branch(0.7), branch(0.3)]).toEqual(['agrees', 'contradicts']);
    const absorbed = (kl: number): Verdict | undefined => of('post-hoc absorbed', { kl: trainedKl(() => kl) });
    expect([absorbed(2), absorbed(0.5)]).toEqual(['agrees', 'contradicts']);
    const onPolicy = (tokens: number): Verdict | undefined =>
      of('on-policy training', { follows: ({ training }) => (training?.onPolicy ? tokens : 10) });
    expect([onPolicy(12), onPolicy(10), onPolicy(8)]).toEqual(['agrees', 'not decided', 'contradicts']);
  });

  it('about rollouts, eviction and retrieval are judged by their items', () => {
    const of = (claim: string, model: Made, twin?: Made): ClaimResult => tried(model, twin, claim)[0] as ClaimResult;
    const follows = ({ row }: Need): number => (row.codec.kind === 'final-loop' ? 2 : 20);
    expect(of('final-loop', { follows }).verdict).toBe('agrees');
    expect(of('final-loop', { follows }).note).toContain('here 20.0 against 2.0');
    expect(of('final-loop', { follows }, { follows }).verdict).toBe('not shown by this');
    const together = (kl: number): Verdict =>
      of('eviction composes', { kl: ({ row }) => (row.eviction && row.codec.kind === 'lla' ? kl : 1) }).verdict;
    // Apart they cost 2; the twin's rows cost 1 together as well.
    expect([together(0.5), together(1), together(4)]).toEqual(['agrees', 'not shown by this', 'contradicts']);
    const finds = ({ row }: Need, context: number): boolean =>
      context <= (row.codec.kind === 'full' ? 256 : (row.codec.rankK ?? 0) > 10 ? 128 : 0);
    const retrieval = of('reliable retrieval', { finds });
    expect(retrieval).toMatchObject({ verdict: 'agrees', estimate: { estimate: 256 } });
    expect(retrieval.note).toContain('here 256, 128, 128, 0, 0, 0, the full cache first');
    expect(of('reliable retrieval', {}).verdict).toBe('not decided');
  });

  it('that were not measured are not decided, with the reason', () => {
    const full = evidence({});
    const without = { ...full, scores: new Map([...full.scores].filter(([id]) => !id.includes('trained with'))) };
    const found = tryClaims(g, claims, without, without);
    const training = found.filter(({ note }) => note === "training is for small models of Ouro's layers");
    expect(training.map(({ verdict, estimate }) => [verdict, estimate])).toEqual(Array(5).fill(['not decided', null]));
    const single = { ...g, loops: 1 };
    const missing = tryClaims(single, paperClaims(single), { scores: new Map(), structure: [] }, full);
    expect(missing.map(({ verdict }) => verdict)).toEqual(missing.map(() => 'not decided'));
    expect(missing.some(({ note }) => note === 'this model does not have one of the codecs at this ratio')).toBe(true);
  });

  it('are told with effect, twin, joint interval, the paper and how long was trained', () => {
    const text = claimsText('mine', { steps: 7, stepTokens: 96 }, tried({ loopRank: 0.4 }, { loopRank: 0.36 }));
    expect(text).toContain('Trained for 7 steps of 96 tokens each');
    expect(text).toMatch(
      new RegExp(
        String.raw`NOT SHOWN BY THIS: the loop axis .*\n {4}effective rank .*:\n {4}0\.300 \(.*\)` +
          String.raw`; untrained 0\.340 \(.*\); beyond it -0\.0400 \(.*\)\n {4}paper: loop 0\.61–0\.63`,
      ),
    );
    expect(text).toMatch(/not shown by this +\d/);
    expect(claimsText('mine', null, [])).not.toContain('Trained');
  });
});
