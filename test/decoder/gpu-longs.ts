/**
 * Contexts beyond one split and one plan, odd ranks, and batches that the tiled product takes, against the float64
 * reference.
 */
import { test } from 'vitest';
import type { Geometry } from '../../src/geometry/geometry.js';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { expectWithin, open, referenceOf, relative, type Case } from './gpu-cases.js';
import { followersOf } from './gpu-follow.js';
import { label } from './gpu-list.js';
import { GEOMETRIES, promptOf, SINGLE } from './models.js';

const base = GEOMETRIES.find((g) => g.name === 'grouped pre-norm')!;
export const WIDE: Geometry = {
  ...base,
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

const CASES: Case[] = [
  { geometry: WIDE, codec: { kind: 'full' }, choice: SINGLE },
  { geometry: WIDE, codec: LLA, path: 'reconstruct', choice: SINGLE },
  { geometry: WIDE, codec: LLA, path: 'block-absorbed', choice: SINGLE },
  { geometry: WIDE, codec: LLA, path: 'absorbed', choice: SINGLE, branch: { width: 16, perHead: false } },
  {
    geometry: WIDE,
    codec: LLA,
    path: 'reconstruct',
    choice: SINGLE,
    eviction: { policy: 'h2o', heavyTokens: 130, recentTokens: 24, budgetTokens: 154 },
  },
  {
    geometry: WIDE,
    codec: LLA,
    path: 'block-absorbed',
    choice: SINGLE,
    eviction: { policy: 'streaming', sinkTokens: 5, windowTokens: 262, budgetTokens: 267 },
  },
];

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
    const decoder = await open(device, { ...of, targetWorkgroups: 64 }, { contextTokens: total });
    const { references, follow } = followersOf(decoder, of, [tokens]);
    const reference = references[0]!;
    try {
      let worst = 0;
      if (takenIn > 0) {
        const expected = reference.prefill(tokens.slice(0, takenIn), 'accumulated').at(-1) as Float64Array;
        await decoder.prefill([tokens.slice(0, takenIn)], 'accumulated');
        worst = relative(await decoder.logits(), expected);
      }
      for (let i = takenIn; i < total; i++) {
        await decoder.step([tokens[i]!]);
        await follow();
        const expected = reference.step(tokens[i]!);
        if (i % 32 === 0 || i > total - 8) worst = Math.max(worst, relative(await decoder.logits(), expected));
      }
      expectWithin(worst, of, [tokens]);
    } finally {
      decoder.close();
    }
  });
}

export function wideBatchTest(device: Device, of: Case): void {
  test(`${label(of)}: a batch of 19 decodes as 19 batches of one`, async () => {
    const prompts = Array.from({ length: 19 }, (_, i) => promptOf(WIDE, 1 + (i % 4), SEED + 20 + i));
    const decoder = await open(device, of, { batch: 19 });
    try {
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
    } finally {
      decoder.close();
    }
  });
}
