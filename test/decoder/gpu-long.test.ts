/** Long contexts (gpu-longs.ts) of kernels on few threads, and prompts of which H2O keeps the heaviest tokens. */
import '../gpu/narrow.js';
import { test } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import type { Case } from './gpu-cases.js';
import { beside } from './gpu-beside.js';
import { label, onFewThreads } from './gpu-list.js';
import { LLA, LONG_CASES, longTest, WIDE, WIDE_BATCH_CASES, wideBatchTest } from './gpu-longs.js';
import { decodeAll, promptOf, SINGLE } from './models.js';

describeGpu(`GPU decoder, long contexts (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of LONG_CASES.filter(onFewThreads)) longTest(device, of);
  for (const of of WIDE_BATCH_CASES.filter(onFewThreads)) wideBatchTest(device, of);

  /** A prompt on both sides, and a step for each token behind it. */
  const expectLong = (of: Case, length: number, steps: number, method: 'accumulated' | 'by-token', chunk?: number) => {
    const tokens = promptOf(WIDE, length + steps, SEED + length);
    const options = { contextTokens: Math.max(100, tokens.length), ...(chunk ? { prefillChunkTokens: chunk } : {}) };
    return beside(device, of, [tokens], options, async ({ decoder, references, follow, prefilled, goOn }) => {
      const prompt = tokens.slice(0, length);
      await decoder.prefill([prompt], method);
      // Within the budget of H2O it is the same token by token.
      const byToken = async () => (await follow(), [decodeAll(references[0]!, prompt).at(-1)!]);
      await goOn(await (chunk ? prefilled([prompt], 'accumulated') : byToken()), [length], steps, method);
    });
  };

  // The reference's attention over a whole prompt takes seconds: one of the two by each seed.
  for (const codec of [{ kind: 'full' }, LLA].slice(SEED % 2, (SEED % 2) + 1) as Codec[]) {
    const eviction = { policy: 'h2o', heavyTokens: 130, recentTokens: 24, budgetTokens: 154 } as const;
    const of: Case = { geometry: WIDE, codec, choice: SINGLE, eviction, targetWorkgroups: 64 };
    test(`${label(of)}: a prompt of 190 tokens, of which the heaviest stay`, () =>
      expectLong(of, 190, 6, 'accumulated', 100));
  }

  test('under H2O a prompt within the budget is what it is token by token, mass and all', async () => {
    const eviction = { policy: 'h2o', heavyTokens: 21, recentTokens: 9, budgetTokens: 30 } as const;
    const of: Case = { geometry: WIDE, codec: { kind: 'full' }, choice: SINGLE, eviction };
    // Every step exchanges a token by its mass.
    for (const method of ['accumulated', 'by-token'] as const) await expectLong(of, 30, 30, method);
  });
});
