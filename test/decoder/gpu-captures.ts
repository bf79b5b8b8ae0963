/**
 * Prompts taken in whole by captures, on the GPU, against the same kind of the float64 reference, in the bytes that the
 * memory model says.
 */
import { expect } from 'vitest';
import { prefillPeaks } from '../../src/cost/memory.js';
import type { Allocation } from '../../src/decoder/gpu/allocations.js';
import type { Device } from '../../src/gpu/index.js';
import type { CapturingKind } from '../../src/schedule/prefill/prefill.js';
import { SEED } from '../gpu/random.js';
import { configurationOf, expectWithin, open, relative, type Case } from './gpu-cases.js';
import { followersOf } from './gpu-follow.js';
import { promptOf } from './models.js';

export const KINDS: readonly CapturingKind[] = ['one-shot', 'by-layer'];
const LENGTHS = [45, 1, 12];
/** So that the longest prompt has two chunks. */
const CHUNK_TOKENS = 32;
const STEPS = 3;

export const promptsOf = (of: Case): number[][] =>
  LENGTHS.map((length, i) => promptOf(of.geometry, length + STEPS, SEED + 40 + i));
const bytesOf = (allocations: readonly Allocation[]): number =>
  allocations.filter((a) => a.kind === 'prefill').reduce((sum, a) => sum + a.bytes, 0);
const peakOf = (of: Case, kind: CapturingKind): number =>
  prefillPeaks(configurationOf(of), Math.max(...LENGTHS), CHUNK_TOKENS)[kind];

/**
 * Errors of the logits after each prompt and after each of some steps that go on from it: the largest of all
 * sequences.
 */
export async function errorsAfter(
  device: Device,
  of: Case,
  kind: CapturingKind,
  prompts: readonly number[][],
): Promise<number[]> {
  const { vocab } = of.geometry;
  const decoder = await open(device, of, { batch: LENGTHS.length, prefillChunkTokens: CHUNK_TOKENS });
  const { references, follow } = followersOf(decoder, of, prompts);
  const before = decoder.allocations.length;
  const errors: number[] = [];
  try {
    const starts = prompts.map((prompt, i) => prompt.slice(0, LENGTHS[i]));
    const result = await decoder.prefill(starts, kind);
    expect(result.method).toBe(kind);
    expect(decoder.lengths).toEqual(LENGTHS);
    expect(bytesOf(decoder.prefillAllocations), `bytes of ${kind}`).toBe(peakOf(of, kind));
    expect(decoder.allocations, 'weights that only prefill needs').toHaveLength(before);
    await follow();
    let expected = references.map((reference, i) => reference.prefill(starts[i]!, kind).at(-1) as Float64Array);
    for (let step = 0; ; step++) {
      const logits = await decoder.logits();
      errors.push(Math.max(...expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row))));
      if (step === STEPS) return errors;
      const next = prompts.map((prompt, i) => prompt[LENGTHS[i]! + step]!);
      await decoder.step(next);
      await follow();
      expected = references.map((reference, i) => reference.step(next[i]!));
    }
  } finally {
    decoder.close();
  }
}

export async function expectCaptured(device: Device, of: Case, kind: CapturingKind): Promise<void> {
  const prompts = promptsOf(of);
  for (const [step, error] of (await errorsAfter(device, of, kind, prompts)).entries())
    expectWithin(error, of, prompts, `${kind}, step ${step}`);
}
