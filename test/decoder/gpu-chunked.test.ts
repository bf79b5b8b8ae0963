/** Prompts that the GPU decoder takes in chunk by chunk (gpu-prompts.ts), and what only chunks can do. */
import '../gpu/narrow.js';
import { expect, test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { opened } from './gpu-cases.js';
import { CHUNKED, expectChunks, expectWholeAlone } from './gpu-prompts.js';
import { ALL, label, onFewThreads, singles, WHOLE_CASE } from './gpu-list.js';
import { promptOf } from './models.js';

describeGpu(`prefill in chunks (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const { of, chunkTokens } of CHUNKED.filter(({ of }) => onFewThreads(of)))
    test(`${label(of)}, chunks of ${chunkTokens}`, () => expectChunks(device, of, chunkTokens));

  test('rows stored as differences: a prompt is one run, and follows nothing', () =>
    expectWholeAlone(device, WHOLE_CASE));

  test('only chunks go on behind other tokens', async () => {
    const of = singles(ALL.find((x) => !x.eviction && x.codec.kind === 'lla')!);
    const prompt = promptOf(of.geometry, 3, SEED);
    await opened(device, of, {}, async (begun) => {
      await begun.prefill([prompt], 'one-shot');
      for (const method of ['accumulated', 'one-shot', 'by-layer'] as const)
        await expect(begun.prefill([prompt], method), method).rejects.toThrow('begins its sequences');
      expect((await begun.prefill([prompt])).method).toBe('by-token');
      expect((await begun.prefill([prompt], 'chunked')).method).toBe('chunked');
    });
  });

  test('under H2O a chunk as long as the prompt is the prompt accumulated, to the bit', async () => {
    const of = singles(
      ALL.find((x) => x.eviction?.policy === 'h2o' && x.codec.kind === 'lla' && x.path === 'reconstruct')!,
    );
    const prompt = promptOf(of.geometry, 48, SEED + 60);
    const logits: Float32Array[][] = [];
    for (const method of ['accumulated', 'chunked'] as const) {
      await opened(device, of, { prefillChunkTokens: 45 }, async (decoder) => {
        await decoder.prefill([prompt.slice(0, 45)], method);
        const own = [await decoder.logits()];
        for (const token of prompt.slice(45)) {
          await decoder.step([token]);
          own.push(await decoder.logits());
        }
        logits.push(own);
      });
    }
    expect(logits[1]).toEqual(logits[0]);
  });
});
