/** Random shapes from a seed that every failure names; LLA_SIM_SEED repeats a run. */
import { mix } from '../../src/numbers/hash.js';

export const SEED = process.env.LLA_SIM_SEED === undefined ? Date.now() % 2 ** 31 : Number(process.env.LLA_SIM_SEED);

export interface Random {
  /** A whole number from `low` to `high`. */
  whole(low: number, high: number): number;
  even(low: number, high: number): number;
  pick<T>(choices: readonly T[]): T;
}

export function randomOf(seed: number): Random {
  let state = mix(seed);
  const next = (): number => (state = mix(state + 0x9e3779b9));
  const whole = (low: number, high: number): number => low + (next() % (high - low + 1));
  return {
    whole,
    even: (low, high) => 2 * whole(Math.ceil(low / 2), Math.floor(high / 2)),
    pick: (choices) => choices[next() % choices.length] as (typeof choices)[number],
  };
}
