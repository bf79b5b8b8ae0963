/** What a codec caches, a step reads: `core` states bytes of memory, and the schedule those that a price rests on. */
import { describe, expect, it } from 'vitest';
import { KERNELS } from '../../kernels/registry.js';
import { CODEC_KINDS } from '../../src/codecs/codec.js';
import { bytesPerToken } from '../../src/codecs/layout.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { configurationOf } from '../../src/plan/evaluate/evaluate.js';
import { layoutPerGpu } from '../../src/schedule/buffers.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule } from '../../src/schedule/schedule.js';
import { randomOf, SEED } from '../gpu/random.js';

const random = randomOf(SEED);

describe(`a step of a long context (seed ${SEED})`, () => {
  it.each(CODEC_KINDS)('of %s reads all that is cached, by every path', async (kind) => {
    const tokens = random.whole(16_384, 65_536);
    const scenario = { model: 'ouro-1.4b', device: 'h200', codec: [kind], context: tokens };
    const { request } = prepare(scenario, await readSources(scenario));
    expect(request.candidates.length).toBeGreaterThan(0);
    for (const candidate of request.candidates) {
      const c = configurationOf(request, candidate);
      let read = 0;
      forEachOp(c, schedule(c, 1, tokens), ({ kernel, shape, variant }, times) => {
        if (KERNELS[kernel].dims.includes('context')) read += times * KERNELS[kernel].work(shape, variant).readBytes;
      });
      // A codec that reads a part of its rows by design says so here, with the share.
      expect(read / (tokens * bytesPerToken(layoutPerGpu(c))), c.path).toBeGreaterThan(0.99);
    }
  });
});
