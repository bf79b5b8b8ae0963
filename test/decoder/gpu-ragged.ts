/** Sequences of different lengths decoded together, each against the float64 reference of its own. */
import { expect } from 'vitest';
import type { Device } from '../../src/gpu/index.js';
import { SEED } from '../gpu/random.js';
import { expectWithin, open, referenceOf, relative, type Case } from './gpu-cases.js';
import { promptOf } from './models.js';

const LENGTHS = [33, 1, 12];
const STEPS = 6;

export async function expectRagged(device: Device, of: Case): Promise<void> {
  const prompts = LENGTHS.map((length, i) => promptOf(of.geometry, length + STEPS, SEED + 10 + i));
  const references = LENGTHS.map(() => referenceOf(of));
  const decoder = await open(device, of, { batch: LENGTHS.length });
  const { vocab } = of.geometry;
  try {
    await decoder.prefill(
      prompts.map((prompt, i) => prompt.slice(0, LENGTHS[i])),
      'by-token',
    );
    let expected = references.map(
      (reference, i) =>
        (prompts[i] as number[])
          .slice(0, LENGTHS[i])
          .map((token) => reference.step(token))
          .at(-1) as Float64Array,
    );
    for (let step = 0; ; step++) {
      const logits = await decoder.logits();
      const errors = expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row));
      expectWithin(Math.max(...errors), of, prompts);
      if (step === STEPS) break;
      const next = prompts.map((prompt, i) => prompt[(LENGTHS[i] as number) + step] as number);
      await decoder.step(next);
      expected = references.map((reference, i) => reference.step(next[i] as number));
    }
    expect(decoder.lengths).toEqual(LENGTHS.map((n) => n + STEPS));
  } finally {
    decoder.close();
  }
}
