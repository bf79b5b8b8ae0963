/** What no kernel can beat bounds the fast end of a step and of a prompt. */
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { pricePrompt, priceStep } from '../../src/cost/latency.js';
import { PEAK_MARGIN } from '../../src/cost/law.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { configurationOf } from '../../src/plan/evaluate/evaluate.js';

const LLAMA = fileURLToPath(new URL('../../ledger/models/llama-3.1-8b.json', import.meta.url));

describe('fast ends', () => {
  it.each([
    [{ device: 'rtx-5090', model: 'ouro-1.4b', codec: ['lla-2d'], ratio: [4], path: ['materialised'] }, 64, 4096],
    [{ device: 'rtx-3090', model: LLAMA, codec: ['full'] }, 400, 64],
    [{ device: 'rtx-4090', model: LLAMA, codec: ['full'] }, 1, 64],
  ])('of %o are no faster than all operations at the clock’s peak', async (scenario, batch, context) => {
    const { request } = prepare(scenario, await readSources(scenario));
    const c = configurationOf(request, request.candidates[0]!);
    const { pricer } = request;
    for (const price of [
      priceStep(c, pricer!, batch, context),
      pricePrompt(c, pricer!, { method: 'accumulated', promptTokens: 8192 }),
    ]) {
      expect(price.low).toBeGreaterThanOrEqual(Math.min(price.estimate, price.floor!.compute / PEAK_MARGIN));
      expect(price.low).toBeLessThanOrEqual(price.estimate);
    }
  });
});
