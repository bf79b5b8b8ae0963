/** Codecs at sizes that were published: bytes, ratios, parameters, and what each refuses. */
import { describe, expect, it } from 'vitest';
import { type Branch, type Codec, type CodecKind, type Path } from '../../src/codecs/codec.js';
import { type StorageChoice, bytesPerToken } from '../../src/codecs/layout.js';
import {
  CODECS,
  codecLabel,
  codecParameters,
  coreRatio,
  inEverySharing,
  layoutOf,
  modelRatio,
} from '../../src/codecs/registry.js';
import { memoryModel } from '../../src/cost/memory.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { cacheSlots, type Geometry } from '../../src/geometry/geometry.js';
import { configuration, F16, HUGINN, KiB, lla, MiB, NO_BRANCH, OURO, OURO_26, SHARED } from './geometries.js';

const hla = (rank: number, windowTokens: number): Codec => {
  return { kind: 'hla', rankK: rank, rankV: rank, rankFirst: 256, windowTokens };
};

const inFlightScalars = (c: Configuration): number => memoryModel(c, 4096, 32).inFlightBytesPerSequence / 4;

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
    ['1.4B HLA', OURO, hla(512, 128), 'rotated', 72 * KiB],
    ['2.6B HLA', OURO_26, hla(512, 128), 'rotated', 144 * KiB],
    ['1.4B HLA of ranks 256', OURO, hla(256, 0), 'rotated', 48 * KiB],
    ['1.4B windows of later loops', OURO, { kind: 'loop-window', windowTokens: 64 }, 'full', 192 * KiB],
    ['1.4B MELT', OURO, { kind: 'melt' }, 'full', 192 * KiB],
    // 2.35 streams of 54 KiB, and as many entries of 4 bytes in each of 24 layers.
    ['1.4B FlashLoop, a prompt', OURO, { kind: 'flashloop', tokens: 'prompt' }, 'full', 2.35 * (54 * KiB + 96)],
    ['1.4B FlashLoop, generated', OURO, { kind: 'flashloop', tokens: 'generated' }, 'full', 4 * (54 * KiB + 96)],
    ['1.4B residual-quant', OURO, { kind: 'residual-quant', residual: 'mixed-g32' }, 'full', 148.5 * KiB],
    ['1.4B residual-quant, INT2', OURO, { kind: 'residual-quant', residual: 'int2-g32' }, 'full', 124.5 * KiB],
    ['1.4B residual-quant, g16', OURO, { kind: 'residual-quant', residual: 'mixed-g16' }, 'full', 166.5 * KiB],
  ] as [string, Geometry, Codec, Path, number][])('KV a token: %s', (_name, g, codec, path, bytes) => {
    expect(kv(g, codec, path)).toBeCloseTo(bytes, 9);
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

  // HLA's paper, Table 1 and section 4: its setting is what a ratio of 10.67 means.
  it.each([
    ['1.4B', OURO, 96, 352_321_536],
    ['2.6B', OURO_26, 192, 704_643_072],
  ] as const)('HLA of %s holds a window of %d MiB a sequence, and its published parameters', (_n, g, mib, count) => {
    const codec = CODECS.hla.fromRatio(g, 10.67) as Codec;
    expect(codec).toEqual(hla(512, 128));
    const of = (windowTokens: number) =>
      memoryModel(configuration({ geometry: g, codec: { ...codec, windowTokens }, path: 'rotated' }), 4096, 32);
    expect(of(128).kvBytesPerSequence - of(0).kvBytesPerSequence).toBe(mib * MiB);
    expect(of(0).kvBytesPerSequence).toBe(4096 * of(0).kvBytesPerToken);
    expect(codecParameters(g, codec, 'rotated', NO_BRANCH)).toBe(count);
    expect(of(128).codecBytes).toBe(2 * count);
  });

  it('windows of later loops have 64 tokens', () =>
    expect(CODECS['loop-window'].fromRatio(OURO, 4)).toEqual({ kind: 'loop-window', windowTokens: 64 }));

  it('MELT of 1.4B: its published parameters, gates of later loops alone, states of all layers in flight', () => {
    const codec: Codec = { kind: 'melt' };
    expect(codecParameters(OURO, codec, 'full', NO_BRANCH)).toBe(201_375_744);
    expect(inFlightScalars(configuration({ codec, path: 'full' }))).toBe(24 * 2048);
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
    const of = (codec: Codec, path: Path = 'reconstruct', geometry = OURO): number =>
      inFlightScalars(configuration({ geometry, codec, path }));
    expect([of(lla(96, 160)), of(lla(18, 30))]).toEqual([256 * 16 * 24, 48 * 16 * 24]);
    expect(of({ kind: 'lla-2d', rankK: 96, rankV: 160 })).toBe(256 * 24);
    // Means over the loops, keys and values.
    for (const codec of inEverySharing({ kind: 'mean-loop' })) expect(of(codec, 'full')).toBe(2 * 2048 * 24);
    // The rotary key of the first loop is scored in the others too.
    expect(of(lla(96, 160), 'absorbed') - of(lla(96, 160))).toBe(64 * 24);
    // With one loop a latent is complete within its layer.
    expect(of(lla(24, 40), 'reconstruct', { ...OURO, loops: 1 })).toBe(0);
  });

  it('matrices have rows of even length where these are latents; means and a constant a latent in f32', () => {
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

  it('residual-quant needs whole groups, and loops to tell apart', () => {
    const codec: Codec = { kind: 'residual-quant', residual: 'mixed-g32' };
    expect(CODECS['residual-quant'].refuse({ ...OURO, headDim: 80 }, codec)).toMatch('do not divide heads of 80');
    expect(CODECS['residual-quant'].refuse({ ...OURO, loops: 1 }, codec)).toMatch('at least two loops');
    expect([5.17, 6.17, 4.61].map((ratio) => CODECS['residual-quant'].fromRatio(OURO, ratio))).toEqual(
      (['mixed-g32', 'int2-g32', 'mixed-g16'] as const).map((residual) => ({ ...codec, residual })),
    );
    expect(CODECS['residual-quant'].fromRatio(OURO, 4)).toMatch('5.17, 6.17, 4.61');
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
    ['hla', { ...hla(512, 128), rankK: 500 }, /no multiple of the head width 128/],
    ['hla', { ...hla(512, 128), rankK: 6272 }, /exceeds \(T−1\)·H·d = 6144/],
    ['hla', { ...hla(512, 128), rankFirst: 2176 }, /exceeds H·d = 2048/],
    ['hla', hla(512, -1), /at least 0, not -1/],
    ['loop-window', { kind: 'loop-window', windowTokens: 0 }, /at least 1 in later loops, not 0/],
    ['residual-quant', { kind: 'residual-quant' }, /mixed-g32, int2-g32, mixed-g16/],
  ] as [CodecKind, Codec, RegExp][])('%s refuses %j', (kind, codec, reason) => {
    expect(CODECS[kind].refuse(OURO, codec)).toMatch(reason);
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
