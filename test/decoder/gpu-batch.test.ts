/** Ragged batches of the GPU decoder (gpu-ragged.ts). */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { BATCH_CASES, label, onFewThreads, singles } from './gpu-list.js';
import { expectRagged } from './gpu-ragged.js';

describeGpu(`ragged batches (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of BATCH_CASES.filter(onFewThreads).map(singles)) test(label(of), () => expectRagged(device, of));
});
