/** The decoder under its serving loop: every request gets the tokens that it would get alone. */
import '../gpu/narrow.js';
import { expect, test } from 'vitest';
import { decoderEngine } from '../../src/decoder/gpu/serving-engine.js';
import { drive, type TimedRequest } from '../../src/decoder/serving/drive.js';
import { ServingLoop } from '../../src/decoder/serving/loop.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { opened, ROUNDED_TOLERANCE, referenceOf, type Case } from './gpu-cases.js';
import { OURO } from './gpu-speculate.js';
import { GEOMETRIES, promptOf } from './models.js';

describeGpu(`serving (LLA_SIM_SEED=${SEED})`, (device) => {
  const full: Case = { geometry: GEOMETRIES[0]!, codec: { kind: 'full' } };
  const draft = { draftLoops: 1, draftTokens: 3 };
  test.each([
    ['one by one', full, undefined],
    ['in rounds of speculation', { ...full, geometry: OURO }, draft],
  ] as const)(
    'requests that share sequences, are taken in by chunks and preempted, %s',
    async (_, of, speculation) => {
      const random = randomOf(SEED);
      const requests: TimedRequest[] = Array.from({ length: 7 }, (_, id) => ({
        id,
        time: id * 1e-9,
        // The first three fill the cache, and grow; rounds of several tokens need more of them to meet there.
        prompt: promptOf(of.geometry, id < 3 ? 12 : random.whole(1, 30), SEED + id),
        maxTokens: id < 3 ? (speculation ? 24 : 9) : random.whole(2, 9),
      }));
      const options = { maxNumBatchedTokens: 12, chunkedPrefill: true, blockTokens: 8, blocks: 6, capTokens: Infinity };
      const own = { batch: 3, contextTokens: 64, ...(speculation ? { speculation } : {}) };
      await opened(device, of, own, async (decoder) => {
        const served = await drive(new ServingLoop(decoderEngine(decoder, 64, speculation), options), requests);
        expect(served).toHaveLength(requests.length);
        expect(served.some(({ preemptions }) => preemptions > 0)).toBe(true);
        expect(decoder.lengths).toEqual([0, 0, 0]);
        for (const { id, tokens } of served) {
          const { prompt } = requests[id]!;
          const reference = referenceOf(of);
          const texts = [...prompt, ...tokens];
          const logits = texts.slice(0, -1).map((token) => reference.step(token));
          for (const [i, token] of tokens.entries()) {
            const row = logits[prompt.length - 1 + i]!;
            // Of two nearly equal logits the decoder may take either.
            const slack = ROUNDED_TOLERANCE * Math.hypot(...row);
            expect(row[token], `token ${i} of request ${id}`).toBeGreaterThan(Math.max(...row) - slack);
          }
        }
      });
    },
    600_000,
  );
});
