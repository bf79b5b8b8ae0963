/** What whole servers teach beside their kernels: the least width of an interval, slow hosts, how prompts are taken. */
import { describe, expect, it } from 'vitest';
import { priceStep } from '../../src/cost/latency.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { configurationOf } from '../../src/plan/evaluate/evaluate.js';
import type { PlanRequest } from '../../src/plan/types.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Scenario } from '../../src/schema/settings.js';
import { serverDefaults } from '../../src/stacks/server-memory.js';
import {
  cachesPrefixes,
  dividesPrompts,
  reservesPrompt,
  schedulesMeanwhile,
  takesPromptsFirst,
  watermarkOf,
} from '../../src/stacks/serving.js';
import { SEED } from '../gpu/random.js';

const requestOf = async (scenario: Scenario): Promise<PlanRequest> =>
  prepare(scenario, await readSources(scenario)).request;

describe('the interval of a step', () => {
  it.each(['h100', 'h200', 'a100-80', 'rtx-pro-6000', 'mi300x', 'rtx-3090'])(
    'is no narrower than whole servers were off: %s',
    async (device) => {
      const request = await requestOf({ device, codec: ['full'] });
      const { step, firstToken } = request.pricer!.spread!;
      expect(step).toBeGreaterThan(0.02);
      expect(firstToken).toBeGreaterThan(step);
      const c = configurationOf(request, request.candidates[0]!);
      const random = randomFrom(SEED);
      for (let i = 0; i < 20; i++) {
        const [batch, context] = [1 + Math.floor(64 * random()), 1 + Math.floor(16_384 * random())];
        const { estimate, low, high, floor } = priceStep(c, request.pricer!, batch, context);
        expect(Math.log(high / estimate), `${batch} × ${context}`).toBeGreaterThanOrEqual(step * (1 - 1e-9));
        // But no faster than the device's memory.
        const fastest = Math.max(estimate * Math.exp(-step), floor?.memory ?? 0);
        expect(low, `${batch} × ${context}`).toBeLessThanOrEqual(fastest * (1 + 1e-9));
      }
    },
  );

  it('is as wide as a server was off where it gave no constant, and as others where nobody measured it', async () => {
    const of = async (stack: string, device: string): Promise<number> =>
      (await requestOf({ device, codec: ['full'], model: 'ouro-1.4b', stack })).pricer!.spread!.step;
    // Its own figures are too few to tell nine tenths.
    expect(await of('vllm', 'rtx-4090')).toBe(await of('vllm', 'h200'));
    // Its own figures gave the server's constants.
    expect(await of('vllm', 'h100')).toBe(await of('vllm', 'h200'));
    expect(await of('vllm', 'h200')).toBe(await of('vllm', 'a100-80'));
    expect(await of('vllm', 'h200')).toBeLessThan(await of('sglang', 'h200'));
    // A GPU without tables is no surer than one with tables of a server that nobody measured.
    const without = await requestOf({ device: 'mi300x', codec: ['full'], model: 'ouro-1.4b' });
    expect(without.pricer!.spread!.step).toBe(await of('sglang', 'h200'));
  });
});

describe('an exchange', () => {
  it('through a host is at its slowest that of a slow host; over NVLink it is as the table says', async () => {
    const bytes = 4e6;
    const pair = await requestOf({ device: 'rtx-pro-6000', gpus: 2, codec: ['full'] });
    const { estimate, high } = pair.pricer!.collective('all-reduce', bytes, 2)!;
    // Activations in the schedule are f32, on the link bf16: 48 µs, and 64 GB/s at 22.2 of 64.
    expect(high).toBeCloseTo(48e-6 + bytes / 2 / 22.2e9, 9);
    expect(high / estimate).toBeGreaterThan(2);
    const joined = await requestOf({ device: 'h100', gpus: 2, codec: ['full'] });
    const price = joined.pricer!.collective('all-reduce', bytes, 2)!;
    expect(price.high / price.estimate).toBeLessThan(1.5);
  });

  it('on GPUs without tables is as on others that are joined alike', async () => {
    const of = async (device: string) => {
      const { pricer } = await requestOf({ device, gpus: 2, codec: ['full'] });
      return pricer!.collective('all-reduce', 16e3, 2)!;
    };
    const [direct, host] = [await of('mi300x'), await of('rtx-4090')];
    expect(direct.high / direct.low).toBeLessThan(6);
    // Cards on PCIe take two to three times as long, and how long depends on the board.
    expect(host.estimate).toBeGreaterThan(2 * direct.estimate);
    expect(host.high).toBeGreaterThan(48e-6);
  });

  it('through a host is no slower than the slowest published machine, and one machine is not all', async () => {
    const bytes = 32e6;
    const of = async (device: string, gpus: number) => {
      const { pricer } = await requestOf({ device, gpus, codec: ['full'] });
      return pricer!.collective('all-reduce', bytes, gpus)!;
    };
    for (const device of ['rtx-6000-ada', 'l4', 'a100-80-pcie']) {
      const { low, estimate, high } = await of(device, 4);
      // 3.7 of 32 GB/s, of the bytes that a ring sends.
      expect(high).toBeCloseTo(90e-6 + (2 * 3 * (bytes / 2)) / 4 / 3.7e9, 9);
      expect(low).toBeLessThan(estimate);
      expect(estimate).toBeLessThan(high);
      const pair = await of(device, 2);
      expect(pair.high / pair.estimate, device).toBeGreaterThan(1.2);
    }
    // The tables of L40S are of that machine: the estimate is not theirs alone.
    const [own, law] = [await of('l40s', 8), await of('rtx-6000-ada', 8)];
    expect(own.estimate).toBeGreaterThan(law.estimate);
    expect(own.estimate).toBeLessThan(0.6 * own.high);
    // A gather sends half of a sum, which the tables have.
    const { pricer } = await requestOf({ device: 'rtx-pro-6000', gpus: 8, codec: ['full'] });
    const [gather, sum] = (['all-gather', 'all-reduce'] as const).map((kind) => pricer!.collective(kind, bytes, 8)!);
    expect(gather!.high).toBeLessThanOrEqual(sum!.high);
  });
});

describe('SGLang', () => {
  it('takes prompts first, in chunks by memory, and schedules meanwhile', () => {
    const GIB = 2 ** 30;
    const today = (stack: string): { stack: string; version: null } => ({ stack, version: null });
    const first = { stack: 'vllm', version: '0.7.3' };
    expect([true, false].map((chunked) => takesPromptsFirst(first, chunked))).toEqual([false, true]);
    expect([first, { ...first, version: '0.8.0' }, today('vllm'), today('sglang')].map(watermarkOf)).toEqual([
      0.01, 0, 0, 0,
    ]);
    // Its defaults, too: whole prompts up to 32,768 tokens, and no prefix cache.
    expect([null, 30_208, 40_000].map((longest) => dividesPrompts(first, longest))).toEqual([false, false, true]);
    expect([first, today('vllm'), today('sglang'), null].map(cachesPrefixes)).toEqual([false, true, true, true]);
    expect([reservesPrompt('vllm', '0.7.3'), reservesPrompt('vllm', '0.11.0'), reservesPrompt('vllm', null)]).toEqual([
      true,
      false,
      true,
    ]);
    expect([today('sglang'), today('vllm'), null].map((host) => takesPromptsFirst(host, true))).toEqual([
      true,
      false,
      false,
    ]);
    const chunk = (gib: number): number => serverDefaults(today('sglang'), gib * GIB, 'some').batchedTokens;
    expect([24, 48, 80, 141, 192].map(chunk)).toEqual([2048, 4096, 8192, 8192, 16_384]);
    expect(serverDefaults(today('trtllm'), 40 * GIB, 'a100-40')).toEqual({ sequences: 2048, batchedTokens: 8192 });
    expect(schedulesMeanwhile('sglang', '0.3.6')).toBe(false);
    expect(schedulesMeanwhile('sglang', '0.5.1.post1')).toBe(true);
  });
});
