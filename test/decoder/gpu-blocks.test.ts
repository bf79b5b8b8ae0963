/**
 * The block-absorbed path in every way of decoding and of taking prompts in. Its kernels add up across eight threads of
 * a subgroup, so that a software adapter takes longer to compile them than those of the other paths.
 */
import { test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import type { Case } from './gpu-cases.js';
import { ALL, BATCH_CASES, CAPTURED_CASES, CASES, label, onFewThreads, PREFILL_CASES, singles } from './gpu-list.js';
import { expectNaN } from './gpu-nan.js';
import { LONG_CASES, longTest, WIDE_BATCH_CASES, wideBatchTest } from './gpu-longs.js';
import { DIVIDED_CASES, dividedTest, EVICTED_CASES, evictedTest, splitTest } from './gpu-divided.js';
import { CAPTURING, CHUNKED, expectChunks, expectRagged, expectWhole } from './gpu-prompts.js';
import { expectRounded, expectSteps } from './gpu-steps.js';
import { BLOCK_CASES, followRounds } from './gpu-speculate.js';

const onEight = (cases: readonly Case[]): Case[] => cases.filter((of) => !onFewThreads(of)).map(singles);

describeGpu(`block-absorbed (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of onEight(CASES)) test(`steps: ${label(of)}`, () => expectSteps(device, of));
  for (const of of onEight(BATCH_CASES)) test(`a ragged batch: ${label(of)}`, () => expectRagged(device, of));
  for (const of of onEight(PREFILL_CASES)) test(`a whole prompt: ${label(of)}`, () => expectWhole(device, of));
  for (const { of, chunkTokens } of CHUNKED.filter(({ of }) => !onFewThreads(of)))
    test(`chunks of ${chunkTokens}: ${label(of)}`, () => expectChunks(device, of, chunkTokens));
  for (const of of onEight(CAPTURED_CASES))
    for (const kind of CAPTURING) test(`${kind}: ${label(of)}`, () => expectWhole(device, of, kind));

  for (const of of LONG_CASES.filter((of) => !onFewThreads(of))) longTest(device, of);
  for (const of of WIDE_BATCH_CASES.filter((of) => !onFewThreads(of))) wideBatchTest(device, of);
  for (const of of DIVIDED_CASES.filter((of) => !onFewThreads(of))) dividedTest(device, of);
  for (const of of EVICTED_CASES.filter((of) => !onFewThreads(of))) evictedTest(device, of);
  splitTest(device);
  for (const of of BLOCK_CASES)
    test(`speculation: ${label(of)}`, async () => {
      await followRounds(device, of);
    });

  test('NaN in the weights of queries or keys reaches the logits', () =>
    expectNaN(
      device,
      ALL.find((of) => !onFewThreads(of))!,
      5,
    ));

  test('a cache in f16', () => expectRounded(device, 'block-absorbed'));
});
