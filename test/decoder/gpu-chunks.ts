/**
 * Prompts taken in whole chunk by chunk, on the GPU, against the float64 reference: from nothing, behind tokens that
 * were decoded, and behind a prompt that was itself taken in whole; then decoding goes on from the cache that they
 * left.
 */
import { expect } from 'vitest';
import { prefillPeaks } from '../../src/cost/memory.js';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import type { Device } from '../../src/gpu/index.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED } from '../gpu/random.js';
import { configurationOf, expectWithin, open, referenceOf, relative, type Case } from './gpu-cases.js';
import { CHUNKED_CASES, singles } from './gpu-list.js';
import { followersOf, isFollowed } from './gpu-follow.js';
import { promptOf } from './models.js';

const random = randomOf(mix(SEED + 3));
/** Cases and the tokens of a chunk. */
export const CHUNKED = CHUNKED_CASES.map((of) => ({ of: singles(of), chunkTokens: random.pick([7, 20, 32, 37]) }));

const LENGTHS = [45, 1, 22];
const STEPS = 3;
/** Tokens of a second prompt. */
const SECOND = [9, 41, 3];

const total = (decoder: GpuDecoder): number =>
  decoder.prefillAllocations.reduce((sum, { kind, bytes }) => sum + (kind === 'prefill' ? bytes : 0), 0);

export async function expectChunks(device: Device, of: Case, chunkTokens: number): Promise<void> {
  const { vocab } = of.geometry;
  const prompts = LENGTHS.map((length, i) => promptOf(of.geometry, length + STEPS + SECOND[i]! + STEPS, SEED + 40 + i));
  const decoder = await open(device, of, {
    batch: LENGTHS.length,
    prefillChunkTokens: chunkTokens,
    contextTokens: 130,
  });
  const { references, follow, extend } = followersOf(decoder, of, prompts);
  const taken = LENGTHS.map(() => 0);
  const next = (sequence: number, count: number): number[] => {
    const from = taken[sequence]!;
    taken[sequence] = from + count;
    return prompts[sequence]!.slice(from, from + count);
  };
  const compare = async (expected: readonly Float64Array[], message: string): Promise<void> => {
    const logits = await decoder.logits();
    const errors = expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row));
    expectWithin(Math.max(...errors), of, prompts, message);
  };
  const whole = async (parts: readonly (readonly number[])[]): Promise<void> => {
    expect((await decoder.prefill(parts, 'chunked')).method).toBe('chunked');
  };
  const takeIn = async (lengths: readonly number[], message: string): Promise<void> => {
    const parts = lengths.map((length, i) => next(i, length));
    if (isFollowed(of)) return compare(await extend(parts, chunkTokens), message);
    await whole(parts);
    await compare(
      parts.map((part, i) => references[i]?.prefill(part, 'chunked', chunkTokens).at(-1) as Float64Array),
      message,
    );
  };
  const decode = async (message: string): Promise<void> => {
    for (let step = 0; step < STEPS; step++) {
      const tokens = LENGTHS.map((_, i) => next(i, 1)[0]!);
      await decoder.step(tokens);
      await follow();
      await compare(
        tokens.map((token, i) => references[i]?.step(token) as Float64Array),
        `${message}, step ${step}`,
      );
    }
  };
  try {
    await whole(prompts.map((prompt, i) => prompt.slice(0, LENGTHS[i])));
    expect(total(decoder)).toBe(prefillPeaks(configurationOf(of), Math.max(...LENGTHS), chunkTokens).chunked);
    const together = await decoder.logits();
    decoder.reset();
    await takeIn(LENGTHS, 'the first prompt');
    expect(await decoder.logits(), 'the same prompts once more, to the bit').toEqual(together);
    await decode('behind it');
    await takeIn(SECOND, 'the second prompt');
    await decode('behind both');
    expect(decoder.lengths).toEqual(taken);
  } finally {
    decoder.close();
  }
}

/** Where a prompt attends exactly and the cache keeps no exact rows, it is one run, and follows nothing. */
export async function expectWholeAlone(device: Device, of: Case): Promise<void> {
  const prompt = promptOf(of.geometry, 45, SEED + 60);
  const decoder = await open(device, of, { prefillChunkTokens: 20 });
  try {
    await decoder.prefill([prompt], 'chunked');
    const chunked = await decoder.logits();
    decoder.reset();
    await decoder.prefill([prompt], 'accumulated');
    expect(await decoder.logits(), 'whatever the method, to the bit').toEqual(chunked);
    await expect(decoder.extend(0, prompt, true)).rejects.toThrow('takes a prompt in whole');
    await expect(decoder.prefill([prompt], 'chunked')).rejects.toThrow('takes a prompt in whole');
    expect(decoder.lengths).toEqual([45]);
    await decoder.step([prompt[0]!]);
  } finally {
    decoder.close();
  }
  const reference = referenceOf(of);
  reference.prefill(prompt, 'chunked', 20);
  expect(() => reference.prefill(prompt, 'chunked', 20)).toThrow('takes a prompt in whole');
}
