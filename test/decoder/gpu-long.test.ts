/** Long contexts (gpu-longs.ts) of kernels on few threads, and prompts of which H2O keeps the heaviest tokens. */
import '../gpu/narrow.js';
import { test } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { expectWithin, open, relative, type Case } from './gpu-cases.js';
import { followersOf } from './gpu-follow.js';
import { label, onFewThreads } from './gpu-list.js';
import { LLA, LONG_CASES, longTest, WIDE, WIDE_BATCH_CASES, wideBatchTest } from './gpu-longs.js';
import { decodeAll, promptOf, SINGLE } from './models.js';

const PROMPT = 190;
const STEPS = 6;

describeGpu(`GPU decoder, long contexts (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of LONG_CASES.filter(onFewThreads)) longTest(device, of);
  for (const of of WIDE_BATCH_CASES.filter(onFewThreads)) wideBatchTest(device, of);

  // The reference's attention over a whole prompt takes seconds: one of the two by each seed.
  for (const codec of [{ kind: 'full' }, LLA].slice(SEED % 2, (SEED % 2) + 1) as Codec[]) {
    const of: Case = {
      geometry: WIDE,
      codec,
      choice: SINGLE,
      eviction: { policy: 'h2o', heavyTokens: 130, recentTokens: 24, budgetTokens: 154 },
    };
    test(`${label(of)}: a prompt of ${PROMPT} tokens, of which the heaviest stay`, async () => {
      const tokens = promptOf(WIDE, PROMPT + STEPS, SEED + 4);
      const decoder = await open(
        device,
        { ...of, targetWorkgroups: 64 },
        { contextTokens: PROMPT + STEPS, prefillChunkTokens: 100 },
      );
      const { references, follow } = followersOf(decoder, of, [tokens]);
      const reference = references[0]!;
      try {
        await decoder.prefill([tokens.slice(0, PROMPT)]);
        await follow();
        let expected = reference.prefill(tokens.slice(0, PROMPT), 'accumulated').at(-1) as Float64Array;
        for (const token of tokens.slice(PROMPT)) {
          expectWithin(relative(await decoder.logits(), expected), of, [tokens]);
          await decoder.step([token]);
          await follow();
          expected = reference.step(token);
        }
        expectWithin(relative(await decoder.logits(), expected), of, [tokens]);
      } finally {
        decoder.close();
      }
    });
  }

  test('under H2O a prompt within the budget is what it is token by token, mass and all', async () => {
    const of: Case = {
      geometry: WIDE,
      codec: { kind: 'full' },
      choice: SINGLE,
      eviction: { policy: 'h2o', heavyTokens: 21, recentTokens: 9, budgetTokens: 30 },
    };
    const tokens = promptOf(WIDE, 60, SEED + 5);
    for (const method of ['accumulated', 'by-token'] as const) {
      const decoder = await open(device, of);
      const { references, follow } = followersOf(decoder, of, [tokens]);
      const reference = references[0]!;
      try {
        await decoder.prefill([tokens.slice(0, 30)], method);
        await follow();
        let expected = decodeAll(reference, tokens.slice(0, 30)).at(-1)!;
        // Every step exchanges a token by its mass.
        for (const token of tokens.slice(30)) {
          expectWithin(relative(await decoder.logits(), expected), of, [tokens], method);
          await decoder.step([token]);
          await follow();
          expected = reference.step(token);
        }
        expectWithin(relative(await decoder.logits(), expected), of, [tokens], method);
      } finally {
        decoder.close();
      }
    }
  });
});
