/** The process against a dense implementation of its definition. */
import { inverse, Matrix } from 'ml-matrix';
import { expect, it } from 'vitest';
import { cholesky } from '../../src/cost/linear.js';
import { Process, type Hyperparameters, type Place } from '../../src/cost/process.js';
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
const draw = (n: number): Place[] =>
  Array.from({ length: n }, () => ({ x: [8 * random(), 8 * random()], features: [1, random()] }));

/** Written out from the definition. */
function covariance(a: Place, b: Place): number {
  const r = Math.hypot(a.x[0]! - b.x[0]!, a.x[1]! - b.x[1]!) / hyper.lengthScale;
  const [first, other] = hyper.effectVariances;
  return (
    first * a.features[0]! * b.features[0]! +
    other * a.features[1]! * b.features[1]! +
    hyper.signalVariance * (1 + Math.sqrt(3) * r) * Math.exp(-Math.sqrt(3) * r)
  );
}

function naive(all: readonly Place[], y: readonly number[], at: Place, same = -1) {
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
const y = places.map(({ x }) => 0.3 * Math.sin(x[0]!) + 0.05 * random());

it(`has the posterior of its definition, at points and between them (LLA_SIM_SEED=${SEED})`, () => {
  const process = new Process(places, y, hyper, OWN);
  for (const [at, same] of [
    [{ x: [1, 2], features: [1, 0.4] }, -1],
    [{ x: [30, -4], features: [1, 7] }, -1],
    [places[3]!, 3],
  ] as const) {
    const { mean, deviation, point } = process.at(at);
    const expected = naive(places, y, at, same);
    expect(mean).toBeCloseTo(expected.mean, 9);
    expect(deviation).toBeCloseTo(expected.deviation, 9);
    expect(point).toBe(same);
  }
  const nothing = new Process([], [], hyper).at({ x: [1, 2], features: [1, 0.5] });
  expect(nothing.mean).toBe(0);
  expect(nothing.deviation).toBeCloseTo(Math.sqrt(0.2 + 0.05 / 4 + 0.09 + 4e-3), 12);
});

it('says how other places vary together, given its points', () => {
  const others = draw(4);
  const found = new Process(places, y, hyper).covarianceOf(others);
  const precision = inverse(
    new Matrix(places.map((a, i) => places.map((b, j) => covariance(a, b) + (i === j ? hyper.noiseVariance : 0)))),
  );
  for (let a = 0; a < 4; a++)
    for (let b = 0; b < 4; b++) {
      const [ka, kb] = [others[a]!, others[b]!].map((place) => places.map((point) => covariance(point, place)));
      const explained = new Matrix([ka!])
        .mmul(precision)
        .mmul(new Matrix([kb!]).transpose())
        .get(0, 0);
      expect(found[4 * a + b]).toBeCloseTo(covariance(others[a]!, others[b]!) - explained, 9);
    }
});

it('leaves one out in closed form as by deleting the point', () => {
  const left = new Process(places, y, hyper).leftOut();
  for (const i of [0, 7, 24]) {
    const others = places.filter((_, j) => j !== i);
    expect(left[i]!).toBeCloseTo(
      y[i]! -
        naive(
          others,
          y.filter((_, j) => j !== i),
          places[i]!,
        ).mean,
      8,
    );
  }
});

it('is less surprised by values drawn from itself than another process is', () => {
  const many = draw(60);
  const factor = cholesky(
    Float64Array.from(
      many.flatMap((a, i) => many.map((b, j) => covariance(a, b) + (i === j ? hyper.noiseVariance : 0))),
    ),
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
