/** The GPU decoder against the float64 reference: logits of 64 steps. */
import { expect, test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { errorsOf, TOLERANCE, type Case } from './gpu-cases.js';
import { GEOMETRIES, learnedCodecs } from './models.js';
import type { Eviction } from '../../src/eviction/policy.js';
import type { Geometry } from '../../src/geometry/geometry.js';

const STEPS = 64;
const named = (name: string): Geometry => GEOMETRIES.find((g) => g.name === name) as Geometry;
const OURO = named('ouro-like');
const GROUPED = named('grouped pre-norm');
const ONE_LOOP: Geometry = { ...GROUPED, name: 'one loop', loops: 1, normAfterEachLoop: false };

const EVICTIONS: Eviction[] = [
  { policy: 'streaming', sinkTokens: 3, windowTokens: 20, budgetTokens: 23 },
  { policy: 'h2o', heavyTokens: 7, recentTokens: 12, budgetTokens: 19 },
  { policy: 'budget', budgetTokens: 17 },
];

const label = ({ geometry, codec, path, materialised, eviction }: Case): string =>
  [geometry.name, codec.kind, codec.bits ?? '', path ?? '', materialised ? 'materialised' : '', eviction ? eviction.policy : ''].filter((part) => part !== '').join(', ');

const CASES: Case[] = [
  ...[OURO, GROUPED, ONE_LOOP].map((geometry) => ({ geometry, codec: { kind: 'full' } as const })),
  ...([8, 4, 3, 2] as const).map((bits) => ({ geometry: GROUPED, codec: { kind: 'kv-quant', bits } as const })),
  { geometry: OURO, codec: { kind: 'cla', shareLayers: 2 } },
  { geometry: OURO, codec: { kind: 'final-loop' } },
  ...learnedCodecs(OURO, 0.5).map((codec) => ({ geometry: OURO, codec, path: 'fast' as const })),
  ...learnedCodecs(GROUPED, 0.5).map((codec) => ({ geometry: GROUPED, codec, path: 'fast' as const })),
  ...learnedCodecs(OURO, 0.5).map((codec) => ({ geometry: OURO, codec, path: 'reconstruct' as const })),
  ...learnedCodecs(GROUPED, 0.5).map((codec) => ({ geometry: GROUPED, codec, path: 'reconstruct' as const })),
  ...learnedCodecs(GROUPED, 0.5).map((codec) => ({ geometry: GROUPED, codec, path: 'reconstruct' as const, materialised: true })),
  ...EVICTIONS.flatMap((eviction): Case[] => [
    ...[OURO, GROUPED].map((geometry) => ({ geometry, codec: { kind: 'full' } as const, eviction })),
    { geometry: OURO, codec: { kind: 'cla', shareLayers: 2 }, eviction },
    { geometry: OURO, codec: { kind: 'final-loop' }, eviction },
    { geometry: GROUPED, codec: { kind: 'kv-quant', bits: 8 }, eviction },
    ...learnedCodecs(OURO, 0.5).map((codec) => ({ geometry: OURO, codec, path: 'fast' as const, eviction })),
    ...learnedCodecs(GROUPED, 0.5).map((codec) => ({ geometry: GROUPED, codec, path: 'reconstruct' as const, eviction })),
    ...learnedCodecs(GROUPED, 0.5).map((codec) => ({ geometry: GROUPED, codec, path: 'reconstruct' as const, materialised: true, eviction })),
  ]),
];

describeGpu(`GPU decoder (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CASES) {
    test(label(of), { timeout: 120_000 }, async () => {
      const errors = await errorsOf(device, of, STEPS);
      // A coarse code that lies between two levels may fall to either side, and changes what follows: what precedes it must agree.
      const checked = (of.codec.bits ?? 8) < 8 ? errors.slice(0, STEPS / 8) : errors;
      console.log(label(of), Math.max(...errors));
      expect(Math.max(...checked)).toBeLessThan(TOLERANCE);
    });
  }
});
