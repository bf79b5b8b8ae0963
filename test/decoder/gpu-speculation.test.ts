/** Speculation of the GPU decoder on a device of narrow subgroups (gpu-speculate.ts). */
import '../gpu/narrow.js';
import { expect, test } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { open } from './gpu-cases.js';
import { label, singles } from './gpu-list.js';
import { CASES, followRounds, OURO } from './gpu-speculate.js';
import { GEOMETRIES, learnedCodecs } from './models.js';

describeGpu(`speculation of the GPU decoder (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const of of CASES)
    test(label(of), async () => {
      await followRounds(device, of);
    });

  test('sequences of a batch accept each on its own', async () => {
    const { accepted, proposals } = await followRounds(device, singles({ geometry: OURO, codec: { kind: 'full' } }), 3);
    expect(accepted).toBeLessThan(proposals);
  });

  test('a rejected row that is not freed is caught', async () => {
    const of = singles({ geometry: OURO, codec: { kind: 'full' } });
    await expect(followRounds(device, of, 1, (lengths) => lengths[0]!++)).rejects.toThrow();
  });

  test('what cannot be verified is refused, and nothing is left allocated', async () => {
    const [lla] = learnedCodecs(OURO, 0.5) as [Codec];
    const speculation = { draftLoops: 1, draftTokens: 4 };
    await expect(open(device, { geometry: OURO, codec: lla }, { speculation })).rejects.toThrow(
      'only after the last loop',
    );
    const narrow = { geometry: GEOMETRIES[0]!, codec: { kind: 'full' } as const };
    await expect(open(device, narrow, { speculation })).rejects.toThrow('no multiple of 256 bytes');
    const sampling = { temperature: 1, topP: 1, seed: 0 };
    await expect(open(device, { geometry: OURO, codec: { kind: 'full' } }, { speculation, sampling })).rejects.toThrow(
      'speculation is greedy',
    );
    const plain = await open(device, { geometry: OURO, codec: { kind: 'full' } });
    await expect(plain.speculate([1])).rejects.toThrow('not opened for speculation');
    plain.close();
  });
});
