/** Decode attention beside a prompt, against published calls, and where it is asked for. */
import { describe, expect, it } from 'vitest';
import { besidePrompts, tileRate } from '../../src/cost/beside-prompts.js';
import { DEVICES } from '../../src/devices/catalogue.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';

/** Cached bytes of a token and KV head: keys and values of 128 numbers. */
const ROW = 512;

function rates(id: string) {
  const spec = DEVICES.find((device) => device.id === id)!;
  return {
    units: spec.units,
    bytesPerSecond: spec.memoryBytesPerSecond,
    tileFlopsPerSecond: tileRate(spec.matrixFlopsPerSecond, spec.matrixHalved),
    l2Bytes: spec.l2Bytes,
  };
}

describe('decode attention beside a prompt', () => {
  // LLMServingSim (5daddb2, MIT), attention.csv: µs of one call with a chunk of 16 tokens, and of decoding alone.
  it.each([
    ['rtx-4090', 4, 128, 16384, 36013, 9052],
    ['rtx-pro-6000', 8, 128, 8192, 16635, 2849],
    ['rtx-pro-6000', 4, 128, 8192, 8723, 2851],
    ['rtx-pro-6000', 8, 32, 16384, 4119, 1450],
  ])(
    'of %s, %i heads a KV head, %i sequences of %i tokens takes what was measured',
    (id, group, n, length, both, alone) => {
      const ratio = besidePrompts(rates(id), group, n, n * length * ROW) / (both / alone);
      expect(Math.abs(ratio - 1)).toBeLessThan(0.08);
    },
  );

  it('reads the cache once while the L2 holds it, and where each head has a KV head of its own', () => {
    const gpu = { units: 100, bytesPerSecond: 1e12, tileFlopsPerSecond: 1e15, l2Bytes: 2 ** 20 };
    expect(besidePrompts(gpu, 8, 50, 2 ** 20 + 1)).toBe(1 + 7 / 2);
    expect(besidePrompts(gpu, 8, 500, 2 ** 30)).toBe(8);
    expect(besidePrompts(gpu, 8, 50, 2 ** 20)).toBe(1);
    expect(besidePrompts(gpu, 1, 500, 2 ** 30)).toBe(1);
    // 64 rows of 4 heads: 256 operations a byte, where the GPU does 100.
    expect(besidePrompts({ ...gpu, tileFlopsPerSecond: 1e14 }, 4, 1, 2 ** 10)).toBeCloseTo(2.56, 9);
  });

  it('is asked of vLLM’s second engine on GPUs of FlashAttention 2 alone', async () => {
    const isAsked = async (device: string, stack: string, serverVersion?: string): Promise<boolean> => {
      const server = serverVersion === undefined ? {} : { server: { serverVersion } };
      const scenario = { model: 'ouro-1.4b', device, stack, ...server };
      return prepare(scenario, await readSources(scenario)).request.pricer?.besidePrompts !== undefined;
    };
    expect(await isAsked('a100-80', 'vllm')).toBe(true);
    expect(await isAsked('a100-80', 'vllm', '0.7.3')).toBe(false);
    expect(await isAsked('a100-80', 'trtllm')).toBe(false);
    expect(await isAsked('h100', 'vllm')).toBe(false);
  });

  it('has widths of a server that nobody measured under vLLM’s first engine, and says so', async () => {
    const asked = async (serverVersion: string) => {
      const scenario = { model: 'ouro-1.4b', device: 'h100', stack: 'vllm', server: { serverVersion } };
      return prepare(scenario, await readSources(scenario)).request;
    };
    const [first, second] = [await asked('0.7.3'), await asked('0.12.0')];
    expect(first.pricer!.spread!.step).toBeGreaterThan(second.pricer!.spread!.step);
    expect(first.notes.join()).toContain('vLLM 0.7.3 has vLLM’s first engine');
    expect(second.notes.join()).not.toContain('first engine');
  });
});
