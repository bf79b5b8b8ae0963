/**
 * Prompts taken in whole chunk by chunk, on the GPU, against the float64 reference: from nothing, behind tokens that
 * were decoded, and behind a prompt that was itself taken in whole; then decoding goes on from the cache that they
 * left.
 */
import { expect, test } from 'vitest';
import { prefillPeaks } from '../../src/cost/memory.js';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import { mix } from '../../src/hash.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { configurationOf, expectWithin, open, referenceOf, relative, type Case } from './gpu-cases.js';
import { ALL, CHUNKED_CASES, label, singles } from './gpu-list.js';
import { promptOf } from './models.js';

const LENGTHS = [75, 1, 38];
const STEPS = 3;
/** Tokens of a second prompt. */
const SECOND = [9, 41, 3];

const total = (decoder: GpuDecoder): number =>
  decoder.prefillAllocations.reduce((sum, { kind, bytes }) => sum + (kind === 'prefill' ? bytes : 0), 0);

describeGpu(`prefill in chunks (LLA_SIM_SEED=${SEED})`, (device) => {
  const random = randomOf(mix(SEED + 3));
  for (const of of CHUNKED_CASES.map(singles)) {
    const chunkTokens = random.pick([7, 20, 32, 37]);
    test(`${label(of)}, chunks of ${chunkTokens}`, { timeout: 600_000 }, () => decodesAsReference(of, chunkTokens));
  }

  test('only chunks go on behind other tokens', { timeout: 600_000 }, async () => {
    const of = singles(ALL.find((x) => !x.eviction && x.codec.kind === 'lla') as Case);
    const begun = await open(device, of);
    const prompt = promptOf(of.geometry, 3, SEED);
    try {
      await begun.prefill([prompt], 'one-shot');
      for (const method of ['accumulated', 'one-shot', 'by-layer'] as const)
        await expect(begun.prefill([prompt], method), method).rejects.toThrow('begins its sequences');
      expect((await begun.prefill([prompt])).method).toBe('by-token');
      expect((await begun.prefill([prompt], 'chunked')).method).toBe('chunked');
    } finally {
      begun.close();
    }
  });

  test(
    'under H2O a chunk as long as the prompt is the prompt accumulated, to the bit',
    { timeout: 600_000 },
    async () => {
      const of = singles(
        ALL.find((x) => x.eviction?.policy === 'h2o' && x.codec.kind === 'lla' && x.path === 'reconstruct') as Case,
      );
      const prompt = promptOf(of.geometry, 48, SEED + 60);
      const logits: Float32Array[][] = [];
      for (const method of ['accumulated', 'chunked'] as const) {
        const decoder = await open(device, of, { prefillChunkTokens: 45 });
        try {
          await decoder.prefill([prompt.slice(0, 45)], method);
          const own = [await decoder.logits()];
          for (const token of prompt.slice(45)) {
            await decoder.step([token]);
            own.push(await decoder.logits());
          }
          logits.push(own);
        } finally {
          decoder.close();
        }
      }
      expect(logits[1]).toEqual(logits[0]);
    },
  );

  async function decodesAsReference(of: Case, chunkTokens: number): Promise<void> {
    const { vocab } = of.geometry;
    const prompts = LENGTHS.map((length, i) =>
      promptOf(of.geometry, length + STEPS + (SECOND[i] as number) + STEPS, SEED + 40 + i),
    );
    const references = LENGTHS.map(() => referenceOf(of));
    const decoder = await open(device, of, {
      batch: LENGTHS.length,
      prefillChunkTokens: chunkTokens,
      contextTokens: 130,
    });
    const taken = LENGTHS.map(() => 0);
    const next = (sequence: number, count: number): number[] => {
      const from = taken[sequence] as number;
      taken[sequence] = from + count;
      return (prompts[sequence] as number[]).slice(from, from + count);
    };
    const compare = async (expected: readonly Float64Array[], message: string): Promise<void> => {
      const logits = await decoder.logits();
      const errors = expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row));
      // A coarse code between two levels may fall to either side: what is read from such codes says nothing.
      if ((of.codec.bits ?? 8) === 8) expectWithin(Math.max(...errors), of, prompts, message);
      else expect(Math.max(...errors), message).toBeLessThan(2);
    };
    const takeIn = async (lengths: readonly number[], message: string): Promise<void> => {
      const parts = lengths.map((length, i) => next(i, length));
      expect((await decoder.prefill(parts, 'chunked')).method).toBe('chunked');
      await compare(
        parts.map((part, i) => references[i]?.prefill(part, 'chunked', chunkTokens).at(-1) as Float64Array),
        message,
      );
    };
    const decode = async (message: string): Promise<void> => {
      for (let step = 0; step < STEPS; step++) {
        const tokens = LENGTHS.map((_, i) => next(i, 1)[0] as number);
        await decoder.step(tokens);
        await compare(
          tokens.map((token, i) => references[i]?.step(token) as Float64Array),
          `${message}, step ${step}`,
        );
      }
    };
    try {
      await takeIn(LENGTHS, 'the first prompt');
      expect(total(decoder)).toBe(prefillPeaks(configurationOf(of), Math.max(...LENGTHS), chunkTokens).chunked);
      await decode('behind it');
      await takeIn(SECOND, 'the second prompt');
      await decode('behind both');
      expect(decoder.lengths).toEqual(taken);
    } finally {
      decoder.close();
    }
  }
});
