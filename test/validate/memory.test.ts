/** Bytes of every buffer against the memory model: every codec, path and eviction that the planner offers. */
import { expect, test } from 'vitest';
import { memoryModel } from '../../src/cost/memory.js';
import { allocatedBytes, checkMemory, compareBytes, holds, memoryCases, predictedBytes } from '../../src/validate/memory.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';

test('a difference of one byte is a mismatch, and both numbers are kept', () => {
  const [one] = memoryCases(true);
  if (!one) throw new Error('no cases');
  const m = memoryModel(one.c, one.contextTokens, 64);
  const predicted = predictedBytes(m, one.batch);
  const allocations = Object.entries(predicted).map(([kind, bytes]) => ({ label: kind, kind: kind as keyof typeof predicted, bytes }));
  expect(holds(compareBytes({ allocations }, m, one.batch))).toBe(true);
  for (const wrong of allocations) {
    const off = allocations.map((a) => (a === wrong ? { ...a, bytes: a.bytes + 1 } : a));
    const { kinds } = compareBytes({ allocations: off }, m, one.batch);
    expect(holds({ kinds })).toBe(false);
    expect(kinds.find((k) => k.kind === wrong.kind)).toEqual({ kind: wrong.kind, allocatedBytes: wrong.bytes + 1, predictedBytes: wrong.bytes });
  }
  expect(allocatedBytes({ allocations }).control).toBe(0);
});

test('the cases are every codec with every path it has, with and without eviction', () => {
  const cases = memoryCases(false);
  const kinds = new Set(cases.map(({ c }) => c.codec.kind));
  expect([...kinds].sort()).toEqual(['cla', 'final-loop', 'full', 'kv-quant', 'lla', 'lla-2d', 'mla-head']);
  expect(new Set(cases.map(({ c }) => `${c.path}${c.materialised ? ' materialised' : ''}`)).size).toBe(6);
  expect(new Set(cases.map(({ c }) => c.eviction?.policy ?? 'none'))).toEqual(new Set(['none', 'streaming', 'h2o']));
  expect(new Set(cases.map((c) => c.batch)).size).toBeGreaterThan(1);
});

describeGpu(`memory (LLA_SIM_SEED=${SEED})`, (device) => {
  test('what the decoder allocates is what the model counts, to the byte', { timeout: 600_000 }, async () => {
    const report = await checkMemory(device, { seed: SEED, cases: memoryCases(true) });
    const words = report.mismatches.map((row) => `${row.id} batch ${row.batch}: ${row.kinds.filter((k) => k.allocatedBytes !== k.predictedBytes).map((k) => `${k.kind} ${k.allocatedBytes}, predicted ${k.predictedBytes}`).join('; ')}`);
    expect(words).toEqual([]);
    expect(report.notRun).toEqual([]);
    expect(report.rows.length).toBeGreaterThan(60);
    for (const [kind, least] of [['prefill', 15], ['prefill one-shot', 10], ['prefill by-layer', 10]] as const) {
      expect(report.rows.filter((row) => row.kinds.some((k) => k.kind === kind)).length, kind).toBeGreaterThan(least);
    }
  });
});
