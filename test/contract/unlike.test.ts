/** Models whose loops keep unlike rows: bytes, schedule and refusals, on the presets and on small random ones. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CODEC_KINDS, type Codec } from '../../src/codecs/codec.js';
import { bytesPerToken } from '../../src/codecs/layout.js';
import { CODECS, fullScalars, layoutOf, refusalOf } from '../../src/codecs/registry.js';
import { memoryModel, weightBytes } from '../../src/cost/memory.js';
import { parameterCount, type Geometry } from '../../src/geometry/geometry.js';
import { findPreset, PRESETS } from '../../src/geometry/presets.js';
import { listCandidates } from '../../src/plan/ask/candidates.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule } from '../../src/schedule/schedule.js';
import { configuration, F16, NO_BRANCH, smallGeometry } from './geometries.js';

const UNLIKE = PRESETS.filter((g) => g.laterLoopsWindow ?? g.valuesAreKeys ?? g.stacks);
const FULL: Codec = { kind: 'full' };
const ALL = { kinds: null, ratios: null, ranks: null, paths: null, evictions: [null] } as const;

/** A small model with loops and one or several of what makes rows unlike. */
const unlike: fc.Arbitrary<Geometry> = fc
  .record({
    g: smallGeometry,
    window: fc.option(fc.integer({ min: 1, max: 200 }), { nil: undefined }),
    keys: fc.boolean(),
    runs: fc.option(fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 3 })), { nil: undefined }),
    rank: fc.option(fc.integer({ min: 1, max: 64 }), { nil: undefined }),
    gate: fc.boolean(),
    inRow: fc.boolean(),
  })
  .map(({ g, window, keys, runs, rank, gate, inRow }): Geometry => ({
    ...g,
    ...(window !== undefined && g.loops > 1 ? { laterLoopsWindow: window } : {}),
    ...(keys ? { valuesAreKeys: true as const } : {}),
    ...(runs
      ? { stacks: runs.map((r) => ({ layers: g.layers, runs: r })), layers: g.layers * (runs[0] + runs[1]) }
      : {}),
    ...(rank === undefined ? {} : { embeddingRank: rank }),
    ...(gate ? { attentionGate: true as const } : {}),
    ...(inRow ? { loopsInRow: true as const } : {}),
  }));

/** How often operations with a label run in a step, and the sum of a field over them. */
function counted(g: Geometry, context = 1000) {
  const c = configuration({ geometry: g });
  const calls = new Map<string, number>();
  let weights = 0;
  forEachOp(c, schedule(c, 1, context), ({ label, kernel, shape }, times) => {
    calls.set(label, (calls.get(label) ?? 0) + times);
    if (kernel === 'matmul' && label !== 'loop-gate')
      weights += times * (shape.groups as number) * (shape.k as number) * (shape.n as number);
  });
  return { of: (label: string) => calls.get(label) ?? 0, weights };
}

describe('rows that unlike loops keep', () => {
  it('are the first loop’s for all tokens, later ones’ for their window, and keys alone where values are keys', () => {
    fc.assert(
      fc.property(unlike, fc.integer({ min: 1, max: 4096 }), (g, tokens) => {
        const layout = layoutOf(g, FULL, 'full', F16, NO_BRANCH);
        const rows = g.valuesAreKeys ? 1 : 2;
        const row = rows * g.kvHeads * g.headDim * 2;
        const growing = g.preludeLayers + g.codaLayers + g.layers * (g.laterLoopsWindow ? 1 : g.loops);
        expect(bytesPerToken(layout)).toBe(growing * row);
        expect(2 * fullScalars(g)).toBe(growing * row);
        const { kvBytesPerSequence } = memoryModel(configuration({ geometry: g }), tokens, 32);
        const paged = 32 * Math.ceil(tokens / 32);
        const windowed = g.laterLoopsWindow
          ? g.layers * (g.loops - 1) * Math.min(paged, 32 * Math.ceil(g.laterLoopsWindow / 32))
          : 0;
        expect(kvBytesPerSequence).toBe(row * (growing * paged + windowed));
      }),
    );
  });

  it.each(UNLIKE)('$name goes with codecs that store its rows one by one, and says why not with others', (g) => {
    const { candidates, refused } = listCandidates(g, ALL);
    expect(new Set(candidates.map(({ codec }) => codec.kind))).toEqual(new Set(['full', 'kv-quant']));
    expect(refused.length).toBeGreaterThan(4);
    for (const { reason } of refused) expect(reason).toMatch(/defined for loops that all keep keys and values/);
  });

  it('are no reason to refuse anything where they are alike', () => {
    for (const g of PRESETS.filter((p) => !UNLIKE.includes(p) && !p.loopsInRow))
      for (const kind of CODEC_KINDS)
        for (const ratio of CODECS[kind].publishedRatios(g)) {
          const codec = CODECS[kind].fromRatio(g, ratio);
          if (typeof codec !== 'string') expect(refusalOf(g, codec)).toBe(CODECS[kind].refuse(g, codec));
        }
  });

  it('with windows are evicted by no policy', () => {
    const g = findPreset('loopcoder-v2-7b');
    const policy = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 } as const;
    const { refused } = listCandidates(g, { ...ALL, kinds: ['full'], evictions: [null, policy] });
    expect(refused.map((r) => r.reason).join()).toMatch(/loops of loopcoder-v2-7b after the first keep windows/);
  });
});

describe('steps of unlike loops', () => {
  it('read each stored weight as often as its layer runs', () => {
    // Written out for HRM-Text: a low stack 3 · 2 times, a high one 2 times, 16 layers each, and the head once.
    const g = findPreset('hrm-text-1b');
    const layer = 5 * 1536 * 1536 + 3 * 1536 * 4096;
    const { weights, of } = counted(g);
    expect(weights).toBe((16 * 3 * 2 + 16 * 2) * layer + 1536 * 65_536);
    expect(['attend', 'append-k', 'attention-gate'].map(of)).toEqual([128, 128, 128]);
    // Each run of a stack begins with a sum and ends with a norm.
    expect([of('stack-sum'), of('stack-norm') + of('loop-norm')]).toEqual([8, 8]);
    expect(weightBytes(g, 1)).toBe(2 * parameterCount(g));
  });

  it('attend to the first loop in all loops, and to windows in later ones', () => {
    const g = findPreset('iquest-coder-v1-40b-loop');
    const { of } = counted(g);
    expect([of('attend'), of('attend-window'), of('loop-gate'), of('loop-mix')]).toEqual([160, 80, 80, 80]);
    const c = configuration({ geometry: g });
    const contexts: number[] = [];
    forEachOp(c, schedule(c, 1, 40), ({ label, shape }) => {
      if (label === 'attend-window') contexts.push(shape.context as number);
    });
    // No more than there are.
    expect(contexts).toEqual([40]);
  });

  it('project no values where they are keys, and tables of a lower rank twice', () => {
    const lumma = findPreset('lumma-0.6b');
    const [hidden, rank] = [1440, 512];
    const layer = hidden * 90 * (2 * 16 + 8) + 3 * hidden * 3280;
    const { weights, of } = counted(lumma);
    expect(weights).toBe(30 * layer + 2 * rank * hidden + rank * 131_072);
    expect([of('append-k'), of('append-v')]).toEqual([30, 0]);
    const nandi = findPreset('nandi-mini-150m');
    const own = 832 * 52 * (2 * 16 + 2 * 4) + 3 * 832 * 2496;
    expect(counted(nandi).weights).toBe(32 * own + 2 * 196 * 832 + 196 * 131_072);
  });

  it("add the decayed state of Parcae, and multiply the prelude's output alone", () => {
    const g = findPreset('parcae-140m');
    const { of, weights } = counted(g);
    expect([of('adapter'), of('adapter-state')]).toEqual([8, 7]);
    expect(weights).toBe((2 + 16 + 2) * 12 * 768 * 768 + 8 * 768 * 768 + 768 * 32_768);
  });
});
