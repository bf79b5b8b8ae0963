/**
 * Prompts taken in whole, on the GPU, against the two passes of the float64 reference; then decoding goes on from the
 * cache that they left.
 */
import { expect } from 'vitest';
import { takesPositions } from '../../src/codecs/registry.js';
import { prefillPeaks } from '../../src/cost/memory.js';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { configurationOf, expectWithin, open, relative, type Case } from './gpu-cases.js';
import { followersOf, isFollowed } from './gpu-follow.js';
import { promptOf } from './models.js';

const LENGTHS = [45, 1, 12];
/** So that the longest prompt has two chunks. */
const CHUNK_TOKENS = 32;
const STEPS = 4;

export async function expectWhole(device: Device, of: Case): Promise<void> {
  const { vocab } = of.geometry;
  const prompts = LENGTHS.map((length, i) => promptOf(of.geometry, length + STEPS, SEED + 30 + i));
  const decoder = await open(device, of, { batch: LENGTHS.length, prefillChunkTokens: CHUNK_TOKENS });
  const { references, follow, extend } = followersOf(decoder, of, prompts);
  const before = decoder.allocations.length;
  try {
    const starts = prompts.map((prompt, i) => prompt.slice(0, LENGTHS[i]));
    const result = await decoder.prefill(starts);
    expect(result.method).toBe('accumulated');
    expect(decoder.lengths).toEqual(LENGTHS);
    const bytes = decoder.prefillAllocations.filter((a) => a.kind === 'prefill').reduce((sum, a) => sum + a.bytes, 0);
    expect(bytes).toBe(prefillPeaks(configurationOf(of), Math.max(...LENGTHS), CHUNK_TOKENS).accumulated);
    expect(decoder.allocations, 'weights that only prefill needs').toHaveLength(before);
    const takeIn = async (): Promise<Vector[]> => {
      await follow();
      return references.map((reference, i) => reference.prefill(starts[i]!, 'accumulated').at(-1)!);
    };
    /** Where tokens are evicted after each run of several, the same once more, run by run. */
    const takeInRuns = async (): Promise<Vector[]> => {
      const together = await decoder.logits();
      decoder.reset();
      const expected = await extend(starts, CHUNK_TOKENS);
      expect(await decoder.logits(), 'run by run, to the bit').toEqual(together);
      return expected;
    };
    let expected = await (isFollowed(of) && takesPositions(of.codec) ? takeInRuns() : takeIn());
    for (let step = 0; ; step++) {
      const logits = await decoder.logits();
      const errors = expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row));
      expectWithin(Math.max(...errors), of, prompts, `step ${step}`);
      if (step === STEPS) break;
      const next = prompts.map((prompt, i) => prompt[LENGTHS[i]! + step]!);
      await decoder.step(next);
      await follow();
      expected = references.map((reference, i) => reference.step(next[i]!));
    }
  } finally {
    decoder.close();
  }
}
