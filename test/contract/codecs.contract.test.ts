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
  type StorageChoice,
} from '../../src/codecs/codec.js';
import {
  bytesPerToken,
  pagedTokens,
  rowBytes,
  scalarsPerToken,
  slotsOf,
  TILE_TOKENS,
} from '../../src/codecs/layout.js';
import {
  CODECS,
  codecLabel,
  codecParameters,
  coreRatio,
  fullScalars,
  hasOwnStorage,
  inEverySharing,
  isLatent,
  layoutOf,
  modelRatio,
} from '../../src/codecs/registry.js';
import { RESIDUAL_FORMS } from '../../src/codecs/codec.js';
import { memoryModel } from '../../src/cost/memory.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { blocksOf, cacheSlots, parameterCount, type Geometry } from '../../src/geometry/geometry.js';
import { PRESETS } from '../../src/geometry/presets.js';
import { STORAGE_BITS, STORAGES, storedBytes } from '../../kernels/spec.js';
import {
  anyGeometry,
  configuration,
  F16,
  GiB,
  HUGINN,
  KiB,
  lla,
  MiB,
  NO_BRANCH,
  OURO,
  OURO_26,
  PER_HEAD,
  SHARED,
  smallGeometry,
} from './geometries.js';

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
    'residual-quant': full,
  };
  return table[c.kind];
}

const tiled = (tokens: number): number => 32 * Math.ceil(tokens / 32);

/** Bytes of exact rows of the last tokens, of all loops: K and V of each head, in whole tiles. */
function ringBytes(g: Geometry, { windowTokens = 0 }: Codec, choice: StorageChoice, tokens: number): number {
  const row = storedBytes(choice.storage, g.headDim, choice.groupSize);
  return 2 * g.layers * g.loops * g.kvHeads * Math.min(tokens, tiled(windowTokens)) * row;
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
    'residual-quant': 16 / residualBits(g, c),
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
  return 0;
}

/** A codec of each kind that the geometry admits, with random settings. */
const codecFor = (g: Geometry, kind?: CodecKind): fc.Arbitrary<Codec> => {
  const ranks = (kind: CodecKind, limit: number) =>
    fc.record({
      kind: fc.constant(kind),
      rankK: fc.integer({ min: 1, max: limit }),
      rankV: fc.integer({ min: 1, max: limit }),
    });
  const shares = Array.from({ length: g.layers }, (_, i) => i + 1).filter((s) => s > 1 && g.layers % s === 0);
  const known: Partial<Record<CodecKind, fc.Arbitrary<Codec>>> = {
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
          'final-loop': fc.constantFrom<Codec>(...inEverySharing({ kind: 'final-loop' })),
          'mean-loop': fc.constantFrom<Codec>(...inEverySharing({ kind: 'mean-loop' })),
        }
      : {}),
  };
  return kind === undefined ? fc.oneof(...Object.values(known)) : (known[kind] as fc.Arbitrary<Codec>);
};

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
const anyCase: fc.Arbitrary<Case> = anyGeometry.chain((g) =>
  codecFor(g).chain((codec) =>
    fc.record({
      g: fc.constant(g),
      codec: fc.constant(codec),
      path: fc.constantFrom(...CODECS[codec.kind].paths),
      choice: storage,
      branch,
    }),
  ),
);

const outside = (g: Geometry) => (g.preludeLayers + g.codaLayers) * 2 * g.kvHeads * g.headDim;

describe.each(CODEC_KINDS)('codec %s', (kind) => {
  const spec: CodecSpec = CODECS[kind];
  // Some geometries admit no codec of a kind (one layer cannot be shared): those are left out before a codec is drawn.
  const admits = (g: Geometry) =>
    (kind !== 'cla' || g.layers > 1) &&
    (!(spec.sharings || spec.anchoredLoops) || g.loops > 1) &&
    (!spec.anchoredLoops || g.headDim === 16 || g.headDim % 32 === 0);
  const ofKind = anyGeometry.filter(admits).chain((g) => codecFor(g, kind).map((codec) => ({ g, codec })));

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
        expect(scalarsPerToken(layout)).toBe(coreScalars(g, codec) + outside(g));
        expect(coreRatio(g, codec)).toBeCloseTo(tableRatio(g, codec), 12);
        expect(codecParameters(g, codec, path, SHARED)).toBe(tableParameters(g, codec));
        if (!spec.storage)
          expect(coreScalars(g, { kind: 'full' }) / coreScalars(g, codec)).toBeCloseTo(tableRatio(g, codec), 9);
        expect(modelRatio(g, layout)).toBeLessThanOrEqual(
          Math.max(1, coreScalars(g, { kind: 'full' }) / coreScalars(g, codec)) + 1e-9,
        );
      }),
      { numRuns: 300 },
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
      { numRuns: 300 },
    );
  });
});

/** f32 scalars of a sequence's latents that loops still add to. */
const inFlightScalars = (c: Configuration): number => memoryModel(c, 4096, 32).inFlightBytesPerSequence / 4;

describe('layout', () => {
  it('slots lie one after another, without gap or overlap, and sum to bytes per token × tokens', () => {
    const small = smallGeometry.chain((g) =>
      codecFor(g).chain((codec) =>
        fc.record({
          g: fc.constant(g),
          codec: fc.constant(codec),
          path: fc.constantFrom(...CODECS[codec.kind].paths),
          choice: storage,
          branch,
          tiles: fc.integer({ min: 1, max: 40 }),
        }),
      ),
    );
    fc.assert(
      fc.property(small, ({ g, codec, path, choice, branch: b, tiles }) => {
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
      { numRuns: 400 },
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
      { numRuns: 400 },
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
            rows.every(
              (t) => STORAGE_BITS[t.storage] === (codec.bits ?? STORAGE_BITS[codec.residual ? 'f16' : choice.storage]),
            ),
          ).toBe(true);
        }
      }),
      { numRuns: 300 },
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
      { numRuns: 200 },
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
      { numRuns: 200 },
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
      { numRuns: 200 },
    );
  });
});

const kv = (g: Geometry, codec: Codec, path: Path, b: Branch = SHARED, choice: StorageChoice = F16): number =>
  bytesPerToken(layoutOf(g, codec, path, choice, b));

describe('numbers that must come out', () => {
  it.each([
    ['1.4B full', OURO, { kind: 'full' }, 'full', 768 * KiB],
    ['2.6B full', OURO_26, { kind: 'full' }, 'full', 1536 * KiB],
    ['1.4B 4×', OURO, lla(96, 160), 'reconstruct', 192 * KiB],
    ['2.6B 4×', OURO_26, lla(96, 160), 'block-absorbed', 384 * KiB],
    ['1.4B 21.33×', OURO, lla(18, 30), 'reconstruct', 36 * KiB],
    ['2.6B 21.33×', OURO_26, lla(18, 30), 'reconstruct', 72 * KiB],
    ['Huginn full', HUGINN, { kind: 'full' }, 'full', 2_787_840],
    ['1.4B residual-quant', OURO, { kind: 'residual-quant', residual: 'mixed-g32' }, 'full', 148.5 * KiB],
    ['1.4B residual-quant, INT2', OURO, { kind: 'residual-quant', residual: 'int2-g32' }, 'full', 124.5 * KiB],
    ['1.4B residual-quant, g16', OURO, { kind: 'residual-quant', residual: 'mixed-g16' }, 'full', 166.5 * KiB],
  ] as [string, Geometry, Codec, Path, number][])('KV a token: %s', (_name, g, codec, path, bytes) => {
    expect(kv(g, codec, path)).toBe(bytes);
  });

  it.each([
    ['full', { kind: 'full' }, 'full', 768],
    ['4×', lla(96, 160), 'reconstruct', 192],
    ['21.33×', lla(18, 30), 'reconstruct', 36],
  ] as [string, Codec, Path, number][])('2^20 tokens of 1.4B: %s', (_name, codec, path, gib) => {
    expect(memoryModel(configuration({ codec, path }), 2 ** 20, 32).kvBytesPerSequence).toBe(gib * GiB);
    expect(memoryModel(configuration({ codec, path }), 4096, 32).kvBytesAt1M).toBe(gib * GiB);
  });

  it.each([
    { policy: 'budget', budgetTokens: 1024 },
    { policy: 'streaming', sinkTokens: 4, windowTokens: 1020, budgetTokens: 1024 },
  ] as const)('21.33× with a budget of 1024 tokens is 36 MiB at any length ($policy)', (eviction) => {
    for (const context of [1024, 2 ** 20]) {
      const m = memoryModel(configuration({ codec: lla(18, 30), path: 'reconstruct', eviction }), context, 32);
      expect(m.kvBytesPerSequence).toBe(36 * MiB);
      expect(m.kvBytesAt1M).toBe(36 * MiB);
    }
  });

  it('Huginn holds 132 slots', () => expect(cacheSlots(HUGINN)).toBe(132));

  it.each([
    [128, 256, 16, 11.0],
    [64, 128, 32, 16.5],
    [32, 64, 64, 22.0],
    [16, 32, 128, 26.4],
  ])('Huginn %d/%d is %d× on the core and %d× on the whole model', (rankK, rankV, core, whole) => {
    const codec = lla(rankK, rankV);
    expect(coreRatio(HUGINN, codec)).toBe(core);
    expect(modelRatio(HUGINN, layoutOf(HUGINN, codec, 'reconstruct', F16, NO_BRANCH))).toBeCloseTo(whole, 10);
    expect(CODECS.lla.fromRatio(HUGINN, core)).toEqual(codec);
  });

  it.each([
    [96, 160, 393_216],
    [18, 30, 73_728],
  ])('in-flight accumulators of %d/%d on 1.4B take %d bytes', (rankK, rankV, bytes) => {
    expect(inFlightScalars(configuration({ codec: lla(rankK, rankV), path: 'reconstruct' })) * 4).toBe(bytes);
  });

  it('in-flight state is needed by codecs on the loop axis only', () => {
    for (const codec of [
      { kind: 'full' },
      { kind: 'mla-head', rankK: 96, rankV: 160 },
      { kind: 'cla', shareLayers: 4 },
      { kind: 'kv-quant', bits: 4 },
      { kind: 'final-loop' },
      { kind: 'final-loop', shared: 'all' },
    ] as Codec[]) {
      expect(inFlightScalars(configuration({ codec }))).toBe(0);
    }
    expect(
      inFlightScalars(configuration({ codec: { kind: 'lla-2d', rankK: 96, rankV: 160 }, path: 'reconstruct' })),
    ).toBe(256 * 24);
    // Means over the loops, keys and values.
    for (const codec of inEverySharing({ kind: 'mean-loop' }))
      expect(inFlightScalars(configuration({ codec })) * 4).toBe(393_216);
    // The rotary key of the first loop is scored in the others too.
    expect(
      inFlightScalars(configuration({ codec: lla(96, 160), path: 'absorbed' })) -
        inFlightScalars(configuration({ codec: lla(96, 160), path: 'reconstruct' })),
    ).toBe(64 * 24);
    // With one loop a latent is complete within its layer.
    expect(
      inFlightScalars(configuration({ geometry: { ...OURO, loops: 1 }, codec: lla(24, 40), path: 'reconstruct' })),
    ).toBe(0);
  });

  it.each([
    [96, 160, 202e6],
    [288, 480, 605e6],
  ])('codec matrices of lla %d/%d on 1.4B take ≈ %d bytes in 16 bits', (rankK, rankV, bytes) => {
    const got = 2 * codecParameters(OURO, lla(rankK, rankV), 'reconstruct', SHARED);
    expect(Math.abs(got / bytes - 1)).toBeLessThan(0.01);
  });

  it('matrices are stored with rows of even length where these are latents; means and a constant a latent in f32', () => {
    const bytes = (rankK: number, rankV: number) =>
      memoryModel(configuration({ codec: lla(rankK, rankV), path: 'reconstruct' }), 4096, 32).codecBytes;
    const means = 24 * 16 * 2 * 512;
    const centres = (ranks: number) => 4 * ranks * 24 * 16;
    // W_down of both and W_up of K, whose rows are a latent long, are padded; W_up of V has rows of a head's width.
    expect(bytes(27, 45)).toBe(24 * 16 * 2 * 512 * (28 + 46 + 28 + 45) + 4 * means + centres(27 + 45));
    expect(bytes(96, 160)).toBe(
      2 * (codecParameters(OURO, lla(96, 160), 'reconstruct', SHARED) - means) + 4 * means + centres(256),
    );
    expect(memoryModel(configuration(), 4096, 32).codecBytes).toBe(0);
  });

  it.each([
    ['1.4B at 4×', OURO, 4, 1.6e9],
    ['2.6B at 4×', OURO_26, 4, 3.2e9],
    ['Huginn at 16×', HUGINN, 16, 28.5e9],
  ] as [string, Geometry, number, number][])(
    'lla-2d on %s has its billions of parameters',
    (_name, g, ratio, parameters) => {
      const codec = CODECS['lla-2d'].fromRatio(g, ratio) as Codec;
      const got = codecParameters(g, codec, 'reconstruct', SHARED);
      expect(Math.abs(got / parameters - 1)).toBeLessThan(0.015);
      expect(got).toBeGreaterThan(parameterCount(g));
    },
  );

  it('absorbed stores 3.94 times less than full with a shared branch at 4×, and 3.2 times with one a head', () => {
    expect(kv(OURO, { kind: 'full' }, 'full') / kv(OURO, lla(96, 160), 'absorbed', SHARED)).toBeCloseTo(3.94, 2);
    expect(kv(OURO, { kind: 'full' }, 'full') / kv(OURO, lla(96, 160), 'absorbed', PER_HEAD)).toBeCloseTo(3.2, 10);
  });

  it.each([
    [4 / 3, 288, 480],
    [1.6, 240, 400],
    [2, 192, 320],
    [8 / 3, 144, 240],
    [3.2, 120, 200],
    [4, 96, 160],
    [16 / 3, 72, 120],
    [32 / 3, 36, 60],
    [128 / 9, 27, 45],
    [64 / 3, 18, 30],
  ])('lla %d× on Ouro has ranks %d/%d', (ratio, rankK, rankV) => {
    expect(CODECS.lla.fromRatio(OURO, ratio)).toEqual(lla(rankK, rankV));
  });

  it.each([
    ['lla-2d', [4096, 3072, 1536, 768]],
    ['mla-head', [1024, 768, 384, 192]],
  ] as const)('%s sums of ranks at 4, 5.33, 10.67 and 21.33×', (kind, sums) => {
    expect(
      [4, 16 / 3, 32 / 3, 64 / 3].map((r) => {
        const c = CODECS[kind].fromRatio(OURO, r) as Codec;
        return (c.rankK as number) + (c.rankV as number);
      }),
    ).toEqual(sums);
  });

  it('residual-quant needs whole groups, and loops to tell apart', () => {
    const codec: Codec = { kind: 'residual-quant', residual: 'mixed-g32' };
    expect(CODECS['residual-quant'].refuse({ ...OURO, headDim: 80 }, codec)).toMatch('do not divide heads of 80');
    expect(CODECS['residual-quant'].refuse({ ...OURO, loops: 1 }, codec)).toMatch('at least two loops');
    expect([5.17, 6.17, 4.61].map((ratio) => CODECS['residual-quant'].fromRatio(OURO, ratio))).toEqual(
      (['mixed-g32', 'int2-g32', 'mixed-g16'] as const).map((residual) => ({ ...codec, residual })),
    );
    expect(CODECS['residual-quant'].fromRatio(OURO, 4)).toMatch('5.17, 6.17, 4.61');
  });

  it('kv-quant says its nominal ratio and the one with scales', () => {
    for (const [bits, nominal] of [
      [8, 2],
      [4, 4],
      [3, 16 / 3],
      [2, 8],
    ] as const) {
      const codec: Codec = { kind: 'kv-quant', bits };
      expect(coreRatio(OURO, codec)).toBeCloseTo(nominal, 12);
      // Two groups of 64 a row, two bytes a scale.
      expect((fullScalars(OURO) * 2) / kv(OURO, codec, 'full')).toBeCloseTo(256 / ((128 * bits) / 8 + 4), 10);
    }
  });

  it('counts eviction state of H2O once a latent: pooled over loops, and over heads where they share', () => {
    const eviction = { policy: 'h2o', heavyTokens: 128, recentTokens: 132, budgetTokens: 260 } as const;
    const state = (codec: Codec, path: Path) =>
      memoryModel(configuration({ codec, path, eviction }), 4096, 32).evictionBytesPerSequence;
    const tokens = 288; // 261, in whole pages
    expect(state({ kind: 'full' }, 'full')).toBe(24 * 4 * 16 * 8 * tokens);
    expect(state(lla(96, 160), 'reconstruct')).toBe(24 * 16 * 8 * tokens);
    expect(state({ kind: 'lla-2d', rankK: 96, rankV: 160 }, 'reconstruct')).toBe(24 * 8 * tokens);
    expect(state({ kind: 'mla-head', rankK: 96, rankV: 160 }, 'reconstruct')).toBe(24 * 4 * 8 * tokens);
    // A rotary key that the heads share can only go for all of them.
    expect(state(lla(96, 160), 'absorbed')).toBe(24 * 8 * tokens);
    expect(state({ kind: 'cla', shareLayers: 4 }, 'full')).toBe(6 * 4 * 16 * 8 * tokens);
  });
});

describe('refusals', () => {
  it.each([
    ['lla', { kind: 'lla', rankK: 513, rankV: 8 }, /K 513 exceeds T·d = 512/],
    ['lla', { kind: 'lla', rankK: 8, rankV: 513 }, /V 513 exceeds T·d = 512/],
    ['lla', { kind: 'lla', rankK: 0, rankV: 8 }, /at least 1/],
    ['lla', { kind: 'lla', rankK: 1.5, rankV: 8 }, /whole number/],
    ['lla', { kind: 'lla' }, /whole number/],
    ['lla-2d', { kind: 'lla-2d', rankK: 8193, rankV: 8 }, /8192/],
    ['mla-head', { kind: 'mla-head', rankK: 2049, rankV: 8 }, /2048/],
    ['cla', { kind: 'cla', shareLayers: 5 }, /divides the 24/],
    ['cla', { kind: 'cla', shareLayers: 1 }, /at least 2/],
    ['cla', { kind: 'cla', shareLayers: 48 }, /divides/],
    ['kv-quant', { kind: 'kv-quant' }, /2, 3, 4 or 8/],
    ['residual-quant', { kind: 'residual-quant' }, /mixed-g32, int2-g32, mixed-g16/],
  ] as [CodecKind, Codec, RegExp][])('%s refuses %j', (kind, codec, reason) => {
    expect(CODECS[kind].refuse(OURO, codec)).toMatch(reason);
  });

  it('accepts the widest ranks there are', () => {
    expect(CODECS.lla.refuse(OURO, lla(512, 512))).toBeUndefined();
  });

  it('loops that share rows need loops, and a way of sharing that somebody defined', () => {
    for (const kind of ['final-loop', 'mean-loop'] as const)
      expect(CODECS[kind].refuse({ ...OURO, loops: 1 }, { kind })).toMatch(/two loops/);
    expect(CODECS['mean-loop'].refuse(OURO, { kind: 'mean-loop', shared: 'two-pass' })).toMatch(
      'mean-loop is shared decode or all, not two-pass',
    );
  });

  it('names of loops that share rows tell the ways apart', () => {
    const labels = (['final-loop', 'mean-loop'] as const).flatMap((kind) =>
      inEverySharing({ kind }).map((codec) => codecLabel(OURO, codec)),
    );
    expect(labels).toEqual(['final-loop', 'final-loop-decode', 'final-loop-all', 'mean-loop-decode', 'mean-loop-all']);
  });
});
