import { Matrix, solve } from 'ml-matrix';
import { describe, expect, it } from 'vitest';
import { normalFrom, randomFrom } from '../../scripts/coverage-experiment.js';
import { nnls } from '../../src/cost/fit/nnls.js';

const residual = (a: number[][], b: number[], x: number[]) =>
  a.reduce((sum, row, i) => sum + (row.reduce((s, v, j) => s + v * x[j]!, 0) - b[i]!) ** 2, 0);

/** The least residual over all subsets of columns whose least squares solution is feasible. */
function bruteForce(a: number[][], b: number[], p: number): number {
  let least = residual(a, b, new Array<number>(p).fill(0));
  for (let mask = 1; mask < 2 ** p; mask++) {
    const columns = Array.from({ length: p }, (_, j) => j).filter((j) => mask & (1 << j));
    const gram = columns.map((j) => columns.map((k) => a.reduce((sum, row) => sum + row[j]! * row[k]!, 0)));
    const rhs = columns.map((j) => a.reduce((sum, row, i) => sum + row[j]! * b[i]!, 0));
    const solution = solve(new Matrix(gram), Matrix.columnVector(rhs), true).to1DArray();
    if (solution.some((value) => value < 0)) continue;
    const x = new Array<number>(p).fill(0);
    columns.forEach((j, index) => (x[j] = solution[index]!));
    least = Math.min(least, residual(a, b, x));
  }
  return least;
}

describe('nnls', () => {
  const random = randomFrom(11);
  const normal = normalFrom(random);

  it('reaches the residual of an exhaustive search over active sets', () => {
    for (let problem = 0; problem < 300; problem++) {
      const p = 1 + Math.floor(random() * 5);
      const rows = 1 + Math.floor(random() * 10);
      const a = Array.from({ length: rows }, () => Array.from({ length: p }, normal));
      const b = Array.from({ length: rows }, normal);
      const x = nnls(Float64Array.from(a.flat()), Float64Array.from(b), p);
      expect(Math.min(...x)).toBeGreaterThanOrEqual(0);
      expect(residual(a, b, [...x])).toBeLessThanOrEqual(bruteForce(a, b, p) + 1e-8);
    }
  });

  it('recovers non-negative coefficients across twelve orders of magnitude', () => {
    const theta = [3e-6, 4e-13, 0, 2e-14];
    const a = Array.from({ length: 30 }, () => [1, 1e6 * (1 + random()), 1e3 * random(), 1e8 * random() ** 2]);
    const b = a.map((row) => row.reduce((sum, v, j) => sum + v * theta[j]!, 0));
    const x = nnls(Float64Array.from(a.flat()), Float64Array.from(b), 4);
    theta.forEach((value, j) => expect(x[j]!).toBeCloseTo(value, 18));
  });

  it('copes with repeated, zero and opposed columns', () => {
    const base = Array.from({ length: 8 }, () => 1 + random());
    const a = base.map((v) => [v, 2 * v, 0, -v]);
    const x = nnls(Float64Array.from(a.flat()), Float64Array.from(base), 4);
    expect(x[0]! + 2 * x[1]!).toBeCloseTo(1, 10);
    expect([x[2], x[3]]).toEqual([0, 0]);
  });

  it('weighs rows', () => {
    expect(nnls(Float64Array.of(1, 1), Float64Array.of(1, 4), 1, Float64Array.of(2, 1))[0]).toBeCloseTo(2, 12);
    expect(nnls(Float64Array.of(1, 1), Float64Array.of(1, 4), 1, Float64Array.of(0, 1))[0]).toBeCloseTo(4, 12);
  });

  it('names the sizes of a matrix that does not fit', () => {
    expect(() => nnls(new Float64Array(5), new Float64Array(2), 2)).toThrow('expected 2 × 2');
  });
});
