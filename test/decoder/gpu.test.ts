/** The GPU decoder against the float64 reference: logits of 64 steps. */
import { expect, test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { errorsOf, expectWithin, roundingOf, TOLERANCE, type Case } from './gpu-cases.js';
import { ALL, CASES, label, singles } from './gpu-list.js';
import { promptOf } from './models.js';

const STEPS = 64;

describeGpu(`GPU decoder (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CASES.map(singles)) {
    test(label(of), { timeout: 600_000 }, async () => {
      const errors = await errorsOf(device, of, STEPS);
      // A code that lies between two levels may fall to either side, and changes what follows: what precedes it must
      // agree.
      const checked = of.codec.bits === undefined ? errors : errors.slice(0, STEPS / 8);
      const prompt = promptOf(of.geometry, STEPS, SEED + 1).slice(0, checked.length);
      expectWithin(Math.max(...checked), of, [prompt]);
      expectWithin(8 * ([...checked].sort((a, b) => a - b)[checked.length >> 1] as number), of, [prompt], 'median');
    });
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
