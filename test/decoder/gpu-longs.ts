/**
 * Contexts beyond one split and one plan, odd ranks, and batches that the tiled product takes, against the float64
 * reference.
 */
import { test } from 'vitest';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { expectWithin, opened, referenceOf, relative, type Case } from './gpu-cases.js';
import { beside } from './gpu-beside.js';
import { label, named } from './gpu-list.js';
import { promptOf, SINGLE } from './models.js';

export const WIDE: Geometry = {
  ...named('grouped pre-norm'),
  name: 'wider',
  layers: 1,
  heads: 4,
  kvHeads: 2,
  headDim: 32,
  hidden: 48,
  mlpHidden: 80,
  vocab: 61,
  rope: { theta: 1e6, pairing: 'half-split' },
  maxPositions: 4096,
};
export const LLA = { kind: 'lla', rankK: 27, rankV: 45 } as const;
const TOKENS = 272;
/** So many of them are taken in at once: steps go on from there beyond 256 tokens, where another plan begins. */
const TAKEN_IN = 250;
/** Where H2O evicts, all of fewer tokens are decoded one by one. */
const WEIGHED = 190;

const LLA_CASE = { codec: LLA, path: 'block-absorbed' } as const;
const CASES: Case[] = [
  { codec: { kind: 'full' } as const },
  { codec: LLA, path: 'reconstruct' as const },
  LLA_CASE,
  { codec: LLA, path: 'absorbed' as const, branch: { width: 16, perHead: false } },
  {
    codec: LLA,
    path: 'reconstruct' as const,
    eviction: { policy: 'h2o', heavyTokens: 130, recentTokens: 24, budgetTokens: 154 } as const,
  },
  {
    ...LLA_CASE,
    eviction: { policy: 'streaming', sinkTokens: 5, windowTokens: 262, budgetTokens: 267 } as const,
  },
].map((of) => ({ geometry: WIDE, choice: SINGLE, ...of }));

/** Cases of this run, others by another seed. */
export const LONG_CASES = everyNth(CASES, 3);
/** The same of batches. */
export const WIDE_BATCH_CASES = everyNth(CASES.slice(0, 4), 2);

const spanOf = (of: Case): readonly [total: number, takenIn: number] =>
  of.eviction?.policy === 'h2o' ? [WEIGHED, 0] : [TOKENS, TAKEN_IN];

export function longTest(device: Device, of: Case): void {
  const [total, takenIn] = spanOf(of);
  test(`${label(of)}: ${total} tokens`, async () => {
    const tokens = promptOf(WIDE, total, SEED + 3);
    const own = { ...of, targetWorkgroups: 64 };
    await beside(device, own, [tokens], { contextTokens: total }, async ({ decoder, step, errorOf, prefilled }) => {
      let worst = 0;
      const prompt = tokens.slice(0, takenIn);
      if (takenIn > 0) {
        await decoder.prefill([prompt], 'accumulated');
        worst = await errorOf(await prefilled([prompt], 'accumulated'));
      }
      for (let i = takenIn; i < total; i++) {
        const expected = await step([tokens[i]!]);
        if (i % 32 === 0 || i > total - 8) worst = Math.max(worst, await errorOf(expected));
      }
      expectWithin(worst, of, [tokens]);
    });
  });
}

export function wideBatchTest(device: Device, of: Case): void {
  test(`${label(of)}: a batch of 19 decodes as 19 batches of one`, async () => {
    const prompts = Array.from({ length: 19 }, (_, i) => promptOf(WIDE, 1 + (i % 4), SEED + 20 + i));
    await opened(device, of, { batch: 19 }, async (decoder) => {
      await decoder.prefill(prompts, 'by-token');
      const logits = await decoder.logits();
      prompts.forEach((prompt, i) => {
        const reference = referenceOf(of);
        const expected = prompt.map((token) => reference.step(token)).at(-1) as Float64Array;
        expectWithin(
          relative(logits.subarray(i * WIDE.vocab, (i + 1) * WIDE.vocab), expected),
          of,
          [prompt],
          `${label(of)}, sequence ${i}`,
        );
      });
    });
  });
}
