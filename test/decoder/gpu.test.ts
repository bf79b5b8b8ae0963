/** The GPU decoder against the float64 reference: logits of 64 steps. */
import { expect, test } from 'vitest';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { errorsOf, TOLERANCE } from './gpu-cases.js';
import { CASES, label, singles } from './gpu-list.js';

const STEPS = 64;

describeGpu(`GPU decoder (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CASES.map(singles)) {
    test(label(of), { timeout: 120_000 }, async () => {
      const errors = await errorsOf(device, of, STEPS);
      // A coarse code that lies between two levels may fall to either side, and changes what follows: what precedes it must agree.
      const checked = (of.codec.bits ?? 8) < 8 ? errors.slice(0, STEPS / 8) : errors;
      if (process.env.TRACE) console.log(label(of), Math.max(...errors).toExponential(1), errors.map((e) => e.toExponential(0)).join(' '));
      expect(Math.max(...checked)).toBeLessThan(TOLERANCE);
    });
  }
});
