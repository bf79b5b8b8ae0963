/** Prompts that the GPU decoder takes in by captures (gpu-prompts.ts). */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { ALL, CAPTURED_CASES, label, onFewThreads, singles } from './gpu-list.js';
import { CAPTURING, expectWhole } from './gpu-prompts.js';
import { F16 } from './models.js';

describeGpu(`prefill by captures (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CAPTURED_CASES.filter(onFewThreads).map(singles))
    for (const kind of CAPTURING) test(`${kind}: ${label(of)}`, () => expectWhole(device, of, kind));

  test('captures in 16 bits, by layer', () => {
    const of = ALL.find((x) => !x.eviction && x.path === 'reconstruct' && x.codec.kind === 'lla')!;
    return expectWhole(device, { ...of, choice: F16 }, 'by-layer');
  });

  test('a codec without latents takes prompts in as ever, whatever it is called', async () => {
    const of = singles(ALL.find((x) => !x.eviction && x.codec.kind === 'final-loop')!);
    for (const kind of CAPTURING) await expectWhole(device, of, kind);
  });
});
