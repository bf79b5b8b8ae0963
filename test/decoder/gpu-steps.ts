/** The GPU decoder against the float64 reference: logits of steps that fill a tile of the cache and begin another. */
import { expect } from 'vitest';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import type { GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import { expectWithin, open, relative, ROUNDED_TOLERANCE, roundingOf, TOLERANCE, type Case } from './gpu-cases.js';
import { followersOf } from './gpu-kept.js';
import { ALL, label } from './gpu-list.js';
import { promptOf } from './models.js';

const STEPS = 36;
/** Prompts of which one must agree in every step, where codes may fall to either side. */
const PROMPTS = 4;

/**
 * Errors of every step of a random prompt, decoded on both sides, and whether the tokens were those of the largest
 * logits.
 */
export async function errorsOf(
  device: Device,
  of: Case,
  steps: number,
  options: Partial<GpuDecoderOptions> = {},
  seed = SEED + 1,
): Promise<number[]> {
  const tokens = promptOf(of.geometry, steps, seed);
  const decoder = await open(device, of, { contextTokens: Math.max(100, steps), ...options });
  const { references, follow } = followersOf(decoder, of, [tokens]);
  const errors: number[] = [];
  try {
    for (const token of tokens) {
      const result = await decoder.step([token]);
      await follow();
      const expected = (references[0] as ReferenceDecoder).step(token);
      const actual = await decoder.logits();
      errors.push(relative(actual, expected));
      let best = 0;
      actual.forEach((x, i) => (best = x > (actual[best] as number) ? i : best));
      expect(result.tokens[0]).toBe(best);
    }
  } finally {
    decoder.close();
  }
  return errors;
}

export async function expectSteps(device: Device, of: Case): Promise<void> {
  if (of.codec.bits !== undefined) return expectQuantised(device, of);
  const errors = await errorsOf(device, of, STEPS);
  const prompt = promptOf(of.geometry, STEPS, SEED + 1);
  expectWithin(Math.max(...errors), of, [prompt]);
  expectWithin(8 * ([...errors].sort((a, b) => a - b)[STEPS >> 1] as number), of, [prompt], 'median');
}

/**
 * A code that lies between two levels may fall to either side, and changes all that follows. That is rare: what
 * precedes it agrees, and of some prompts one has no such code.
 */
async function expectQuantised(device: Device, of: Case): Promise<void> {
  const found: number[][] = [];
  for (let i = 0; i < PROMPTS; i++) {
    const errors = await errorsOf(device, of, STEPS, {}, SEED + 1 + i);
    expect(Math.max(...errors.slice(0, STEPS / 8)), `the first steps of prompt ${i}`).toBeLessThan(ROUNDED_TOLERANCE);
    if (Math.max(...errors) < ROUNDED_TOLERANCE) return;
    found.push(errors);
  }
  expect(found, 'errors of all steps, by prompt').toEqual([]);
}

/** A cache in f16: rows between two halves may be rounded to either, which is seen and fades. */
export async function expectRounded(device: Device, path: string): Promise<void> {
  const of = ALL.find(
    (c) =>
      c.geometry.name === 'ouro-like' && (c.path ?? 'full') === path && (path === 'full' || c.codec.kind === 'lla'),
  ) as Case;
  const errors = (await errorsOf(device, of, STEPS)).sort((a, b) => a - b);
  const rounding = roundingOf(of, [promptOf(of.geometry, STEPS, SEED + 1)]);
  expect(errors[STEPS / 2], label(of)).toBeLessThan(Math.max(TOLERANCE, rounding));
  expect(errors.at(-1), label(of)).toBeLessThan(Math.max(TOLERANCE, 2 * rounding));
}
