import { inverse, Matrix } from 'ml-matrix';
import { describe, expect, it } from 'vitest';
import { normalFrom, randomFrom } from '../../scripts/coverage-experiment.js';
import { covarianceFactor, Posterior, type Hyperparameters } from '../../src/cost/covariance.js';
import {
  fitHyperparameters,
  looDeviation,
  looResidual,
  negativeLogPosterior,
  precision,
  type Points,
} from '../../src/cost/fit/gp.js';
import { dot, inverseFromFactor } from '../../src/cost/linear.js';

const random = randomFrom(3);
const normal = normalFrom(random);
const hyper: Hyperparameters = { signalVariance: 0.09, noiseVariance: 4e-4, lengthScales: [2, 5] };

function cloud(n: number, d: number): Points {
  return { n, d, x: Float64Array.from({ length: n * d }, () => 8 * random()) };
}

const row = ({ x, d }: Points, i: number) => [...x.subarray(i * d, i * d + d)];

/** Matérn-3/2 written out from its definition. */
function covariance(a: number[], b: number[], { signalVariance, lengthScales }: Hyperparameters): number {
  const r = Math.hypot(...a.map((v, axis) => (v - b[axis]!) / lengthScales[axis]!));
  return signalVariance * (1 + Math.sqrt(3) * r) * Math.exp(-Math.sqrt(3) * r);
}

/** Posterior mean and deviation of a new measurement, densely. */
function naive(
  points: number[][],
  y: number[],
  place: number[],
  h: Hyperparameters,
): { mean: number; deviation: number } {
  const matrix = points.map((a, i) => points.map((b, j) => covariance(a, b, h) + (i === j ? h.noiseVariance : 0)));
  const weightsOf = inverse(new Matrix(matrix)).to2DArray();
  const k = points.map((a) => covariance(a, place, h));
  const weights = weightsOf.map((values) => values.reduce((sum, v, j) => sum + v * k[j]!, 0));
  return {
    mean: weights.reduce((sum, w, i) => sum + w * y[i]!, 0),
    deviation: Math.sqrt(h.signalVariance + h.noiseVariance - weights.reduce((sum, w, i) => sum + w * k[i]!, 0)),
  };
}

describe('Gaussian process', () => {
  const points = cloud(25, 2);
  const y = Float64Array.from({ length: 25 }, (_, i) => Math.sin(points.x[2 * i]!) * 0.3 + 0.02 * normal());

  it('has the posterior of a naive dense implementation', () => {
    const posterior = new Posterior(points.x, y, hyper);
    const all = Array.from({ length: 25 }, (_, i) => row(points, i));
    for (const place of [[1, 2], [7.5, 0.1], [30, -4], all[3]!]) {
      const { mean, deviation, point } = posterior.at(Float64Array.from(place));
      const expected = naive(all, [...y], place, hyper);
      expect(mean).toBeCloseTo(expected.mean, 10);
      expect(deviation).toBeCloseTo(expected.deviation, 10);
      expect(point).toBe(place === all[3] ? 3 : -1);
    }
  });

  it('leaves one out in closed form as by deleting the point', () => {
    const q = precision(points, hyper);
    for (const i of [0, 7, 24]) {
      const others = Array.from({ length: 25 }, (_, j) => j).filter((j) => j !== i);
      const expected = naive(
        others.map((j) => row(points, j)),
        others.map((j) => y[j]!),
        row(points, i),
        hyper,
      );
      expect(looResidual(q, y, 25, i)).toBeCloseTo(y[i]! - expected.mean, 9);
      expect(looDeviation(q, 25, i)).toBeCloseTo(expected.deviation, 9);
    }
  });

  it('inverts the covariance', () => {
    const own = inverseFromFactor(covarianceFactor(points.x, 25, hyper), 25);
    const v = Float64Array.from({ length: 25 }, normal);
    const matrix = Float64Array.from({ length: 625 }, (_, at) => {
      const [i, j] = [Math.floor(at / 25), at % 25];
      return covariance(row(points, i), row(points, j), hyper) + (i === j ? hyper.noiseVariance : 0);
    });
    const times = (m: Float64Array, u: Float64Array) => u.map((_, i) => dot(m.subarray(25 * i, 25 * i + 25), u));
    times(matrix, times(own, v)).forEach((value, i) => expect(value).toBeCloseTo(v[i]!, 8));
  });

  it('finds hyperparameters that explain the data better than the prior does', () => {
    const many = cloud(80, 2);
    // A draw from the process itself: L z has covariance L Lᵀ.
    const factor = covarianceFactor(many.x, 80, hyper);
    const z = Float64Array.from({ length: 80 }, normal);
    const drawn = z.map((_, i) => z.reduce((sum, value, j) => (j <= i ? sum + factor[i * 80 + j]! * value : sum), 0));
    const found = fitHyperparameters(many, drawn);
    expect(Math.sqrt(found.signalVariance)).toBeGreaterThan(0.15);
    expect(Math.sqrt(found.signalVariance)).toBeLessThan(0.6);
    expect(Math.sqrt(found.noiseVariance)).toBeGreaterThan(0.005);
    expect(Math.sqrt(found.noiseVariance)).toBeLessThan(0.06);
    expect(found.lengthScales[1]!).toBeGreaterThan(found.lengthScales[0]!);
    const least = negativeLogPosterior(many, drawn, found);
    // No neighbour in any direction is much better.
    for (let trial = 0; trial < 50; trial++) {
      const factor = () => Math.exp(0.1 * normal());
      const near = {
        signalVariance: found.signalVariance * factor(),
        noiseVariance: found.noiseVariance * factor(),
        lengthScales: found.lengthScales.map((length) => length * factor()),
      };
      expect(negativeLogPosterior(many, drawn, near)).toBeGreaterThan(least - 0.05);
    }
    // Started at its own result it stays there.
    const again = fitHyperparameters(many, drawn, found);
    expect(again.signalVariance / found.signalVariance).toBeCloseTo(1, 1);
  });
});
