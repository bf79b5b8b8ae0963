/** The GPU decoder against the float64 reference: logits of steps that fill a tile of the cache and begin another. */
import { expect, test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { errorsOf, expectWithin, ROUNDED_TOLERANCE, roundingOf, TOLERANCE, type Case } from './gpu-cases.js';
import { ALL, CASES, label, singles } from './gpu-list.js';
import { promptOf } from './models.js';

const STEPS = 40;
/** Prompts of which one must agree in every step, where codes may fall to either side. */
const PROMPTS = 4;

describeGpu(`GPU decoder (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CASES.map(singles)) {
    test(label(of), { timeout: 600_000 }, async () => {
      if (of.codec.bits !== undefined) return quantised(of);
      const errors = await errorsOf(device, of, STEPS);
      const prompt = promptOf(of.geometry, STEPS, SEED + 1);
      expectWithin(Math.max(...errors), of, [prompt]);
      expectWithin(8 * ([...errors].sort((a, b) => a - b)[STEPS >> 1] as number), of, [prompt], 'median');
    });
  }

  /**
   * A code that lies between two levels may fall to either side, and changes all that follows. That is rare: what
   * precedes it agrees, and of some prompts one has no such code.
   */
  async function quantised(of: Case): Promise<void> {
    const found: number[][] = [];
    for (let i = 0; i < PROMPTS; i++) {
      const errors = await errorsOf(device, of, STEPS, {}, SEED + 1 + i);
      expect(Math.max(...errors.slice(0, STEPS / 8)), `the first steps of prompt ${i}`).toBeLessThan(ROUNDED_TOLERANCE);
      if (Math.max(...errors) < ROUNDED_TOLERANCE) return;
      found.push(errors);
    }
    expect(found, 'errors of all steps, by prompt').toEqual([]);
  }

  test(
    'a cache in f16: rows between two halves may be rounded to either, which is seen and fades',
    { timeout: 600_000 },
    async () => {
      for (const path of ['full', 'reconstruct', 'block-absorbed', 'fast']) {
        const of = ALL.find(
          (c) =>
            c.geometry.name === 'ouro-like' &&
            (c.path ?? 'full') === path &&
            (path === 'full' || c.codec.kind === 'lla'),
        ) as Case;
        const errors = (await errorsOf(device, of, STEPS)).sort((a, b) => a - b);
        const rounding = roundingOf(of, [promptOf(of.geometry, STEPS, SEED + 1)]);
        expect(errors[STEPS / 2], label(of)).toBeLessThan(Math.max(TOLERANCE, rounding));
        expect(errors.at(-1), label(of)).toBeLessThan(Math.max(TOLERANCE, 2 * rounding));
      }
    },
  );
});
