/** Caches that one binding does not hold (gpu-divided.ts), of kernels on few threads. */
import '../gpu/narrow.js';
import { expect, test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { sequenceBytes } from '../../src/schedule/cache-parts.js';
import { configurationOf, open, type Case } from './gpu-cases.js';
import {
  BATCH,
  CASES,
  CONTEXT,
  core,
  DIVIDED_CASES,
  dividedTest,
  EVICTED_CASES,
  evictedTest,
  GROUPED,
  vocabularyTest,
} from './gpu-divided.js';
import { onFewThreads } from './gpu-list.js';

describeGpu(`caches in parts (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of DIVIDED_CASES.filter(onFewThreads)) dividedTest(device, of);
  for (const of of EVICTED_CASES.filter(onFewThreads)) evictedTest(device, of);

  vocabularyTest(device);

  test('what no part holds is refused, with the limit', async () => {
    const of = CASES[0]!;
    const bytes = sequenceBytes(configurationOf(of), core(of), CONTEXT);
    const opened = (bindingBytes: number, more: Partial<Case> = {}) =>
      open(device, { ...of, ...more, bindingBytes }, { batch: BATCH, contextTokens: CONTEXT });
    await expect(opened(bytes - 1)).rejects.toThrow(
      `takes ${bytes} bytes at ${CONTEXT} tokens, more than the ${bytes - 1} bytes that the device binds at once`,
    );
    await expect(opened(3 * bytes)).rejects.toThrow('parts of 8 sequences');
    // Activations are not divided: with such a vocabulary the largest are the logits.
    const geometry = { ...GROUPED, vocab: 64 };
    const [each, limit] = [4 * geometry.vocab, 9 * bytes];
    const many = Math.floor(limit / each) + 1;
    const refused = open(device, { ...of, geometry, bindingBytes: limit }, { batch: many, contextTokens: CONTEXT });
    await expect(refused).rejects.toMatchObject({ name: 'GpuError', fault: 'unsupported' });
    await expect(refused).rejects.toThrow(
      `buffer logits takes ${many * each} bytes for ${many} sequences, more than the ${limit} that the device ` +
        `binds at once (maxStorageBufferBindingSize): take a batch of at most ${many - 1}`,
    );
  });
});
