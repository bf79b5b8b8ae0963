/** Prompts that the GPU decoder takes in whole (gpu-whole.ts). */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { label, onFewThreads, PREFILL_CASES, singles } from './gpu-list.js';
import { expectWhole } from './gpu-whole.js';

describeGpu(`prefill of whole prompts (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of PREFILL_CASES.filter(onFewThreads).map(singles)) test(label(of), () => expectWhole(device, of));
});
