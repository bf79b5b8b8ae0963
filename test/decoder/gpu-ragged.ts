/** Sequences of different lengths decoded together, each against the float64 reference of its own. */
import { expect } from 'vitest';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { expectWithin, open, relative, type Case } from './gpu-cases.js';
import { followersOf, isFollowed } from './gpu-follow.js';
import { promptOf } from './models.js';

const LENGTHS = [33, 1, 12];
const STEPS = 6;

export async function expectRagged(device: Device, of: Case): Promise<void> {
  const prompts = LENGTHS.map((length, i) => promptOf(of.geometry, length + STEPS, SEED + 10 + i));
  const decoder = await open(device, of, { batch: LENGTHS.length });
  const { vocab } = of.geometry;
  const { references, follow } = followersOf(decoder, of, prompts);
  let expected: Float64Array[] = [];
  try {
    if (!isFollowed(of))
      await decoder.prefill(
        prompts.map((prompt, i) => prompt.slice(0, LENGTHS[i])),
        'by-token',
      );
    // The same one by one, so that references can follow each step. Shorter prompts begin later.
    const longest = Math.max(...LENGTHS);
    for (let at = 0; at < longest; at++) {
      const tokens = prompts.map((prompt, i) => prompt[at - longest + LENGTHS[i]!]);
      if (isFollowed(of))
        await decoder.step(
          tokens.map((token) => token ?? 0),
          (sequence) => tokens[sequence] !== undefined,
        );
      await follow();
      tokens.forEach((token, i) => {
        if (token !== undefined) expected[i] = references[i]!.step(token);
      });
    }
    for (let step = 0; ; step++) {
      const logits = await decoder.logits();
      const errors = expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row));
      expectWithin(Math.max(...errors), of, prompts);
      if (step === STEPS) break;
      const next = prompts.map((prompt, i) => prompt[LENGTHS[i]! + step]!);
      await decoder.step(next);
      await follow();
      expected = references.map((reference, i) => reference.step(next[i]!));
    }
    expect(decoder.lengths).toEqual(LENGTHS.map((n) => n + STEPS));
  } finally {
    decoder.close();
  }
}
