/** The functions of block-absorbed attention reproduce every rotary pair at every offset, and the decomposition is one. */
import { describe, expect, test } from 'vitest';
import { BLOCK_TOKENS, blockBasis, blockPhases } from '../../src/gpu/block-basis.js';
import { lowRank } from '../../src/gpu/low-rank.js';
import { rotaryFrequencies } from '../../src/gpu/rotary.js';

test('a matrix of rank 2 comes back from two orthogonal directions, largest first', () => {
  const columns = [0, 1, 2, 3].map((j) => Float64Array.from({ length: 6 }, (_, i) => 3 * Math.sin(i) * j + Math.cos(2 * i) * (j - 1.5)));
  const { left, right } = lowRank(columns, 1e-10);
  expect(left).toHaveLength(2);
  const dot = (a: Float64Array, b: Float64Array): number => a.reduce((s, x, i) => s + x * (b[i] as number), 0);
  const [u, v] = left as [Float64Array, Float64Array];
  const [a, b] = right as [Float64Array, Float64Array];
  expect(dot(u, u)).toBeCloseTo(1, 12);
  expect(dot(u, v)).toBeCloseTo(0, 12);
  expect(dot(a, b)).toBeCloseTo(0, 12);
  expect(dot(a, a)).toBeGreaterThan(dot(b, b));
  columns.forEach((c, j) => c.forEach((x, i) => expect((u[i] as number) * (a[j] as number) + (v[i] as number) * (b[j] as number)).toBeCloseTo(x, 12)));
});

describe.each([
  [1e4, 128],
  [1e6, 128],
  [7e7, 128],
  [5e4, 96],
  [5e5, 64],
])('rotary base %d, head width %d', (base, headDim) => {
  const basis = blockBasis(base, headDim);
  const theta = rotaryFrequencies(base, headDim);

  test('phi psi is cos and sin of every pair at every offset', () => {
    const width = 4 * (basis.evenQuads + basis.oddQuads);
    const split = 4 * basis.evenQuads;
    const sum = (d: number, m: number, from: number, to: number): number => {
      let s = 0;
      for (let j = from; j < to; j++) s += (basis.phi[d * width + j] as number) * (basis.psi[m * width + j] as number);
      return s;
    };
    let worst = 0;
    for (let d = 0; d < BLOCK_TOKENS / 2; d++) {
      theta.forEach((t, m) => {
        worst = Math.max(worst, Math.abs(sum(d, m, 0, split) - Math.cos(t * (d + 0.5))), Math.abs(sum(d, m, split, width) - Math.sin(t * (d + 0.5))));
      });
    }
    expect(worst).toBeLessThan(8e-6);
  });

  test('it costs a fraction of rebuilding K', () => {
    expect(basis.macsPerRank).toBeLessThan(headDim / 3);
  });
});

test('phases a million positions in are exact to f32', () => {
  const phases = blockPhases(1e6, 128, 1_000_000, 300);
  const theta = rotaryFrequencies(1e6, 128)[3] as number;
  expect(phases[2 * (64 + 3)]).toBe(Math.fround(Math.cos((1_000_000 + 256 + 127.5) * theta)));
});
