/** Seeds give the same numbers on every machine, in every version: those of mulberry32. */
import { expect, test } from 'vitest';
import { randomFrom } from '../../src/numbers/random.js';
import { randomOf, SEED } from '../gpu/random.js';

/** The same generator in whole numbers of any size. */
function mulberry32(seed: number): () => number {
  const WORD = 2n ** 32n;
  let state = BigInt(seed) % WORD;
  return () => {
    state = (state + 0x6d2b79f5n) % WORD;
    let t = ((state ^ (state >> 15n)) * (state | 1n)) % WORD;
    t = (((t + (t ^ (t >> 7n)) * (t | 61n)) % WORD) ^ t) % WORD;
    return Number(t ^ (t >> 14n)) / 2 ** 32;
  };
}

test(`random numbers are those of mulberry32 (LLA_SIM_SEED=${SEED})`, () => {
  const seeds = randomOf(SEED);
  for (const seed of [0, 1, 2 ** 32 - 1, seeds.whole(2, 2 ** 31)]) {
    const [own, other] = [randomFrom(seed), mulberry32(seed)];
    for (let i = 0; i < 200; i++) expect(own(), `seed ${seed}, number ${i}`).toBe(other());
  }
});
