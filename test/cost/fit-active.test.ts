/**
 * Which points a calibration measures: never much worse than chance over the synthetic pools, and better where errors
 * are large.
 */
import { expect, test } from 'vitest';
import {
  candidatesOf,
  normalFrom,
  randomFrom,
  sampleOf,
  SYNTHETIC_KERNELS,
  type SyntheticKernel,
} from '../../scripts/coverage-experiment.js';
import { activeSelector, fitPredictor } from '../../src/cost/fit/fit.js';
import { makePredictor } from '../../src/cost/predictor.js';
import type { Sample } from '../../src/schema/calibration.js';
import { median } from '../../src/statistics.js';

const SEEDS = Number(process.env['SEEDS'] ?? 6);
const POINTS = 30;
const POOL = 400;
const NOISE = 0.05;
/** Over the published pools with 40 seeds the rule is at most 5 % worse; six seeds scatter by a few per cent more. */
const ALLOWED = SEEDS >= 40 ? 1.05 : 1.15;

type Errors = { median: number; p90: number };
type Choose = (samples: readonly Sample[], left: readonly Record<string, number>[]) => number;

/** Errors over what was not measured, log units. */
function errorsOf(synthetic: SyntheticKernel, seed: number, choose: Choose): Errors {
  const { kernel, variant } = synthetic;
  const left = candidatesOf(synthetic, POOL, randomFrom(seed + 20));
  const normal = normalFrom(randomFrom(seed * 99));
  const samples: Sample[] = [];
  while (samples.length < POINTS) {
    const [shape] = left.splice(choose(samples, left), 1);
    samples.push(sampleOf(kernel, variant, shape!, [synthetic.seconds(shape!) * Math.exp(NOISE * normal())]));
  }
  const predict = makePredictor(kernel, variant, samples, fitPredictor(kernel, variant, samples));
  const errors = left
    .map((shape) => Math.abs(Math.log(predict(shape).seconds / synthetic.seconds(shape))))
    .sort((a, b) => a - b);
  return { median: median(errors), p90: errors[Math.floor(0.9 * errors.length)]! };
}

const geometricMean = (values: readonly number[]): number =>
  Math.exp(values.reduce((sum, v) => sum + Math.log(v), 0) / values.length);

test.each(SYNTHETIC_KERNELS.map((s) => [s.title, s] as const))(
  '%s',
  (title, synthetic) => {
    const seeds = Array.from({ length: SEEDS }, (_, i) => i + 1);
    const chosen = seeds.map((seed) => errorsOf(synthetic, seed, activeSelector(synthetic.kernel, synthetic.variant)));
    const random = seeds.map((seed) => {
      const draw = randomFrom(seed * 77);
      return errorsOf(synthetic, seed, (_, left) => Math.floor(draw() * left.length));
    });
    const ratio = (which: keyof Errors): number =>
      geometricMean(chosen.map((e) => e[which])) / geometricMean(random.map((e) => e[which]));
    if (process.env['SEEDS'] !== undefined)
      console.log(`${title}: median ${ratio('median').toFixed(3)}, 90th ${ratio('p90').toFixed(3)} of random`);
    expect(ratio('median'), 'median').toBeLessThan(ALLOWED);
    expect(ratio('p90'), '90th percentile').toBeLessThan(ALLOWED);
    // Waves are where errors are large: there choosing has to pay.
    if (synthetic.kernel === 'attend_rebuild') expect(ratio('p90')).toBeLessThan(1);
  },
  60_000,
);

test('the choice is the same for the same samples, and every candidate can be chosen', () => {
  const synthetic = SYNTHETIC_KERNELS[0]!;
  const { kernel, variant } = synthetic;
  const pool = candidatesOf(synthetic, 60, randomFrom(3));
  const run = (): number[] => {
    const select = activeSelector(kernel, variant);
    const left = [...pool];
    const samples: Sample[] = [];
    const order: number[] = [];
    while (left.length > 0) {
      const [shape] = left.splice(select(samples, left), 1);
      order.push(pool.indexOf(shape!));
      samples.push(sampleOf(kernel, variant, shape!, [synthetic.seconds(shape!)]));
    }
    return order;
  };
  const order = run();
  expect(run()).toEqual(order);
  expect([...order].sort((a, b) => a - b)).toEqual(pool.map((_, i) => i));
}, 20_000);

test('another order of the candidates leads to other choices: it is not the least certain of all', () => {
  const synthetic = SYNTHETIC_KERNELS[0]!;
  const { kernel, variant } = synthetic;
  const pool = candidatesOf(synthetic, POOL, randomFrom(5));
  const samples = pool.splice(0, 20).map((shape) => sampleOf(kernel, variant, shape, [synthetic.seconds(shape)]));
  const select = activeSelector(kernel, variant);
  const chosen = Array.from({ length: 12 }, (_, turn) => {
    const turned = [...pool.slice(29 * turn), ...pool.slice(0, 29 * turn)];
    return turned[select(samples, turned)];
  });
  expect(new Set(chosen).size).toBeGreaterThan(8);
});
