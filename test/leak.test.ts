/** scripts/leak.mjs tells a leak from a warm-up, on memory whose course is known. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { leaks } from '../scripts/leak.mjs';
import { mix } from '../src/numbers/hash.js';
import { SEED } from './gpu/random.js';

const MIB = 2 ** 20;
const RUNS = 40;

/** A warm-up that ends, blocks that come and go, steps of an allocator, pages given back, a leak. Bytes and windows. */
interface Course {
  readonly warmUp: number;
  readonly lasts: number;
  readonly noise: number;
  readonly jumps: readonly number[];
  readonly givenBack: number;
  readonly leakOfWindow: number;
}

const judged = (of: Course, seed: number): Promise<boolean> => {
  let run = 0;
  return leaks(
    () => {
      run++;
      return Promise.resolve();
    },
    {
      runs: RUNS,
      toleranceBytes: MIB / 2,
      resident: () => {
        const windows = run / RUNS;
        // As of a collector: three readings of four lie above what is in use.
        const noise = mix(seed + run) % 4 === 0 ? 0 : (of.noise * mix(seed - run)) / 2 ** 32;
        return (
          200 * MIB +
          of.warmUp * (1 - Math.exp(-windows / of.lasts)) +
          noise +
          of.jumps.filter((at) => windows > at).length * 5 * MIB +
          (windows > of.givenBack ? -14 * MIB : 0) +
          of.leakOfWindow * windows
        );
      },
      onWindow: () => undefined,
    },
  );
};

const courses = (leakOfWindow: fc.Arbitrary<number>) =>
  fc.record({
    warmUp: fc.integer({ min: 0, max: 100 * MIB }),
    lasts: fc.double({ min: 0.1, max: 3, noNaN: true }),
    noise: fc.integer({ min: 0, max: 8 * MIB }),
    jumps: fc.array(fc.double({ min: 0, max: 12, noNaN: true }), { maxLength: 2 }),
    givenBack: fc.double({ min: 0, max: 18, noNaN: true }),
    leakOfWindow,
  });

describe(`resident memory (LLA_SIM_SEED=${SEED})`, () => {
  it('that warms up, jumps, or comes and goes does not leak', async () => {
    await fc.assert(
      fc.asyncProperty(courses(fc.constant(0)), fc.nat(), async (of, seed) => {
        expect(await judged(of, seed)).toBe(false);
      }),
      { seed: SEED, numRuns: 300 },
    );
  });
  it('that grows in every window leaks', async () => {
    await fc.assert(
      fc.asyncProperty(courses(fc.integer({ min: 3 * MIB, max: 50 * MIB })), fc.nat(), async (of, seed) => {
        expect(await judged(of, seed)).toBe(true);
      }),
      { seed: SEED, numRuns: 300 },
    );
  });
});
