/** Caches that one binding does not hold: the batch in parts decodes as the whole one does, in as many bytes. */
import { expect, test } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { memoryModel } from '../../src/cost/memory.js';
import { blocksOf, type Geometry } from '../../src/geometry/geometry.js';
import { GpuError } from '../../src/gpu/index.js';
import { cacheParts, sequenceBytes } from '../../src/schedule/cache-parts.js';
import { compareBytes, holds } from '../../src/validate/memory.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { configurationOf, expectWithin, open, relative, type Case } from './gpu-cases.js';
import { label } from './gpu-list.js';
import { BRANCH, GEOMETRIES, learnedCodecs, promptOf } from './models.js';

/** An even vocabulary: the memory model does not count what an odd one is padded by. */
const named = (name: string): Geometry => ({ ...(GEOMETRIES.find((g) => g.name === name) as Geometry), vocab: 24 });
const GROUPED = named('grouped pre-norm');
const [LLA, LLA_2D] = learnedCodecs(GROUPED, 0.5) as [Codec, Codec];
const SINGLE = { storage: 'f32', groupSize: 32 } as const;
const CASES: Case[] = [
  { geometry: GROUPED, codec: { kind: 'full' }, choice: SINGLE },
  { geometry: GROUPED, codec: { kind: 'kv-quant', bits: 8 } },
  { geometry: GROUPED, codec: LLA, path: 'reconstruct', choice: SINGLE },
  { geometry: GROUPED, codec: LLA, path: 'reconstruct', materialised: true },
  { geometry: GROUPED, codec: LLA, path: 'block-absorbed', choice: SINGLE },
  { geometry: GROUPED, codec: LLA_2D, path: 'absorbed', choice: SINGLE, branch: { ...BRANCH, perHead: true } },
  { geometry: GROUPED, codec: LLA, path: 'fast', choice: SINGLE },
  { geometry: named('huginn-like'), codec: learnedCodecs(named('huginn-like'), 0.5)[0] as Codec, path: 'reconstruct', choice: SINGLE },
];
/** Three of them by each seed; all with LLA_SIM_CONTRACT=full. */
const SAMPLED = process.env.LLA_SIM_CONTRACT === 'full' ? CASES : Array.from({ length: 3 }, (_, i) => CASES[(SEED + 3 * i) % CASES.length] as Case);
/** Not a multiple of what a part can have. */
const BATCH = 19;
const CONTEXT = 32;
const STEPS = 3;

const core = (of: Case) => blocksOf(of.geometry).find((b) => b.name === 'core') as ReturnType<typeof blocksOf>[number];

describeGpu(`caches in parts (LLA_SIM_SEED=${SEED})`, (device) => {
  for (const whole of SAMPLED) {
    test(label(whole), { timeout: 600_000 }, async () => {
      const c = configurationOf(whole);
      // Room for more than half of the batch, and for a part of it whose queries begin where a binding may.
      const bindingBytes = (whole.path === 'absorbed' ? 16 : 9) * sequenceBytes(c, core(whole), CONTEXT);
      const divided = { ...whole, bindingBytes };
      const division = cacheParts(configurationOf(divided), core(whole), BATCH, CONTEXT);
      expect(division.reduce((sum, { size, repeat }) => sum + size * repeat, 0)).toBe(BATCH);
      expect(division).toHaveLength(2);
      const random = randomOf(SEED);
      const prompts = Array.from({ length: BATCH }, (_, i) => promptOf(whole.geometry, random.whole(1, CONTEXT - STEPS), SEED + i));
      const options = { batch: BATCH, contextTokens: CONTEXT };
      const [one, parts] = [await open(device, whole, options), await open(device, divided, options)];
      try {
        const { kinds } = compareBytes(parts, memoryModel(configurationOf(divided), CONTEXT, 32), BATCH);
        expect(kinds.filter((k) => k.allocatedBytes !== k.predictedBytes)).toEqual([]);
        expect(holds({ kinds })).toBe(true);
        for (const method of ['by-token', 'accumulated'] as const) {
          let [next] = await Promise.all([one.prefill(prompts, method).then((r) => [...r.tokens]), parts.prefill(prompts, method)]);
          for (let step = 0; ; step++) {
            expectWithin(relative(await parts.logits(), await one.logits()), whole, prompts, `${method}, step ${step}`);
            if (step === STEPS) break;
            [next] = await Promise.all([one.step(next).then((r) => [...r.tokens]), parts.step(next)]);
          }
          one.reset();
          parts.reset();
        }
        await parts.fillCache(CONTEXT - 1);
        await parts.step(new Array<number>(BATCH).fill(1));
      } finally {
        one.close();
        parts.close();
      }
    });
  }

  test('what no part holds is refused, with the limit', async () => {
    const of = CASES[0] as Case;
    const bytes = sequenceBytes(configurationOf(of), core(of), CONTEXT);
    const opened = (bindingBytes: number, more: Partial<Case> = {}) => open(device, { ...of, ...more, bindingBytes }, { batch: BATCH, contextTokens: CONTEXT });
    await expect(opened(bytes - 1)).rejects.toThrow(`takes ${bytes} bytes at ${CONTEXT} tokens, more than the ${bytes - 1} bytes that the device binds at once`);
    await expect(opened(3 * bytes)).rejects.toThrow('parts of 8 sequences');
    await expect(opened(9 * bytes, { eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 28, budgetTokens: 32 } })).rejects.toThrow(GpuError);
  });
});
