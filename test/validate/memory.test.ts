/**
 * Bytes of every buffer against the memory model: every codec that the planner offers, on a device that only records.
 * command.test.ts opens some of them on a real one.
 */
import { expect, test } from 'vitest';
import { memoryModel } from '../../src/cost/memory.js';
import {
  allocatedBytes,
  checkMemory,
  compareBytes,
  holds,
  memoryCases,
  predictedBytes,
} from '../../src/validate/memory.js';
import { RecordingDevice } from '../decoder/recording-device.js';
import { SEED } from '../gpu/random.js';
import { expectAllBytes } from './bytes.js';

test('a difference of one byte is a mismatch, and both numbers are kept', () => {
  const [one] = memoryCases(true);
  if (!one) throw new Error('no cases');
  const m = memoryModel(one.c, one.contextTokens, 64);
  const predicted = predictedBytes(m, one.batch);
  const allocations = Object.entries(predicted).map(([kind, bytes]) => ({
    label: kind,
    kind: kind as keyof typeof predicted,
    bytes,
  }));
  expect(holds(compareBytes({ allocations }, m, one.batch))).toBe(true);
  for (const wrong of allocations) {
    const off = allocations.map((a) => (a === wrong ? { ...a, bytes: a.bytes + 1 } : a));
    const { kinds } = compareBytes({ allocations: off }, m, one.batch);
    expect(holds({ kinds })).toBe(false);
    expect(kinds.find((k) => k.kind === wrong.kind)).toEqual({
      kind: wrong.kind,
      allocatedBytes: wrong.bytes + 1,
      predictedBytes: wrong.bytes,
    });
  }
  expect(allocatedBytes({ allocations }).control).toBe(0);
});

test('the cases are every codec with every path it has, with and without eviction', () => {
  const cases = memoryCases(false);
  const kinds = new Set(cases.map(({ c }) => c.codec.kind));
  expect([...kinds].sort()).toEqual([
    'cla',
    'final-loop',
    'full',
    'kv-quant',
    'lla',
    'lla-2d',
    'lla-window',
    'mla-head',
  ]);
  expect(new Set(cases.map(({ c }) => `${c.path}${c.materialised ? ' materialised' : ''}`)).size).toBe(6);
  expect(new Set(cases.map(({ c }) => c.eviction?.policy ?? 'none'))).toEqual(new Set(['none', 'streaming', 'h2o']));
  expect(new Set(cases.map((c) => c.batch)).size).toBeGreaterThan(1);
});

test('what the decoder asks for is what the model counts, to the byte, in every case of a model', async () => {
  const cases = memoryCases(true);
  const report = await checkMemory(new RecordingDevice().device, { seed: SEED, cases });
  expectAllBytes(report);
  expect(report.rows).toHaveLength(cases.length);
  for (const [kind, least] of [
    ['prefill', 15],
    ['prefill one-shot', 10],
    ['prefill by-layer', 10],
  ] as const) {
    expect(report.rows.filter((row) => row.kinds.some((k) => k.kind === kind)).length, kind).toBeGreaterThan(least);
  }
});
