/** The GPU decoder against the float64 reference: logits of steps that fill a tile of the cache and begin another. */
import { expect } from 'vitest';
import { isPacked } from '../../src/codecs/registry.js';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import type { GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import { expectWithin, inSingles, type Case } from './gpu-cases.js';
import { beside } from './gpu-beside.js';
import { ALL } from './gpu-list.js';
import { promptOf, F16 } from './models.js';

const STEPS = 36;

/**
 * Errors of every step of a random prompt, decoded on both sides, and whether the tokens were those of the largest
 * logits.
 */
export async function errorsOf(
  device: Device,
  of: Case,
  steps: number,
  options: Partial<GpuDecoderOptions> = {},
): Promise<number[]> {
  const tokens = promptOf(of.geometry, steps, SEED + 1);
  const own = { contextTokens: Math.max(100, steps), ...options };
  return beside(device, of, [tokens], own, async ({ decoder, references, follow, errorOf }) => {
    const errors: number[] = [];
    for (const token of tokens) {
      const result = await decoder.step([token]);
      await follow();
      errors.push(await errorOf([references[0]!.step(token)]));
      const logits = await decoder.logits();
      expect(result.tokens[0]).toBe(logits.indexOf(Math.max(...logits)));
    }
    return errors;
  });
}

export async function expectSteps(device: Device, of: Case): Promise<void> {
  const errors = await errorsOf(device, of, STEPS);
  // What nobody follows may be rounded to another neighbour.
  const single = isPacked(of.codec) ? of : inSingles(of);
  const prompt = promptOf(of.geometry, STEPS, SEED + 1);
  expectWithin(Math.max(...errors), single, [prompt]);
  expectWithin(8 * [...errors].sort((a, b) => a - b)[STEPS >> 1]!, single, [prompt], 'median');
}

/** A cache in f16. */
export const expectRounded = (device: Device, path: string): Promise<void> =>
  expectSteps(device, {
    ...ALL.find(
      (c) =>
        c.geometry.name === 'ouro-like' && (c.path ?? 'full') === path && (path === 'full' || c.codec.kind === 'lla'),
    )!,
    choice: F16,
  });
