/** Random command lines: what holds of the plans of any question. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SEED } from '../gpu/random.js';
import { sensible } from './arbitraries.js';
import { plan } from './program.js';

describe(`plan under random options (LLA_SIM_SEED=${SEED})`, () => {
  it('gives every plan of a report an id of its own', async () => {
    await fc.assert(
      fc.asyncProperty(sensible, async (argv) => {
        const o = await plan(...argv, '--format', 'json');
        if (o.code !== 0) return;
        const ids = (JSON.parse(o.out) as { plans: { id: string }[] }).plans.map((p) => p.id);
        expect(new Set(ids).size).toBe(ids.length);
      }),
      { numRuns: 120, seed: SEED },
    );
  });

  it('gives the same answer twice', async () => {
    const question = ['--device', 'h200', '--ctx', '16k', '--tpot', '200ms', '--min', 'gsm8k=0.7', '--format', 'json'];
    expect(await plan(...question)).toEqual(await plan(...question));
  });
});
