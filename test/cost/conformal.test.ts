/** One quantile of left-out scores, and what a kernel without points is priced by. */
import { expect, it } from 'vitest';
import { conformalQuantile, KAPPA_UNTESTED, kappaOf, lackPerOctave, LEVEL } from '../../src/cost/conformal.js';
import { calibrationPricer, predictorsOf } from '../../src/cost/pricers.js';
import { fitting } from '../../src/cost/fit/fit.js';
import { workOf } from '../../kernels/registry.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Calibration, Sample } from '../../src/schema/calibration.js';
import { SEED } from '../gpu/random.js';

const random = randomFrom(SEED);

it(`is the ⌈0.9 (n + 1)⌉-th score; of groups that below which their mean share is as much (seed ${SEED})`, () => {
  for (let trial = 0; trial < 200; trial++) {
    const scores = Array.from({ length: 1 + Math.floor(60 * random()) }, random);
    const sorted = [...scores].sort((a, b) => a - b);
    const rank = Math.min(scores.length, Math.ceil(LEVEL * (scores.length + 1) - 1e-9));
    expect(conformalQuantile(scores)).toBe(sorted[rank - 1]);
    // A group of one is that score; one that is repeated counts no more than once.
    expect(conformalQuantile(scores.map((score) => [score]))).toBe(sorted[rank - 1]);
    const groups = Array.from({ length: 1 + Math.floor(8 * random()) }, () =>
      Array.from({ length: 1 + Math.floor(40 * random()) }, random),
    );
    const found = conformalQuantile(groups);
    const share = (limit: number, strictly: boolean): number =>
      groups.reduce((sum, g) => sum + g.filter((s) => (strictly ? s < limit : s <= limit)).length / g.length, 0) /
      groups.length;
    const enough = LEVEL * (1 + 1 / groups.flat().length);
    expect(share(found, true)).toBeLessThan(enough);
    expect(share(found, false)).toBeGreaterThanOrEqual(Math.min(1, enough) - 1e-6);
  }
  expect(conformalQuantile([])).toBe(0);
});

it('charges only what a width lacked, an octave or more away, and says where nothing was tested', () => {
  expect(lackPerOctave(-0.5, 0.2, 0.1)).toBeCloseTo(0.3, 12);
  expect(lackPerOctave(0.5, 0.2, 3)).toBeCloseTo(0.1, 12);
  expect(lackPerOctave(0.1, 0.2, 3)).toBe(0);
  expect(kappaOf([])).toBe(KAPPA_UNTESTED);
});

it(`prices a variant without points by the law of its class (seed ${SEED})`, () => {
  const whole = (least: number, most: number): number => Math.round(least * (most / least) ** random());
  const shapeOf = () => ({ rows: whole(1, 4096), width: whole(256, 8192) });
  const truth = (variant: string, shape: Record<string, number>): number => {
    const { readBytes, writeBytes } = workOf({ kernel: 'rmsnorm', variant, shape });
    return (4e-6 + (readBytes + writeBytes) / 6e10) * Math.exp(0.05 * (random() - 0.5));
  };
  const samples: Sample[] = ['norm', 'norm-add'].flatMap((variant) =>
    Array.from({ length: 8 }, () => {
      const shape = shapeOf();
      const { readBytes, writeBytes, flops } = workOf({ kernel: 'rmsnorm', variant, shape });
      const seconds = [truth(variant, shape)];
      return { variant, shape, tuning: {}, readBytes, writeBytes, flops, seconds, relativeError: 0 };
    }),
  );
  const ceilings = { readBytesPerSecond: 1e11, copyBytesPerSecond: 1e11, f32FlopsPerSecond: 1e12 } as never;
  const calibration = {
    ceilings,
    clock: { kind: 'timestamp' },
    overheads: { submitSeconds: 1e-5, dispatchSeconds: 4e-6 } as never,
    kernels: [{ kernel: 'rmsnorm', samples, predictors: {} }],
  } as unknown as Calibration;
  expect([...fitting(calibration)]).toHaveLength(1);
  expect([...predictorsOf(calibration, new Set()).keys()]).not.toContain('rmsnorm/add');
  const pricer = calibrationPricer(calibration, { stale: new Set(), link: null, source: '' });
  const errors = Array.from({ length: 50 }, () => {
    const shape = shapeOf();
    const { estimate, low, high, evidence } = pricer.price({ kernel: 'rmsnorm', variant: 'add', shape });
    expect(evidence).toBe('extrapolated');
    expect(low).toBeLessThan(estimate);
    expect(high).toBeGreaterThan(estimate);
    return Math.abs(Math.log(truth('add', shape) / estimate));
  });
  expect(errors.sort((a, b) => a - b)[25]).toBeLessThan(0.3);
  // Kernels that have changed tell nothing: then a roofline prices.
  const stale = calibrationPricer(calibration, { stale: new Set(['rmsnorm']), link: null, source: '' });
  expect(stale.price({ kernel: 'rmsnorm', variant: 'add', shape: shapeOf() }).evidence).toBe('roofline');
});
