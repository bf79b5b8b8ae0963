/** The GPU decoder against the float64 reference: logits of steps that fill a tile of the cache and begin another. */
import { expect } from 'vitest';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { errorsOf, expectWithin, ROUNDED_TOLERANCE, roundingOf, TOLERANCE, type Case } from './gpu-cases.js';
import { ALL, label } from './gpu-list.js';
import { promptOf } from './models.js';

const STEPS = 36;
/** Prompts of which one must agree in every step, where codes may fall to either side. */
const PROMPTS = 4;

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
