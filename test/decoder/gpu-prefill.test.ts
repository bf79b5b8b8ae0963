/** Prompts that the GPU decoder takes in whole, and ragged batches (gpu-prompts.ts). */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { BATCH_CASES, label, onFewThreads, PREFILL_CASES, singles } from './gpu-list.js';
import { expectRagged, expectWhole } from './gpu-prompts.js';

describeGpu(`prompts of several lengths (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of PREFILL_CASES.filter(onFewThreads).map(singles))
    test(`in whole: ${label(of)}`, () => expectWhole(device, of));
  for (const of of BATCH_CASES.filter(onFewThreads).map(singles))
    test(`a ragged batch: ${label(of)}`, () => expectRagged(device, of));
});
