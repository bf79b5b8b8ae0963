/**
 * Contexts beyond one split and one plan, odd ranks, and batches that the tiled product takes, against the float64
 * reference.
 */
import { test } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { expectWithin, open, referenceOf, relative, type Case } from './gpu-cases.js';
import { label } from './gpu-list.js';
import { GEOMETRIES, promptOf } from './models.js';

const base = GEOMETRIES.find((g) => g.name === 'grouped pre-norm') as Geometry;
const WIDE: Geometry = {
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
const LLA = { kind: 'lla', rankK: 27, rankV: 45 } as const;
const SINGLE = { storage: 'f32', groupSize: 32 } as const;
const TOKENS = 290;
/** So many of them are taken in at once: steps go on from there beyond 256 tokens, where another plan begins. */
const TAKEN_IN = 244;
/** Where H2O evicts, all of fewer tokens are decoded one by one. */
const WEIGHED = 190;
const PROMPT = 190;
const STEPS = 6;

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

describeGpu(`GPU decoder, long contexts (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of everyNth(CASES, 3)) {
    const [total, takenIn] = of.eviction?.policy === 'h2o' ? [WEIGHED, 0] : [TOKENS, TAKEN_IN];
    test(`${label(of)}: ${total} tokens`, { timeout: 600_000 }, async () => {
      const tokens = promptOf(WIDE, total, SEED + 3);
      const reference = referenceOf(of);
      const decoder = await open(device, { ...of, targetWorkgroups: 64 }, { contextTokens: total });
      try {
        let worst = 0;
        if (takenIn > 0) {
          const expected = reference.prefill(tokens.slice(0, takenIn), 'accumulated').at(-1) as Float64Array;
          await decoder.prefill([tokens.slice(0, takenIn)], 'accumulated');
          worst = relative(await decoder.logits(), expected);
        }
        for (let i = takenIn; i < total; i++) {
          const expected = reference.step(tokens[i] as number);
          await decoder.step([tokens[i] as number]);
          if (i % 32 === 0 || i > total - 8) worst = Math.max(worst, relative(await decoder.logits(), expected));
        }
        expectWithin(worst, of, [tokens]);
      } finally {
        decoder.close();
      }
    });
  }

  // The reference's attention over a whole prompt takes seconds: one of the two by each seed.
  for (const codec of [{ kind: 'full' }, LLA].slice(SEED % 2, (SEED % 2) + 1) as Codec[]) {
    const of: Case = {
      geometry: WIDE,
      codec,
      choice: SINGLE,
      eviction: { policy: 'h2o', heavyTokens: 130, recentTokens: 24, budgetTokens: 154 },
    };
    test(`${label(of)}: a prompt of ${PROMPT} tokens, of which the heaviest stay`, { timeout: 600_000 }, async () => {
      const tokens = promptOf(WIDE, PROMPT + STEPS, SEED + 4);
      const reference = referenceOf(of);
      const decoder = await open(
        device,
        { ...of, targetWorkgroups: 64 },
        { contextTokens: PROMPT + STEPS, prefillChunkTokens: 100 },
      );
      try {
        let expected = reference.prefill(tokens.slice(0, PROMPT), 'accumulated').at(-1) as Float64Array;
        await decoder.prefill([tokens.slice(0, PROMPT)]);
        for (const token of tokens.slice(PROMPT)) {
          expectWithin(relative(await decoder.logits(), expected), of, [tokens]);
          expected = reference.step(token);
          await decoder.step([token]);
        }
        expectWithin(relative(await decoder.logits(), expected), of, [tokens]);
      } finally {
        decoder.close();
      }
    });
  }

  test(
    'under H2O a prompt within the budget is what it is token by token, mass and all',
    { timeout: 600_000 },
    async () => {
      const of: Case = {
        geometry: WIDE,
        codec: { kind: 'full' },
        choice: SINGLE,
        eviction: { policy: 'h2o', heavyTokens: 21, recentTokens: 9, budgetTokens: 30 },
      };
      const tokens = promptOf(WIDE, 60, SEED + 5);
      const [whole, single] = [await open(device, of), await open(device, of)];
      try {
        await whole.prefill([tokens.slice(0, 30)], 'accumulated');
        await single.prefill([tokens.slice(0, 30)], 'by-token');
        // Every step exchanges a token by its mass.
        for (const token of tokens.slice(30)) {
          expectWithin(relative(await whole.logits(), await single.logits()), of, [tokens]);
          await Promise.all([whole.step([token]), single.step([token])]);
        }
        expectWithin(relative(await whole.logits(), await single.logits()), of, [tokens]);
      } finally {
        whole.close();
        single.close();
      }
    },
  );

  test('a batch of 19 decodes as 19 batches of one', { timeout: 600_000 }, async () => {
    for (const of of everyNth(CASES.slice(0, 4), 2)) {
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
    }
  });
});
