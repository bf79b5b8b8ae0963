/** One suite over every codec, its paths and storage types: what holds of any of them. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CODEC_KINDS,
  PATHS,
  type Branch,
  type Codec,
  type CodecKind,
  type CodecSpec,
  type Path,
  FLASHLOOP_TOKENS,
  RESIDUAL_FORMS,
} from '../../src/codecs/codec.js';
import {
  type StorageChoice,
  bytesPerToken,
  pagedTokens,
  rowBytes,
  scalarsPerToken,
  slotsOf,
} from '../../src/codecs/layout.js';
import {
  CODECS,
  codecLabel,
  codecParameters,
  coreRatio,
  hasOwnStorage,
  inEverySharing,
  isLatent,
  layoutOf,
  modelRatio,
} from '../../src/codecs/registry.js';
import { memoryModel } from '../../src/cost/memory.js';
import { blocksOf, type Geometry } from '../../src/geometry/geometry.js';
import { PRESETS } from '../../src/geometry/presets.js';
import { STORAGE_BITS, STORAGES, storedBytes, TILE_TOKENS } from '../../kernels/spec.js';
import { anyGeometry, configuration, F16, NO_BRANCH, SHARED, smallGeometry } from './geometries.js';

/** Scalars that the looped core caches a token, written out codec by codec. */
function coreScalars(g: Geometry, c: Codec): number {
  const [T, H, d, D, r] = [g.loops, g.kvHeads, g.headDim, g.layers, (c.rankK ?? 0) + (c.rankV ?? 0)];
  const full = 2 * T * H * d * D;
  const table: Record<CodecKind, number> = {
    full: full,
    lla: r * H * D,
    'lla-2d': r * D,
    'mla-head': T * r * D,
    cla: full / (c.shareLayers ?? 1),
    'kv-quant': full,
    'final-loop': full / T,
    'mean-loop': full / T,
    'lla-window': r * H * D,
    hla: (r + 2 * (c.rankFirst ?? 0)) * D,
    'loop-window': full / T,
    melt: full / T,
    'residual-quant': full,
    // Keys and values, loop by loop: sums of tenths depend on their order.
    flashloop: flashShares(g, c).reduce((sum, share) => sum + (full / T / 2) * share + (full / T / 2) * share, 0),
  };
  return table[c.kind];
}

/** Rows a token has of each loop: all where it was generated, of loops 3 and 4 of a prompt a quarter and a tenth. */
const flashShares = ({ loops }: Geometry, { tokens, constants }: Codec): number[] =>
  (tokens === 'generated' ? [1, 1, 1, 1] : [...(constants?.rows ?? [1, 1, 0.25, 0.1])]).slice(0, loops);

/** Bits of a scalar of a stream with its pair: keys of a group of tokens, values of a group of channels. */
function flashBits({ headDim: d }: Geometry, { constants }: Codec, loop: number): number {
  const group = constants?.group ?? 64;
  const code = loop === 0 ? (constants?.anchorBits ?? 4) : 4;
  return (code + 32 / group + code + 32 / Math.min(group, d)) / 2;
}

/** Numbers that a head of this width can have. */
const flashConstants = (d: number): fc.Arbitrary<Codec> =>
  fc
    .record({
      tokens: fc.constantFrom(...FLASHLOOP_TOKENS),
      group: fc.constantFrom(...[8, 16, 32, 64, 128].filter((group) => d % Math.min(group, d) === 0)),
      tail: fc.nat(200),
      anchorBits: fc.constantFrom(2, 4, 8),
      dense: fc.constantFrom(2, 3, 4),
      // Sums of such shares are exact.
      shares: fc.array(fc.integer({ min: 1, max: 1024 }), { minLength: 2, maxLength: 2 }),
      keys: fc.double({ min: 0.01, max: 1, noNaN: true }),
    })
    .map(({ tokens, dense, shares, ...rest }): Codec => {
      const later = shares.map((n) => n / 1024).sort((a, b) => b - a);
      const rows = [1, 1, ...later].map((share, loop) => (loop < dense ? 1 : share));
      return { kind: 'flashloop', tokens, constants: { ...rest, dense, rows } };
    });

const tiled = (tokens: number): number => 32 * Math.ceil(tokens / 32);

/** Bytes of exact rows of the last tokens, of all loops or of the later ones: K and V of each head, in whole tiles. */
function ringBytes(
  g: Geometry,
  { kind, constants, windowTokens = 0 }: Codec,
  choice: StorageChoice,
  tokens: number,
): number {
  if (kind === 'flashloop') {
    const most = (constants?.tail ?? 64) + (constants?.group ?? 64);
    return 2 * g.layers * g.loops * g.kvHeads * Math.min(tokens, tiled(most)) * 2 * g.headDim;
  }
  const row = storedBytes(choice.storage, g.headDim, choice.groupSize);
  const loops = kind === 'loop-window' ? g.loops - 1 : g.loops;
  return 2 * g.layers * loops * g.kvHeads * Math.min(tokens, tiled(windowTokens)) * row;
}

/** Bits a value of residual-quant: residuals of 2 bits with a coefficient, an anchor of 4 or 2, pairs of 16 bits. */
function residualBits({ loops, headDim: d }: Geometry, { residual }: Codec): number {
  const T = loops % 4 === 0 ? 4 : loops;
  const [b, group] = residual === 'int2-g32' ? [2, 32] : [4, residual === 'mixed-g16' ? 16 : 32];
  return ((T - 1) * (2 + 16 / Math.min(group, d) + 16 / d) + b + 16 / Math.min(32, d)) / T;
}

/** ρ, by the same table. */
function tableRatio(g: Geometry, c: Codec): number {
  const [T, H, d, r] = [g.loops, g.kvHeads, g.headDim, (c.rankK ?? 0) + (c.rankV ?? 0)];
  const table: Record<CodecKind, number> = {
    full: 1,
    lla: (2 * T * d) / r,
    'lla-2d': (2 * T * H * d) / r,
    'mla-head': (2 * H * d) / r,
    cla: c.shareLayers ?? 1,
    'kv-quant': 16 / (c.bits ?? 16),
    'final-loop': T,
    'mean-loop': T,
    'lla-window': (2 * T * d) / r,
    hla: (2 * T * H * d) / (r + 2 * (c.rankFirst ?? 0)),
    'loop-window': T,
    melt: T,
    'residual-quant': 16 / residualBits(g, c),
    flashloop: (16 * T) / flashShares(g, c).reduce((sum, share, loop) => sum + share * flashBits(g, c, loop), 0),
  };
  return table[c.kind];
}

/** Parameters, written out as the matrices W_down, W_up and μ of each encoder. */
function tableParameters(g: Geometry, c: Codec): number {
  const [T, H, d, D] = [g.loops, g.kvHeads, g.headDim, g.layers];
  const encoder = (width: number, rank: number) => width * rank + rank * width + width;
  const both = (width: number) => encoder(width, c.rankK ?? 0) + encoder(width, c.rankV ?? 0);
  if (c.kind === 'lla' || c.kind === 'lla-window') return D * H * both(T * d);
  if (c.kind === 'lla-2d') return D * both(T * H * d);
  if (c.kind === 'mla-head') return D * T * both(H * d);
  if (c.kind === 'loop-window') return D * g.heads * (d + 1);
  if (c.kind === 'melt') return D * (2 * g.hidden ** 2 + g.hidden);
  const { rankK = 0, rankV = 0, rankFirst = 0 } = c;
  if (c.kind === 'hla') return D * (g.hidden + H * d) * ((T - 1) * (rankK + rankV) + 2 * rankFirst);
  return 0;
}

/** Whether FlashLoop is defined: for at most four loops, and heads of whole groups. */
const packable = ({ loops, headDim: d }: Geometry): boolean => loops > 1 && loops <= 4 && (d <= 64 || d % 64 === 0);

/** Codecs of each kind that the geometry admits, with random settings. */
const codecsOf = (g: Geometry): Partial<Record<CodecKind, fc.Arbitrary<Codec>>> => {
  const ranks = (kind: CodecKind, limit: number) =>
    fc.record({
      kind: fc.constant(kind),
      rankK: fc.integer({ min: 1, max: limit }),
      rankV: fc.integer({ min: 1, max: limit }),
    });
  const shares = Array.from({ length: g.layers }, (_, i) => i + 1).filter((s) => s > 1 && g.layers % s === 0);
  return {
    full: fc.constant<Codec>({ kind: 'full' }),
    lla: ranks('lla', g.loops * g.headDim),
    'lla-2d': ranks('lla-2d', g.loops * g.kvHeads * g.headDim),
    'mla-head': ranks('mla-head', g.kvHeads * g.headDim),
    'lla-window': fc
      .tuple(ranks('lla-window', g.loops * g.headDim), fc.integer({ min: 1, max: 300 }))
      .map(([codec, windowTokens]): Codec => ({ ...codec, windowTokens })),
    'kv-quant': fc.constantFrom<2 | 3 | 4 | 8>(2, 3, 4, 8).map((bits): Codec => ({ kind: 'kv-quant', bits })),
    ...(shares.length > 0
      ? { cla: fc.constantFrom(...shares).map((shareLayers): Codec => ({ kind: 'cla', shareLayers })) }
      : {}),
    ...(g.loops > 1 && (g.headDim === 16 || g.headDim % 32 === 0)
      ? {
          'residual-quant': fc
            .constantFrom(...RESIDUAL_FORMS)
            .map((residual): Codec => ({ kind: 'residual-quant', residual })),
        }
      : {}),
    ...(g.loops > 1
      ? {
          ...(packable(g)
            ? {
                flashloop: fc.oneof(
                  fc.constantFrom(...FLASHLOOP_TOKENS).map((tokens): Codec => ({ kind: 'flashloop', tokens })),
                  flashConstants(g.headDim),
                ),
              }
            : {}),
          melt: fc.constant<Codec>({ kind: 'melt' }),
          'loop-window': fc
            .integer({ min: 1, max: 300 })
            .map((windowTokens): Codec => ({ kind: 'loop-window', windowTokens })),
          hla: fc
            .record({
              rankK: fc.integer({ min: 1, max: (g.loops - 1) * g.kvHeads }).map((heads) => heads * g.headDim),
              rankV: fc.integer({ min: 1, max: (g.loops - 1) * g.kvHeads * g.headDim }),
              rankFirst: fc.integer({ min: 1, max: g.kvHeads }).map((heads) => heads * g.headDim),
              windowTokens: fc.integer({ min: 0, max: 300 }),
            })
            .map((settings): Codec => ({ kind: 'hla', ...settings })),
          'final-loop': fc.constantFrom<Codec>(...inEverySharing({ kind: 'final-loop' })),
          'mean-loop': fc.constantFrom<Codec>(...inEverySharing({ kind: 'mean-loop' })),
        }
      : {}),
  };
};
const codecFor = (g: Geometry): fc.Arbitrary<Codec> => fc.oneof(...Object.values(codecsOf(g)));

const storage = fc.record({
  storage: fc.constantFrom(...STORAGES),
  groupSize: fc.constantFrom(32, 64, 96, 128),
});
const branch: fc.Arbitrary<Branch> = fc.record({ width: fc.constantFrom(2, 32, 64), perHead: fc.boolean() });

interface Case {
  g: Geometry;
  codec: Codec;
  path: Path;
  choice: StorageChoice;
  branch: Branch;
}
/** @param codecs of a geometry */
const caseOf = (geometries: fc.Arbitrary<Geometry>, codecs: typeof codecFor = codecFor): fc.Arbitrary<Case> =>
  geometries.chain((g) =>
    codecs(g).chain((codec) => {
      const path = fc.constantFrom(...CODECS[codec.kind].paths);
      return fc.record({ g: fc.constant(g), codec: fc.constant(codec), path, choice: storage, branch });
    }),
  );
const anyCase = caseOf(anyGeometry);

const outside = (g: Geometry) => (g.preludeLayers + g.codaLayers) * 2 * g.kvHeads * g.headDim;

/** Bits of a scalar outside the core, of kinds that bring a storage type of their own. */
const OWN_BITS: Partial<Record<CodecKind, (codec: Codec) => number>> = {
  'kv-quant': ({ bits }) => bits as number,
  'residual-quant': () => 16,
  flashloop: () => 16,
};

describe.each(CODEC_KINDS)('codec %s', (kind) => {
  const spec: CodecSpec = CODECS[kind];
  // Some geometries admit no codec of a kind (one layer cannot be shared).
  const ofKind = anyGeometry
    .filter((g) => codecsOf(g)[kind] !== undefined)
    .chain((g) => (codecsOf(g)[kind] as fc.Arbitrary<Codec>).map((codec) => ({ g, codec })));

  it('names paths that exist, and one at least', () => {
    expect(spec.paths.length).toBeGreaterThan(0);
    for (const path of spec.paths) expect(PATHS).toContain(path);
    expect(new Set(spec.paths).size).toBe(spec.paths.length);
  });

  it('stores the scalars of the table, the ratio that follows and the parameters of its matrices', () => {
    fc.assert(
      fc.property(ofKind, ({ g, codec }) => {
        expect(spec.refuse(g, codec)).toBeUndefined();
        const path = spec.paths.find((p) => p !== 'fast' && p !== 'absorbed') as Path;
        const layout = layoutOf(g, codec, path, F16, NO_BRANCH);
        expect(scalarsPerToken(layout)).toBeCloseTo(coreScalars(g, codec) + outside(g), 9);
        expect(coreRatio(g, codec)).toBeCloseTo(tableRatio(g, codec), 12);
        expect(codecParameters(g, codec, path, SHARED)).toBe(tableParameters(g, codec));
        if (!spec.storage)
          expect(coreScalars(g, { kind: 'full' }) / coreScalars(g, codec)).toBeCloseTo(tableRatio(g, codec), 9);
        expect(modelRatio(g, layout)).toBeLessThanOrEqual(
          Math.max(1, coreScalars(g, { kind: 'full' }) / coreScalars(g, codec)) + 1e-9,
        );
      }),
      { numRuns: 120 },
    );
  });

  it('finds a codec for each published ratio of every preset, with that ratio (to a rounded rank)', () => {
    for (const g of PRESETS) {
      for (const ratio of spec.publishedRatios(g)) {
        const codec = spec.fromRatio(g, ratio);
        expect(typeof codec, `${g.name} ${kind} ${ratio}: ${JSON.stringify(codec)}`).toBe('object');
        expect(spec.refuse(g, codec as Codec)).toBeUndefined();
        // Ranks of narrow heads are few: their sum is off by half a scalar.
        const { rankK = 0, rankV = 0 } = codec as Codec;
        const rounded = rankK + rankV > 0 ? 0.51 / (rankK + rankV) : 0;
        expect(Math.abs(coreRatio(g, codec as Codec) / ratio - 1)).toBeLessThan(Math.max(0.01, rounded));
      }
    }
  });

  it('gives a codec or a reason for any ratio, and the ratio is near', () => {
    fc.assert(
      fc.property(anyGeometry, fc.double({ min: 1, max: 1e5, noNaN: true }), (g, ratio) => {
        const codec = spec.fromRatio(g, ratio);
        const refused = typeof codec === 'string' ? codec : spec.refuse(g, codec);
        if (refused !== undefined) expect(refused.length).toBeGreaterThan(10);
        if (refused !== undefined || typeof codec === 'string') return;
        expect(codec.kind).toBe(kind);
        // Ranks are whole: the sum is off by half a scalar, or by what a printed 5.33 leaves of 16/3.
        const sum = (codec.rankK ?? 0) + (codec.rankV ?? 0);
        if (isLatent(codec))
          expect(Math.abs(sum - (sum * coreRatio(g, codec)) / ratio)).toBeLessThanOrEqual(0.51 + 0.006 * sum);
        expect(codecLabel(g, codec)).toMatch(/^[a-z0-9.-]+$/);
      }),
      { numRuns: 120 },
    );
  });
});

describe('layout', () => {
  it('slots lie one after another, without gap or overlap, and sum to bytes per token × tokens', () => {
    // What a share of the tokens has is counted, and no decoder lays it out.
    const laidOut = (g: Geometry) => codecFor(g).filter(({ kind }) => !(CODECS[kind] as CodecSpec).streams);
    fc.assert(
      fc.property(caseOf(smallGeometry, laidOut), fc.integer({ min: 1, max: 40 }), (of, tiles) => {
        const { g, codec, path, choice, branch: b } = of;
        const layout = layoutOf(g, codec, path, choice, b);
        const tokens = tiles * TILE_TOKENS;
        let end = 0;
        const seen = new Set<string>();
        for (const slot of slotsOf(layout, tokens)) {
          expect(slot.offsetBytes).toBe(end);
          const held =
            slot.tensor.windowTokens === undefined ? tokens : Math.min(tokens, tiled(codec.windowTokens ?? 0));
          expect(slot.bytes).toBe(held * rowBytes(slot.tensor));
          expect(Number.isInteger(slot.bytes)).toBe(true);
          expect(slot.bytes % 4).toBe(0);
          seen.add(`${layout.indexOf(slot.tensor)} ${slot.layer} ${slot.loop} ${slot.head}`);
          end += slot.bytes;
        }
        expect(end).toBeCloseTo(bytesPerToken(layout) * tokens + ringBytes(g, codec, choice, tokens), 3);
        expect(seen.size).toBe(layout.reduce((n, t) => n + t.layers * t.loops * t.heads, 0));
      }),
      { numRuns: 150 },
    );
  });

  it('is what the memory model counts', () => {
    fc.assert(
      fc.property(
        anyCase,
        fc.integer({ min: 1, max: 100_000 }),
        fc.constantFrom(32, 64, 256),
        ({ g, codec, path, choice, branch: b }, context, pageTokens) => {
          const m = memoryModel(configuration({ geometry: g, codec, path, choice, branch: b }), context, pageTokens);
          const perToken = bytesPerToken(layoutOf(g, codec, path, choice, b));
          expect(m.kvBytesPerToken).toBe(perToken);
          const paged = pagedTokens(context, pageTokens);
          const ring = (tokens: number) => ringBytes(g, codec, choice, tokens);
          expect(m.kvBytesPerSequence).toBe(Math.ceil(perToken * paged + ring(paged)));
          expect(m.kvBytesAt1M).toBe(Math.ceil(perToken * 2 ** 20 + ring(2 ** 20)));
        },
      ),
      { numRuns: 150 },
    );
  });

  it('keeps prelude and coda at full width under every learned codec, and quantises them under kv-quant', () => {
    fc.assert(
      fc.property(anyCase, ({ g, codec, path, choice, branch: b }) => {
        for (const block of blocksOf(g).filter((x) => x.name !== 'core')) {
          const rows = layoutOf(g, codec, path, choice, b).filter((t) => t.block === block.name);
          expect(rows.map((t) => [t.role, t.layers, t.loops, t.heads, t.width])).toEqual([
            ['key', block.layers, 1, g.kvHeads, g.headDim],
            ['value', block.layers, 1, g.kvHeads, g.headDim],
          ]);
          expect(
            rows.map((t) => STORAGE_BITS[t.storage]),
            `OWN_BITS of ${codec.kind}`,
          ).toEqual(rows.map(() => OWN_BITS[codec.kind]?.(codec) ?? STORAGE_BITS[choice.storage]));
        }
      }),
      { numRuns: 120 },
    );
  });

  it('fast keeps full-width rows whatever the codec: no memory is saved', () => {
    fc.assert(
      fc.property(
        anyCase.filter((c) => c.path === 'fast'),
        ({ g, codec, choice }) => {
          expect(layoutOf(g, codec, 'fast', choice, SHARED)).toEqual(
            layoutOf(g, { kind: 'full' }, 'full', choice, SHARED),
          );
        },
      ),
      { numRuns: 80 },
    );
  });

  it('absorbed adds the rotary branch, and nothing else', () => {
    fc.assert(
      fc.property(
        anyCase.filter((c) => c.path === 'absorbed'),
        ({ g, codec, choice, branch: b }) => {
          const plain = layoutOf(g, codec, 'reconstruct', choice, b);
          const absorbed = layoutOf(g, codec, 'absorbed', choice, b);
          const loops = codec.kind === 'mla-head' ? g.loops : 1;
          expect(scalarsPerToken(absorbed) - scalarsPerToken(plain)).toBe(
            g.layers * loops * b.width * (b.perHead ? g.kvHeads : 1),
          );
        },
      ),
      { numRuns: 80 },
    );
  });

  it('bits of a scalar order the bytes: f32 > f16 > int8 > int4 > int3 > int2', () => {
    fc.assert(
      fc.property(
        anyCase.filter((c) => !hasOwnStorage(c.codec)),
        ({ g, codec, path, branch: b }) => {
          const sizes = (['f32', 'f16', 'q8', 'q4', 'q3', 'q2'] as const).map((s) =>
            bytesPerToken(layoutOf(g, codec, path, { storage: s, groupSize: 64 }, b)),
          );
          expect(sizes[0]).toBe(2 * (sizes[1] as number));
          // A row of one or two scalars pays as much for its scale as int8 saves.
          expect(sizes[2]).toBeLessThanOrEqual(2 * (sizes[1] as number));
          for (let i = 3; i < sizes.length; i++) expect(sizes[i]).toBeLessThan(sizes[i - 1] as number);
        },
      ),
      { numRuns: 80 },
    );
  });
});
