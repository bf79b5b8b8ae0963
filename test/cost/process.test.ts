/** The process against a dense implementation of its definition. */
import { inverse, Matrix } from 'ml-matrix';
import { expect, it } from 'vitest';
import { cholesky } from '../../src/cost/linear.js';
import { Process, type Hyperparameters, type Places } from '../../src/cost/process.js';
import { randomFrom } from '../../src/numbers/random.js';
import { SEED } from '../gpu/random.js';

const random = randomFrom(SEED);
const hyper: Hyperparameters = {
  effectVariances: [0.2, 0.05],
  signalVariance: 0.09,
  noiseVariance: 4e-3,
  lengthScale: 2.5,
};
const OWN = 1e-3;
const draw = (n: number): Places => ({
  x: Array.from({ length: n }, () => [8 * random(), 8 * random()]),
  features: Array.from({ length: n }, () => [1, random()]),
});

/** Written out from the definition. */
function covariance(a: { x: ArrayLike<number>; f: ArrayLike<number> }, b: typeof a): number {
  const r = Math.hypot(a.x[0]! - b.x[0]!, a.x[1]! - b.x[1]!) / hyper.lengthScale;
  const [first, other] = hyper.effectVariances;
  return (
    first * a.f[0]! * b.f[0]! +
    other * a.f[1]! * b.f[1]! +
    hyper.signalVariance * (1 + Math.sqrt(3) * r) * Math.exp(-Math.sqrt(3) * r)
  );
}

function naive(places: Places, y: readonly number[], at: { x: ArrayLike<number>; f: ArrayLike<number> }, same = -1) {
  const all = places.x.map((x, i) => ({ x, f: places.features[i]! }));
  const matrix = all.map((a, i) => all.map((b, j) => covariance(a, b) + (i === j ? hyper.noiseVariance : 0)));
  const k = all.map((a, i) => covariance(a, at) + (i === same ? OWN : 0));
  const weights = inverse(new Matrix(matrix))
    .to2DArray()
    .map((row) => row.reduce((sum, v, j) => sum + v * k[j]!, 0));
  const explained = weights.reduce((sum, w, i) => sum + w * k[i]!, 0);
  return {
    mean: weights.reduce((sum, w, i) => sum + w * y[i]!, 0),
    deviation: Math.sqrt(covariance(at, at) + hyper.noiseVariance - explained),
  };
}

const places = draw(25);
const y = places.x.map((x) => 0.3 * Math.sin(x[0]!) + 0.05 * random());

it(`has the posterior of its definition, at points and between them (LLA_SIM_SEED=${SEED})`, () => {
  const process = new Process(places, y, hyper, OWN);
  for (const [x, f, same] of [
    [[1, 2], [1, 0.4], -1],
    [[30, -4], [1, 7], -1],
    [places.x[3]!, places.features[3]!, 3],
  ] as const) {
    const { mean, deviation, point } = process.at(x, f);
    const expected = naive(places, y, { x, f }, same);
    expect(mean).toBeCloseTo(expected.mean, 9);
    expect(deviation).toBeCloseTo(expected.deviation, 9);
    expect(point).toBe(same);
  }
  const nothing = new Process({ x: [], features: [] }, [], hyper).at([1, 2], [1, 0.5]);
  expect(nothing.mean).toBe(0);
  expect(nothing.deviation).toBeCloseTo(Math.sqrt(0.2 + 0.05 / 4 + 0.09 + 4e-3), 12);
});

it('says how other places vary together, given its points', () => {
  const others = draw(4);
  const found = new Process(places, y, hyper).covarianceOf(others);
  const at = (i: number) => ({ x: others.x[i]!, f: others.features[i]! });
  const all = places.x.map((x, i) => ({ x, f: places.features[i]! }));
  const precision = inverse(
    new Matrix(all.map((a, i) => all.map((b, j) => covariance(a, b) + (i === j ? hyper.noiseVariance : 0)))),
  );
  for (let a = 0; a < 4; a++)
    for (let b = 0; b < 4; b++) {
      const [ka, kb] = [at(a), at(b)].map((place) => all.map((point) => covariance(point, place)));
      const explained = new Matrix([ka!])
        .mmul(precision)
        .mmul(new Matrix([kb!]).transpose())
        .get(0, 0);
      expect(found[4 * a + b]).toBeCloseTo(covariance(at(a), at(b)) - explained, 9);
    }
});

it('leaves one out in closed form as by deleting the point', () => {
  const left = new Process(places, y, hyper).leftOut();
  for (const i of [0, 7, 24]) {
    const others = { x: places.x.filter((_, j) => j !== i), features: places.features.filter((_, j) => j !== i) };
    const at = { x: places.x[i]!, f: places.features[i]! };
    expect(left[i]!).toBeCloseTo(
      y[i]! -
        naive(
          others,
          y.filter((_, j) => j !== i),
          at,
        ).mean,
      8,
    );
  }
});

it('is less surprised by values drawn from itself than another process is', () => {
  const many = draw(60);
  const all = many.x.map((x, i) => ({ x, f: many.features[i]! }));
  const factor = cholesky(
    Float64Array.from(all.flatMap((a, i) => all.map((b, j) => covariance(a, b) + (i === j ? hyper.noiseVariance : 0)))),
    60,
    1e-12,
  );
  const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const z = Array.from({ length: 60 }, normal);
  const drawn = z.map((_, i) => z.reduce((sum, value, j) => (j <= i ? sum + factor[i * 60 + j]! * value : sum), 0));
  const surprise = (of: Partial<Hyperparameters>): number =>
    new Process(many, drawn, { ...hyper, ...of }).surprise(drawn);
  for (const other of [{ signalVariance: 3 }, { noiseVariance: 0.5 }, { lengthScale: 0.1 }])
    expect(surprise({})).toBeLessThan(surprise(other));
});
