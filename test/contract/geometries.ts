/** Geometries for properties: the presets, and small random ones of every family. */
import fc from 'fast-check';
import type { Branch, Codec } from '../../src/codecs/codec.js';
import type { StorageChoice } from '../../src/codecs/layout.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { findPreset, PRESETS } from '../../src/geometry/presets.js';
import type { Configuration } from '../../src/schedule/schedule.js';

export const OURO = findPreset('ouro-1.4b');
export const OURO_26 = findPreset('ouro-2.6b');
export const HUGINN = findPreset('huginn-3.5b');

export const F16: StorageChoice = { storage: 'f16', groupSize: 64 };
export const NO_BRANCH: Branch = { width: 0, perHead: false };
export const SHARED: Branch = { width: 64, perHead: false };
export const PER_HEAD: Branch = { width: 64, perHead: true };

export const KiB = 2 ** 10;
export const MiB = 2 ** 20;
export const GiB = 2 ** 30;

/** One GPU, full cache, f16: what a test does not care about. */
export function configuration(changes: Partial<Configuration> = {}): Configuration {
  return {
    geometry: OURO,
    codec: { kind: 'full' },
    path: 'full',
    materialised: false,
    choice: F16,
    branch: SHARED,
    eviction: null,
    gpus: 1,
    targetWorkgroups: 512,
    bindingBytes: Infinity,
    ...changes,
  };
}

export const lla = (rankK: number, rankV: number): Codec => ({ kind: 'lla', rankK, rankV });

export const smallGeometry: fc.Arbitrary<Geometry> = fc
  .record({
    preludeLayers: fc.integer({ min: 0, max: 2 }),
    layers: fc.constantFrom(1, 2, 3, 4, 6, 12),
    codaLayers: fc.integer({ min: 0, max: 2 }),
    loops: fc.constantFrom(1, 2, 3, 4, 8),
    kvHeads: fc.integer({ min: 1, max: 6 }),
    group: fc.integer({ min: 1, max: 4 }),
    headDim: fc.constantFrom(8, 16, 64, 96),
    hidden: fc.constantFrom(32, 96, 512),
    mlpHidden: fc.integer({ min: 8, max: 700 }),
    mlp: fc.constantFrom('gated' as const, 'plain' as const),
    vocab: fc.integer({ min: 10, max: 5000 }),
    tiedEmbeddings: fc.boolean(),
    normsPerLayer: fc.constantFrom(2 as const, 4 as const),
    extraParametersPerLayer: fc.constantFrom(0, 7),
    outputNorm: fc.constantFrom('branch' as const, 'sum' as const),
    adapter: fc.boolean(),
    normAfterEachLoop: fc.boolean(),
    normAfterCore: fc.boolean(),
    exitGate: fc.boolean(),
    weightType: fc.constantFrom('bf16' as const, 'f16' as const, 'f32' as const),
    pairing: fc.constantFrom('half-split' as const, 'adjacent' as const),
    theta: fc.constantFrom(1e4, 1e6),
  })
  .map(({ group, pairing, theta, ...g }) => ({
    ...g,
    name: 'random',
    heads: g.kvHeads * group,
    rope: { theta, pairing },
    maxPositions: 4096,
    source: 'fast-check',
  }));

/** Presets whose loops all keep keys and values of the same layers; test/contract/unlike.test.ts has the others. */
const ALIKE = PRESETS.filter((g) => !g.laterLoopsWindow && !g.valuesAreKeys && !g.stacks);

export const anyGeometry = fc.oneof(
  { weight: 3, arbitrary: smallGeometry },
  { weight: 1, arbitrary: fc.constantFrom(...ALIKE) },
);

/** A list of operations as data: what they bind are functions. */
export const asData = (of: unknown): unknown => JSON.parse(JSON.stringify(of));
