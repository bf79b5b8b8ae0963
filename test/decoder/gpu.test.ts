/** Steps of the GPU decoder, token by token (gpu-steps.ts). */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { CASES, label, onFewThreads, singles } from './gpu-list.js';
import { expectRounded, expectSteps } from './gpu-steps.js';

describeGpu(`GPU decoder (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CASES.filter(onFewThreads).map(singles)) test(label(of), () => expectSteps(device, of));

  test('a cache in f16', async () => {
    for (const path of ['full', 'reconstruct', 'fast']) await expectRounded(device, path);
  });
});
