/** Prompts that the GPU decoder takes in by captures (gpu-captures.ts). */
import '../gpu/narrow.js';
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { errorsAfter, expectCaptured, KINDS, promptsOf } from './gpu-captures.js';
import { expectWithin, type Case } from './gpu-cases.js';
import { ALL, CAPTURED_CASES, label, onFewThreads, singles } from './gpu-list.js';
import { F16 } from './models.js';

describeGpu(`prefill by captures (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CAPTURED_CASES.filter(onFewThreads).map(singles))
    for (const kind of KINDS) test(`${kind}: ${label(of)}`, () => expectCaptured(device, of, kind));

  test('captures in 16 bits, by layer', async () => {
    const of: Case = {
      ...ALL.find((x) => !x.eviction && x.path === 'reconstruct' && x.codec.kind === 'lla')!,
      choice: F16,
    };
    const prompts = promptsOf(of);
    expectWithin(Math.max(...(await errorsAfter(device, of, 'by-layer', prompts))), of, prompts);
  });

  test('a codec without latents takes prompts in as ever, whatever it is called', async () => {
    const of = singles(ALL.find((x) => !x.eviction && x.codec.kind === 'final-loop')!);
    for (const kind of KINDS) await expectCaptured(device, of, kind);
  });
});
