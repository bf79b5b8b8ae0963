/** Grids, items, scores and spectra, without a GPU. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { defaultGrid, fullGrid, gridOf, rowId } from '../../src/fidelity/grid.js';
import { LONG_ROLLOUT, longRollouts, longTextRollouts, taskItems, textItems } from '../../src/fidelity/items.js';
import { divergence, scoreItem, summarise } from '../../src/fidelity/score.js';
import type { Codec } from '../../src/codecs/codec.js';
import { FLASHLOOP } from '../../src/codecs/flashloop.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { tensorsOf } from '../../src/fit/capture.js';
import { configuration } from '../contract/geometries.js';
import { logSoftmax, predict } from '../../src/fidelity/forced.js';
import { spectraText } from '../../src/fidelity/spectra-report.js';
import { Side } from '../../src/fit/spectra.js';
import { bootstrapMean } from '../../src/numbers/statistics.js';
import { randomFrom } from '../../src/numbers/random.js';
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
    expect(defaultGrid(g).filter(({ codec }) => codec.kind === 'flashloop')).toHaveLength(2);
    expect(defaultGrid(g).filter(({ codec }) => codec.kind === 'lla').length).toBeGreaterThanOrEqual(15);
    // Hours of float64 are not asked of a large model.
    for (const grid of [defaultGrid, fullGrid])
      expect(grid(findPreset('ouro-1.4b')).some(({ codec }) => codec.kind === 'flashloop')).toBe(false);
    expect(fullGrid(g).length).toBeGreaterThan(100);
    const idsOf = (codec: Codec): string[] => gridOf(codec).map((row) => rowId(g, row));
    expect(idsOf({ kind: 'flashloop', tokens: 'prompt' })).toEqual(['full/full/f16', 'flashloop-prompt/full/f16']);
    expect(idsOf({ kind: 'hla', rankK: 48, rankV: 48, rankFirst: 16, windowTokens: 128 })).toEqual([
      'full/full/f16',
      'hla-4x(48,48,16)/rotated/f16',
      'hla-4x(48,48,16)/rotated/q8',
      'hla-4x-w0(48,48,16)/rotated/f16',
      'hla-4x-w16(48,48,16)/rotated/f16',
    ]);
    expect(gridOf({ kind: 'lla', rankK: 12, rankV: 20 }).map(({ path }) => path)).toContain('absorbed');
  });
});

it('what has no kernels is decoded in float64: with all tokens and nothing packed, as the model itself', async () => {
  const constants = { ...FLASHLOOP, rows: [1, 1, 1, 1], keys: 1 };
  const c = configuration({ geometry: g, codec: { kind: 'flashloop', tokens: 'prompt', constants }, path: 'full' });
  const [seed, prompt, continuation] = [3, [5, 6, 7, 8], [9, 10]];
  const weights = { storage: 'f32', seed } as const;
  const teacher = { device: undefined as never, geometry: g, normEpsilon: 1e-6, weights };
  const [own] = await predict(teacher, c, undefined, [{ kind: 'text', prompt, continuation }]);
  const exact = forward(loadModel(g, tensorsOf(teacher)), [...prompt, ...continuation]).slice(3, 5);
  own!.forEach((p, i) => expect(divergence(logSoftmax(Float32Array.from(exact[i]!)), p)).toBeLessThan(1e-6));
  expect(own).toHaveLength(2);
  expect(divergence(own![0]!, own![1]!)).toBeGreaterThan(1e-6);
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
  it('are printed with the rank that an axis can have at most', () => {
    const axes = (['loop', 'head', 'layer'] as const).map((axis, i) => {
      return { axis, places: i + 3, effectiveRank: 1 + i, shares: [0.5] };
    });
    const none = { change: [], cosineToLast: [], energyAtRank: [] };
    const side = { axes, varianceAlongLoops: 0.1, ...none, stackedEffectiveRank: 1 };
    const studied = { tokens: 1, stacks: { studied: 1, all: 1 }, key: side, value: side, lensAgreement: [] };
    type Spectra = Parameters<typeof spectraText>[0];
    const text = spectraText({ model: { name: 'm' }, trained: studied, untrained: studied } as unknown as Spectra);
    for (const { axis, places, effectiveRank } of axes)
      for (const letter of ['K', 'V']) {
        const line = `${letter} ${axis} axis: effective rank of ${places} .*${effectiveRank.toFixed(2)}`;
        expect(text).toMatch(new RegExp(line));
      }
  });

  it('find one direction where loops move along one, and all where they are independent', () => {
    const small = { ...g, layers: 3, loops: 4, kvHeads: 3, headDim: 5 };
    const random = randomFrom(5);
    const times = <T>(length: number, of: (i: number) => T): T[] => Array.from({ length }, (_, i) => of(i));
    const made = (value: (loop: number, own: number, slope: number) => number): Float64Array[][][][] => {
      const [own, slope] = [times(3 * 3 * 5 * 8, random), times(3 * 3 * 5 * 8, random)];
      const at = (layer: number, loop: number, head: number, i: number) => (_: unknown, token: number) => {
        const place = ((layer * 3 + head) * 5 + i) * 8 + token;
        return value(loop, own[place] as number, slope[place] as number);
      };
      const component = (...of: [number, number, number, number]) => Float64Array.from({ length: 8 }, at(...of));
      return times(3, (layer) =>
        times(4, (loop) => times(3, (head) => times(5, (i) => component(layer, loop, head, i)))),
      );
    };
    const loopOf = (all: Float64Array[][][][]): { first: number; rank: number } => {
      const side = new Side('key', small);
      side.add(all, 8);
      const { axes } = side.structure();
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

  it('find the share of the variance along the loops, around one mean for all of them', () => {
    const small = { ...g, layers: 1, loops: 3, kvHeads: 2, headDim: 2 };
    fc.assert(
      fc.property(fc.integer(), (seed) => {
        const random = randomFrom(seed);
        const side = new Side('value', small);
        let [between, total] = [0, 0];
        for (const head of ['0 0', '0 1']) {
          const draw = (tokens: number, loop: number) => Float64Array.from({ length: tokens }, () => loop + random());
          const parts = [4, 3].map((tokens) => [0, 1, 2].map((loop) => [draw(tokens, loop), draw(tokens, loop)]));
          for (const own of parts) side.addVariance(head, own, own[0]?.[0]?.length as number);
          for (const i of [0, 1]) {
            const rows = [0, 1, 2].map((loop) => parts.flatMap((own) => [...(own[loop]?.[i] as Float64Array)]));
            const all = rows.flat();
            const mean = all.reduce((a, b) => a + b, 0) / all.length;
            total += all.reduce((sum, x) => sum + (x - mean) ** 2, 0);
            for (let token = 0; token < 7; token++) {
              const own = rows.map((row) => row[token] as number);
              const centre = own.reduce((a, b) => a + b, 0) / own.length;
              between += own.reduce((sum, x) => sum + (x - centre) ** 2, 0);
            }
          }
        }
        expect(side.structure().varianceAlongLoops).toBeCloseTo(between / total, 9);
      }),
      { numRuns: 20 },
    );
  });
});
