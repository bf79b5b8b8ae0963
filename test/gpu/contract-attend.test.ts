/** Attention over cached rows, and over latents with K rebuilt, against float64. It adds up across eight threads. */
import { test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import type { OperationOptions } from '../../src/gpu/index.js';
import { divide } from '../../kernels/shared/attention/splits.js';
import { contractTests } from './contract-cached.js';
import { expectContract } from './contract-run.js';
import { describeGpu } from './device.js';
import { SEED } from './random.js';

describeGpu('attention over cached rows, against float64', (device) => {
  for (const kernel of ['attend', 'attend_rebuild'] as const) contractTests(device, kernel);

  test('pinned tokens and the ring in calls of their own fill the same partials', async () => {
    const spans = [
      { pinned: 4, firstPosition: 1000, ring: 90 },
      { pinned: 3, firstPosition: 7, ring: 41 },
    ];
    const heads = { kvHeads: 2, latentHeads: 2, group: 2 };
    const shape = { sequences: 2, ...heads, context: 90, rankK: 27, rankV: 45, headDim: 64, groupSize: 0, splits: 3 };
    // Three splits of the ring, then one of the pinned tokens.
    const part = (only: 'pinned' | 'ring', first: number): OperationOptions => {
      const division = divide(only === 'ring' ? { pinned: 0, ring: 90 } : { pinned: 4, ring: 0 }, shape.splits);
      return { scale: 0.1, run: { pinned: 4, capacity: 128, spans, only, division: { ...division, first, all: 4 } } };
    };
    const call = { kernel: 'attend_rebuild', variant: 'f16', shape } as const;
    await expectContract(device, call, [part('ring', 0), part('pinned', 3)], mix(SEED));
  });
});
