/** Grids, items, scores, spectra and claims, without a GPU. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { claimsGrid, distilledRow, tryClaims, type DistilUse, type Evidence } from '../../src/fidelity/claims.js';
import { defaultGrid, fullGrid, gridOf, rowId, type Row } from '../../src/fidelity/grid.js';
import type { Judged } from '../../src/fidelity/judge.js';
import { LONG_ROLLOUT, longRollouts, longTextRollouts, taskItems, textItems } from '../../src/fidelity/items.js';
import { divergence, scoreItem, summarise, type ItemScore } from '../../src/fidelity/score.js';
import { logSoftmax } from '../../src/fidelity/forced.js';
import { Side, type Spectra } from '../../src/fit/spectra.js';
import { bootstrapMean } from '../../src/statistics.js';
import { randomFrom } from '../../src/random.js';
import { tinyGeometry } from '../../src/tiny/model.js';
import { findPreset } from '../../src/geometry/presets.js';

const g = tinyGeometry();

describe('grids', () => {
  it('have at most 40 rows by default, each once, with every question in them', () => {
    for (const geometry of [g, findPreset('ouro-1.4b'), findPreset('nanbeige4.2-3b')]) {
      const ids = defaultGrid(geometry).map((row) => rowId(geometry, row));
      expect(ids.length).toBeLessThanOrEqual(40);
      expect(new Set(ids).size).toBe(ids.length);
      for (const part of ['full', 'lla-2d', 'mla-head', 'kv-quant', '/absorbed', 'block-absorbed', 'h2o', 'streaming'])
        expect(ids.some((id) => id.includes(part))).toBe(true);
    }
    expect(defaultGrid(g).filter(({ codec }) => codec.kind === 'lla').length).toBeGreaterThanOrEqual(15);
    expect(fullGrid(g).length).toBeGreaterThan(100);
    expect(gridOf({ kind: 'lla', rankK: 12, rankV: 20 }).map(({ path }) => path)).toContain('absorbed');
    const claims = claimsGrid(g).map((row) => rowId(g, row));
    expect(new Set(claims).size).toBe(claims.length);
  });
});

describe('items', () => {
  it('are the same for a seed, and fit a prompt of two tokens and more', () => {
    const items = taskItems(7);
    expect(taskItems(7)).toEqual(items);
    expect(taskItems(8)).not.toEqual(items);
    for (const { kind, prompt, continuation } of items) {
      expect(prompt.length).toBeGreaterThan(1);
      expect(continuation.length > 0).toBe(kind !== 'rollout');
    }
    const window = Array.from({ length: 100 }, (_, i) => i);
    expect(textItems([window, window.slice(0, 50)]).map(({ kind }) => kind)).toEqual(['text', 'rollout']);
    const long = [...longRollouts(7), ...longTextRollouts([window, window.slice(0, LONG_ROLLOUT + 1)])];
    expect(long.map(({ kind, rolloutTokens }) => [kind, rolloutTokens])).toEqual(
      long.map(() => ['rollout', LONG_ROLLOUT]),
    );
    expect(long.at(-1)?.prompt).toEqual([0, 1, 2, 3]);
    expect(long.length).toBe(33);
  });
});

describe('scores', () => {
  const logits = (random: () => number): Float32Array => Float32Array.from({ length: 9 }, () => 4 * random());

  it('the divergence of log-probabilities is 0 for equal ones and positive for others', () => {
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const random = randomFrom(seed);
        const [p, q] = [logSoftmax(logits(random)), logSoftmax(logits(random))];
        expect(p.reduce((sum, x) => sum + Math.exp(x), 0)).toBeCloseTo(1, 5);
        expect(divergence(p, p)).toBe(0);
        let expected = 0;
        p.forEach((x, i) => (expected += Math.exp(x) * (x - (q[i] as number))));
        expect(divergence(p, q)).toBeCloseTo(expected, 6);
        expect(expected).toBeGreaterThan(-1e-6);
      }),
      { numRuns: 50 },
    );
  });

  it('an answer is exact when each token is predicted after those before', () => {
    const one = (token: number): Float32Array =>
      logSoftmax(Float32Array.from({ length: 4 }, (_, i) => (i === token ? 9 : 0)));
    const item = { kind: 'passkey', prompt: [0, 1], continuation: [2, 3, 1], depth: 0.5 } as const;
    const teacher = [one(2), one(3), one(1)];
    expect(scoreItem(item, teacher, teacher)).toMatchObject({ agreed: 3, exact: 1, kl: 0, top1: 1 });
    expect(scoreItem(item, teacher, [one(2), one(0), one(1)])).toMatchObject({ agreed: 1, exact: 0, top1: 2 / 3 });
    const all = summarise([scoreItem(item, teacher, teacher), scoreItem(item, teacher, [one(0), one(0), one(0)])]);
    expect(all.passkeyCells).toEqual([{ context: 2, depth: 0.5, count: 2, score: 0.5 }]);
    expect([all.passkey?.estimate, all.kl, all.recall]).toEqual([0.5, null, null]);
  });

  it('a bootstrap interval holds the mean, and about 95 % of them the true one', () => {
    let inside = 0;
    for (let seed = 0; seed < 200; seed++) {
      const random = randomFrom(seed);
      const { estimate, low, high } = bootstrapMean(Array.from({ length: 40 }, random), seed);
      expect(low <= estimate && estimate <= high).toBe(true);
      if (low <= 0.5 && 0.5 <= high) inside++;
    }
    expect(inside).toBeGreaterThan(176);
    expect(inside).toBeLessThan(200);
  });
});

describe('spectra', () => {
  it('find one direction where loops move along one, and all where they are independent', () => {
    const small = { ...g, layers: 3, loops: 4, kvHeads: 3, headDim: 5 };
    const random = randomFrom(5);
    const made = (value: (loop: number, own: number, slope: number) => number): Float64Array[][][][] => {
      const own = Array.from({ length: 3 * 3 * 5 * 8 }, random);
      const slope = Array.from({ length: 3 * 3 * 5 * 8 }, random);
      return Array.from({ length: 3 }, (_, layer) =>
        Array.from({ length: 4 }, (_, loop) =>
          Array.from({ length: 3 }, (_, head) =>
            Array.from({ length: 5 }, (_, i) =>
              Float64Array.from({ length: 8 }, (_, token) => {
                const at = ((layer * 3 + head) * 5 + i) * 8 + token;
                return value(loop, own[at] as number, slope[at] as number);
              }),
            ),
          ),
        ),
      );
    };
    const loopOf = (all: Float64Array[][][][]): { first: number; rank: number } => {
      const side = new Side('key', small);
      side.add(all, 8);
      const { axes } = side.done([[1, 1]], [new Float64Array(20)], 8);
      const loop = axes.find(({ axis }) => axis === 'loop');
      expect(loop?.shares.reduce((sum, v) => sum + v, 0)).toBeCloseTo(1, 9);
      return { first: loop?.shares[0] as number, rank: loop?.effectiveRank as number };
    };
    const line = loopOf(made((loop, own, slope) => own + loop * slope));
    expect(line.first).toBeCloseTo(1, 9);
    expect(line.rank).toBeCloseTo(0.25, 6);
    const free = loopOf(made(() => random() - 0.5));
    expect(free.first).toBeLessThan(0.8);
    expect(free.rank).toBeGreaterThan(0.4);
  });
});

describe('claims', () => {
  /** Rows whose divergence is as given, on 12 texts. */
  const evidence = (klOf: (row: Row) => number, rank: number, trained?: (use: DistilUse) => number): Evidence => {
    const axis = (name: 'loop' | 'head', effectiveRank: number) =>
      ({ axis: name, places: 4, shares: [1, 0, 0, 0], effectiveRank }) as const;
    const side = { axes: [axis('loop', rank), axis('head', 0.7)] };
    const judged = (row: Row, mean: number): Judged => {
      const items = Array.from({ length: 12 }, (_, i): ItemScore => {
        const kl = mean * (1 + 0.1 * Math.sin(i));
        return {
          kind: i < 8 ? 'text' : 'rollout',
          context: 64,
          scored: i < 10 ? 24 : LONG_ROLLOUT,
          kl,
          top1: 1,
          loss: 1,
          agreed: 10 - kl,
          exact: 0,
        };
      });
      return { id: rowId(g, row), items, passkeyCells: [] } as unknown as Judged;
    };
    const after = (use: DistilUse): Judged => judged(distilledRow(g, use), trained?.(use) ?? 0);
    return {
      rows: claimsGrid(g).map((row) => judged(row, klOf(row))),
      distilled: trained ? { rope: after('rope'), 'on-policy': after('on-policy'), absorbed: after('absorbed') } : null,
      spectra: { tokens: 8, key: side, value: side } as unknown as Spectra,
    };
  };
  const verdicts = (
    klOf: (row: Row) => number,
    rank = 0.3,
    trained?: (use: DistilUse) => number,
  ): Record<string, string> => {
    const own = evidence(klOf, rank, trained);
    return Object.fromEntries(tryClaims(g, own, own).map((r) => [r.claim, r.verdict]));
  };

  it('are agreed with, disagreed with, and left open, by the sign of the effect', () => {
    const worseElsewhere = verdicts(({ codec, initialisation }) =>
      codec.kind !== 'lla' || initialisation !== 'svd' ? 1 : 0.1,
    );
    const better = Object.entries(worseElsewhere).filter(([claim]) => claim.startsWith('LLA is better than'));
    expect(better.map(([, verdict]) => verdict)).toEqual(['agree', 'agree', 'agree']);
    expect(worseElsewhere['SVD initialisation is far better than random']).toBe('agree');
    expect(worseElsewhere['the loop axis has a lower effective rank than the head and layer axes']).toBe('agree');
    const betterElsewhere = verdicts(({ codec }) => (codec.kind === 'lla' ? 1 : 0.1), 0.9);
    expect(betterElsewhere['LLA is better than mla-head at one budget (4×)']).toBe('disagree');
    expect(betterElsewhere['the loop axis has a lower effective rank than the head and layer axes']).toBe('disagree');
    // Equal scores tell nothing, and what needs training is left open.
    expect(worseElsewhere['r_k < r_v is better than equal ranks at one budget']).toBe('cannot tell');
    for (const verdict of [worseElsewhere, betterElsewhere]) {
      expect(verdict['on-policy training helps long rollouts']).toBe('cannot tell');
      expect(verdict['post-hoc absorbed loses what block-absorbed keeps']).toBe('cannot tell');
      expect(verdict['distillation closes most of the gap that a fit leaves']).toBe('cannot tell');
    }
  });

  it('tell what training closes, and what a trained branch loses', () => {
    const told = (trained: (use: DistilUse) => number): (string | undefined)[] => {
      const found = verdicts(() => 1, 0.3, trained);
      return ['distillation closes most', 'post-hoc absorbed loses'].map(
        (begin) => Object.entries(found).find(([claim]) => claim.startsWith(begin))?.[1],
      );
    };
    expect(told((use) => (use === 'rope' ? 0.2 : 1.5))).toEqual(['agree', 'agree']);
    expect(told((use) => (use === 'rope' ? 0.8 : 0.5))).toEqual(['disagree', 'disagree']);
    expect(told((use) => (use === 'rope' ? 0.5 : 1))).toEqual(['cannot tell', 'cannot tell']);
  });

  it('tell by long rollouts whether on-policy training helps', () => {
    const told = (onPolicy: number): string | undefined =>
      verdicts(
        () => 1,
        0.3,
        (use) => (use === 'on-policy' ? onPolicy : 1),
      )['on-policy training helps long rollouts'];
    // Rollouts of this evidence follow 10 − KL tokens.
    expect([0.5, 2, 1].map(told)).toEqual(['agree', 'disagree', 'cannot tell']);
  });
});
