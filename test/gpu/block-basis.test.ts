/** The functions of block-absorbed attention reproduce rotary pairs within the error that the plan states. */
import { describe, expect, test } from 'vitest';
import { rotaryFrequencies } from '../../kernels/host/rotary.js';
import { BLOCK_SIZES, blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import { besselJ, phiTable, psiTable } from '../../kernels/shared/block/block-basis.js';

test('Bessel functions are the tabulated ones (Abramowitz and Stegun, tables 9.1 and 9.4)', () => {
  expect(besselJ(1)[0]).toBeCloseTo(0.7651976865579666, 13);
  expect(besselJ(10)[1]).toBeCloseTo(0.0434727461688614, 13);
  expect(besselJ(5)[5]).toBeCloseTo(0.2611405461201701, 13);
  expect(besselJ(1e-12)[0]).toBe(1);
});

const BASES = [1e4, 5e4, 1e6, 7e7];
const WIDTHS = [2, 36, 64, 96, 128];

describe.each(BASES)('rotary base %d', (base) => {
  test.each(WIDTHS.flatMap((width) => [undefined, ...BLOCK_SIZES].map((block) => [width, block] as const)))(
    'head width %d, blocks of %s: no pair is off by more than 1e-5/√2 at any offset',
    (width, block) => {
      const { basis, blockTokens, exactPairs } = blockPlan(base, width, block);
      const theta = rotaryFrequencies(base, width);
      const [phi, psi] = [phiTable(base, width, basis), psiTable(width, basis)];
      const [even, odd] = [basis.even.directions.length, basis.odd.directions.length];
      const quads = (n: number): number => 4 * Math.ceil(n / 4);
      const split = quads(exactPairs + even);
      const [row, share] = [split + quads(exactPairs + odd), quads(even + odd)];
      let worst = 0;
      for (let o = 0; o < blockTokens / 2; o++) {
        theta.forEach((t, m) => {
          let [cosine, sine] = [0, 0];
          if (m < exactPairs) [cosine, sine] = [phi[o * row + m]!, phi[o * row + split + m]!];
          else {
            for (let j = 0; j < even; j++)
              cosine += phi[o * row + exactPairs + j]! * psi[(m - exactPairs) * share + j]!;
            for (let j = 0; j < odd; j++)
              sine += phi[o * row + split + exactPairs + j]! * psi[(m - exactPairs) * share + even + j]!;
          }
          worst = Math.max(worst, Math.abs(cosine - Math.cos(t * (o + 0.5))), Math.abs(sine - Math.sin(t * (o + 0.5))));
        });
      }
      // The tables are rounded to f32.
      expect(worst).toBeLessThan(1e-5 / Math.SQRT2 + 1e-6);
    },
  );
});

test('at a width of 128 it costs a fifth of rebuilding K at base 1e6, and less the slower the pairs', () => {
  expect(blockPlan(1e6, 128).macsPerRank).toBeLessThan(128 / 5);
  expect(blockPlan(7e7, 128).macsPerRank).toBeLessThan(blockPlan(1e6, 128).macsPerRank);
  expect(blockPlan(1e4, 128).macsPerRank).toBeLessThan(128 / 4);
});
