/**
 * Prompts of several lengths on the GPU against the float64 reference: token by token, in whole, and chunk by chunk;
 * then decoding goes on from the cache that they left.
 */
import { expect } from 'vitest';
import { takesPositions } from '../../src/codecs/registry.js';
import { prefillPeaks } from '../../src/cost/memory.js';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import type { Device } from '../../src/gpu/index.js';
import { mix } from '../../src/numbers/hash.js';
import type { CapturingKind } from '../../src/schedule/prefill/prefill.js';
import { randomOf, SEED } from '../gpu/random.js';
import { beside } from './gpu-beside.js';
import { configurationOf, opened, referenceOf, type Case } from './gpu-cases.js';
import { isFollowed } from './gpu-follow.js';
import { CHUNKED_CASES, singles } from './gpu-list.js';
import { promptOf } from './models.js';

const STEPS = 4;
const promptsOf = (of: Case, lengths: readonly number[], more: number): number[][] =>
  lengths.map((length, i) => promptOf(of.geometry, length + more, SEED + 10 + i));
const startsOf = (prompts: readonly number[][], lengths: readonly number[]): number[][] =>
  prompts.map((prompt, i) => prompt.slice(0, lengths[i]));
const bytesOf = ({ prefillAllocations }: GpuDecoder): number =>
  prefillAllocations.reduce((sum, { kind, bytes }) => sum + (kind === 'prefill' ? bytes : 0), 0);

/** Sequences of different lengths decoded together. */
export async function expectRagged(device: Device, of: Case): Promise<void> {
  const lengths = [33, 1, 12];
  const steps = 6;
  const prompts = promptsOf(of, lengths, steps);
  await beside(device, of, prompts, {}, async ({ decoder, references, follow, goOn }) => {
    const expected: Vector[] = [];
    if (!isFollowed(of)) await decoder.prefill(startsOf(prompts, lengths), 'by-token');
    // The same one by one, so that references can follow each step. Shorter prompts begin later.
    const longest = Math.max(...lengths);
    for (let at = 0; at < longest; at++) {
      const tokens = prompts.map((prompt, i) => prompt[at - longest + lengths[i]!]);
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
    await goOn(expected, lengths, steps);
    expect(decoder.lengths).toEqual(lengths.map((n) => n + steps));
  });
}

export const CAPTURING: readonly CapturingKind[] = ['one-shot', 'by-layer'];

/** Prompts in two passes, in the bytes that the memory model says. */
export async function expectWhole(
  device: Device,
  of: Case,
  kind: CapturingKind | 'accumulated' = 'accumulated',
): Promise<void> {
  const lengths = [45, 1, 12];
  // So that the longest prompt has two chunks.
  const prefillChunkTokens = 32;
  const prompts = promptsOf(of, lengths, STEPS);
  const starts = startsOf(prompts, lengths);
  await beside(device, of, prompts, { prefillChunkTokens }, async ({ decoder, extend, prefilled, goOn }) => {
    const before = decoder.allocations.length;
    const result = await decoder.prefill(starts, kind === 'accumulated' ? undefined : kind);
    expect(result.method).toBe(kind);
    expect(decoder.lengths).toEqual(lengths);
    const peaks = prefillPeaks(configurationOf(of), Math.max(...lengths), prefillChunkTokens);
    expect(bytesOf(decoder), `bytes of ${kind}`).toBe(peaks[kind]);
    expect(decoder.allocations, 'weights that only prefill needs').toHaveLength(before);
    /** Where tokens are evicted after each run of several, the same once more, run by run. */
    const takeInRuns = async (): Promise<Vector[]> => {
      const together = await decoder.logits();
      decoder.reset();
      const expected = await extend(starts, prefillChunkTokens);
      expect(await decoder.logits(), 'run by run, to the bit').toEqual(together);
      return expected;
    };
    const inRuns = kind === 'accumulated' && isFollowed(of) && takesPositions(of.codec);
    await goOn(await (inRuns ? takeInRuns() : prefilled(starts, kind)), lengths, STEPS, kind);
  });
}

const random = randomOf(mix(SEED + 3));
/** Cases and the tokens of a chunk. */
export const CHUNKED = CHUNKED_CASES.map((of) => ({ of: singles(of), chunkTokens: random.pick([7, 20, 32, 37]) }));

/** Chunks from nothing, behind tokens that were decoded, and behind a prompt that was itself taken in whole. */
export async function expectChunks(device: Device, of: Case, chunkTokens: number): Promise<void> {
  const [first, second] = [
    [45, 1, 22],
    [9, 41, 3],
  ] as const;
  const steps = 3;
  const ends = first.map((n) => n + steps);
  const taken = ends.map((n, i) => n + second[i]!);
  const prompts = promptsOf(of, taken, steps);
  const options = { prefillChunkTokens: chunkTokens, contextTokens: 130 };
  await beside(device, of, prompts, options, async ({ decoder, extend, prefilled, goOn }) => {
    const whole = async (parts: readonly (readonly number[])[]): Promise<void> => {
      expect((await decoder.prefill(parts, 'chunked')).method).toBe('chunked');
    };
    const takeIn = async (parts: readonly (readonly number[])[]): Promise<Vector[]> => {
      if (isFollowed(of)) return extend(parts, chunkTokens);
      await whole(parts);
      return prefilled(parts, 'chunked', chunkTokens);
    };
    const starts = startsOf(prompts, first);
    await whole(starts);
    expect(bytesOf(decoder)).toBe(prefillPeaks(configurationOf(of), Math.max(...first), chunkTokens).chunked);
    const together = await decoder.logits();
    decoder.reset();
    const expected = await takeIn(starts);
    expect(await decoder.logits(), 'the same prompts once more, to the bit').toEqual(together);
    await goOn(expected, first, steps, 'the first prompt, and behind it');
    const behind = await takeIn(prompts.map((prompt, i) => prompt.slice(ends[i], ends[i]! + second[i]!)));
    await goOn(behind, taken, steps, 'the second prompt, and behind both');
    expect(decoder.lengths).toEqual(taken.map((n) => n + steps));
  });
}

/** Where a prompt attends exactly and the cache keeps no exact rows, it is one run, and follows nothing. */
export async function expectWholeAlone(device: Device, of: Case): Promise<void> {
  const prompt = promptOf(of.geometry, 45, SEED + 60);
  await opened(device, of, { prefillChunkTokens: 20 }, async (decoder) => {
    await decoder.prefill([prompt], 'chunked');
    const chunked = await decoder.logits();
    decoder.reset();
    await decoder.prefill([prompt], 'accumulated');
    expect(await decoder.logits(), 'whatever the method, to the bit').toEqual(chunked);
    await expect(decoder.extend(0, prompt, true)).rejects.toThrow('takes a prompt in whole');
    await expect(decoder.prefill([prompt], 'chunked')).rejects.toThrow('takes a prompt in whole');
    expect(decoder.lengths).toEqual([45]);
    await decoder.step([prompt[0]!]);
  });
  const reference = referenceOf(of);
  reference.prefill(prompt, 'chunked', 20);
  expect(() => reference.prefill(prompt, 'chunked', 20)).toThrow('takes a prompt in whole');
}
