/** What the GPU decoder does when something goes wrong; that nothing stays allocated: test/validate/faults.test.ts. */
import '../gpu/narrow.js';
import { expect, test } from 'vitest';
import { UserError } from '../../src/errors.js';
import { plannedContext } from '../../src/decoder/gpu/steps.js';
import { codecTensors, modelTensors } from '../../src/decoder/tensors.js';
import { fabricate } from '../../src/decoder/weights.js';
import { GpuError, openDevice } from '../../src/gpu/index.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';
import { expectWithin, inSingles, open, referenceOf, relative, TOLERANCE, type Case } from './gpu-cases.js';
import { expectNaN } from './gpu-nan.js';
import { errorsOf } from './gpu-steps.js';
import { BRANCH, GEOMETRIES, learnedCodecs, promptOf, SINGLE } from './models.js';

const OURO = GEOMETRIES[0]!;
const FULL: Case = { geometry: OURO, codec: { kind: 'full' } };
const LLA: Case = { geometry: OURO, codec: learnedCodecs(OURO, 0.5)[0]!, path: 'reconstruct' };

describeGpu(`GPU decoder, faults (LLA_SIM_SEED=${SEED})`, (device) => {
  test('a closed decoder says so', async () => {
    const decoder = await open(device, FULL);
    decoder.close();
    await expect(decoder.step([1])).rejects.toThrow('the decoder is closed');
    await expect(decoder.logits()).rejects.toThrow(GpuError);
  });

  test('wrong input is refused and leaves the decoder usable', async () => {
    const decoder = await open(device, FULL, { contextTokens: 2 });
    await expect(decoder.step([OURO.vocab])).rejects.toThrow(UserError);
    await expect(decoder.step([-1])).rejects.toThrow('not one of the 23');
    await expect(decoder.step([1, 2])).rejects.toThrow('2 tokens were given for 1 sequences');
    await expect(decoder.prefill([[]])).rejects.toThrow('has no tokens');
    await decoder.step([1]);
    await decoder.step([1]);
    await expect(decoder.step([1])).rejects.toThrow('sequence 0 has 2 tokens, as many as its cache was made for');
    decoder.reset();
    await decoder.step([1]);
    decoder.close();
    for (const [options, message] of [
      [{ batch: 0 }, 'the batch'],
      [{ contextTokens: 1.5 }, 'the context'],
      [{ pageTokens: 33 }, 'multiple of 32'],
    ] as const)
      await expect(open(device, FULL, options)).rejects.toThrow(message);
    await expect(open(device, { ...FULL, path: 'fast' })).rejects.toThrow('full cannot be read by the path fast');
    await expect(
      open(device, { ...FULL, eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 0, budgetTokens: 4 } }),
    ).rejects.toThrow('keeps no recent tokens');
  });

  test('NaN in weights of queries or keys reaches the logits on all paths, by token and in prompts', async () => {
    const paths: Case[] = [
      FULL,
      LLA,
      { ...LLA, materialised: true },
      { ...LLA, path: 'absorbed' },
      { ...LLA, path: 'fast' },
    ];
    for (const [i, of] of paths.entries()) await expectNaN(device, of, i);
  });

  test('two-bit rows narrower than a unit have no second scale: past a tile a score has nothing else', async () => {
    const decoder = await open(device, { ...FULL, codec: { kind: 'kv-quant', bits: 2 } });
    for (const token of promptOf(OURO, 45, SEED)) await decoder.step([token]);
    expect([...(await decoder.logits())].every(Number.isFinite)).toBe(true);
    decoder.close();
  });

  test('a device lost in mid-step', async () => {
    const own = await openDevice();
    const decoder = await open(own, FULL);
    await decoder.step([1]);
    const step = decoder.step([2]);
    (own as unknown as { raw: GPUDevice }).raw.destroy();
    await expect(step).rejects.toMatchObject({ name: 'GpuError', fault: 'lost' });
    await expect(decoder.step([1])).rejects.toThrow(GpuError);
    own.close();
  });

  test('weights from tensors, in f16 and f32, decode as fabricated ones do', async () => {
    const { codec, path = 'reconstruct' } = LLA;
    const options = { seed: SEED, tiedEmbeddings: OURO.tiedEmbeddings, codec: 'random' } as const;
    const model = fabricate(modelTensors(OURO), options);
    const own = fabricate(codecTensors(OURO, codec, path, BRANCH), options);
    for (const storage of ['f16', 'f32'] as const) {
      const of: Case = { ...LLA, choice: SINGLE };
      const errors = await errorsOf(device, of, 6, { weights: { storage, seed: SEED + 1, model, codec: own } });
      expectWithin(Math.max(...errors), of, [promptOf(OURO, 6, SEED + 1)]);
    }
    const lacking = { ...model, shapes: new Map([...model.shapes].filter(([name]) => name !== 'lm_head.weight')) };
    await expect(open(device, FULL, { weights: { storage: 'f16', seed: 1, model: lacking } })).rejects.toThrow(
      '"lm_head.weight" is missing',
    );
  });

  test('weights in parts that a binding holds decode as whole ones', async () => {
    // Less than the matrices of q, k and v, of gate and up, and the output head's; as much as 32 tokens of a cache in
    // f16.
    const errors = await errorsOf(device, { ...FULL, bindingBytes: 512 }, 6, { contextTokens: 32 });
    expectWithin(Math.max(...errors), inSingles(FULL), [promptOf(OURO, 6, SEED + 1)]);
  });

  test('sampling draws what the sampler draws from the same logits', async () => {
    const { sample } = await import('../../src/decoder/sampler.js');
    const sampling = { temperature: 0.8, topP: 0.9, seed: SEED };
    const decoder = await open(device, FULL, { batch: 2, sampling });
    let tokens = [1, 1];
    let differing = 0;
    for (let draw = 0; draw < 12; draw++) {
      const next = await decoder.step(tokens);
      const logits = await decoder.logits();
      // A number on the edge between two tokens may fall to either.
      differing += tokens.filter(
        (_, i) => next.tokens[i] !== sample(logits.subarray(i * OURO.vocab, (i + 1) * OURO.vocab), sampling, draw, i),
      ).length;
      tokens = [...next.tokens];
    }
    expect(differing).toBeLessThanOrEqual(1);
    decoder.close();
  });

  test('a fabricated cache gives finite logits; reset forgets it', async () => {
    for (const of of [FULL, LLA, { ...FULL, codec: { kind: 'kv-quant', bits: 3 } } as Case]) {
      const decoder = await open(device, of, { batch: 2 });
      await decoder.fillCache([40, 99]);
      const { tokens } = await decoder.step([1, 2]);
      expect([...(await decoder.logits())].every(Number.isFinite)).toBe(true);
      expect(tokens).toHaveLength(2);
      expect(decoder.lengths).toEqual([41, 100]);
      await expect(decoder.fillCache(101)).rejects.toThrow('at most 100');
      decoder.reset();
      const [token] = promptOf(OURO, 1, SEED);
      await decoder.step([token!, token!]);
      expect(relative((await decoder.logits()).subarray(0, OURO.vocab), referenceOf(of).step(token!))).toBeLessThan(
        TOLERANCE,
      );
      decoder.close();
    }
  });
});

test('steps are planned for an eighth of an octave at most beyond the context', () => {
  expect(plannedContext(1, 10_000)).toBe(256);
  expect(plannedContext(4096, 10_000)).toBe(4096);
  expect(plannedContext(4097, 10_000)).toBe(4608);
  expect(plannedContext(9_900, 10_000)).toBe(10_000);
  for (let n = 1; n < 100_000; n = Math.ceil(n * 1.1))
    expect(plannedContext(n, 10 ** 6)).toBeLessThan(Math.max(n + 257, n * 1.126));
});
