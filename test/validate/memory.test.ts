/** Bytes of every buffer against the memory model, on a device that records; command.test.ts has a real one. */
import { expect, test } from 'vitest';
import { memoryModel } from '../../src/cost/memory.js';
import {
  allocatedBytes,
  checkMemory,
  compareBytes,
  differing,
  memoryCases,
  predictedBytes,
} from '../../src/validate/memory/memory.js';
import { checkCorrectness, LOGIT_TOLERANCE, relativeError } from '../../src/validate/memory/correctness.js';
import { SMALL_OURO } from '../../src/validate/memory/geometries.js';
import type { Buffer } from '../../src/gpu/index.js';
import { words } from '../cli/program.js';
import { RecordingDevice } from '../decoder/recording-device.js';
import { SEED } from '../gpu/random.js';
import { expectAllBytes } from './bytes.js';

test('a difference of one byte is a mismatch, and both numbers are kept', () => {
  const [one] = memoryCases(true);
  if (!one) throw new Error('no cases');
  const m = memoryModel(one.c, one.contextTokens, 64);
  const predicted = predictedBytes(m, one.batch);
  const kindsOf = Object.entries(predicted) as [keyof typeof predicted, number][];
  const allocations = kindsOf.map(([kind, bytes]) => ({ label: kind, kind, bytes }));
  expect(differing(compareBytes({ allocations }, m, one.batch))).toEqual([]);
  for (const wrong of allocations) {
    const off = allocations.map((a) => (a === wrong ? { ...a, bytes: a.bytes + 1 } : a));
    const { kinds } = compareBytes({ allocations: off }, m, one.batch);
    const { kind, bytes } = wrong;
    expect(differing({ kinds })).toEqual([{ kind, allocatedBytes: bytes + 1, predictedBytes: bytes }]);
  }
  expect(allocatedBytes({ allocations }).control).toBe(0);
});

test('the cases are every codec with every path it has, with and without eviction', () => {
  const cases = memoryCases(false);
  const kinds = new Set(cases.map(({ c }) => c.codec.kind));
  const all = 'cla final-loop flashloop full hla kv-quant lla lla-2d lla-window mean-loop mla-head residual-quant';
  expect([...kinds].sort()).toEqual(words(all));
  expect(new Set(cases.map(({ c }) => `${c.path}${c.materialised ? ' materialised' : ''}`)).size).toBe(7);
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

test('logits that are wrong in one step are found, as are those that are no number', async () => {
  const wrong = 1e6;
  /** Its logits are zeros, but for one step. */
  class Wrong extends RecordingDevice {
    steps = 0;
    constructor(readonly at: number) {
      super();
    }
    override read = (buffer: Buffer, bytes: number): Promise<ArrayBuffer> => {
      const values = new Float32Array(bytes / 4);
      if (buffer.label === 'logits' && this.steps++ === this.at) values.fill(wrong);
      return Promise.resolve(values.buffer);
    };
  }
  const cases = memoryCases(true)
    .filter(({ c }) => c.codec.kind === 'full' && c.eviction === null && c.geometry.name === SMALL_OURO.name)
    .slice(0, 1);
  for (const at of [0, 5]) {
    const { rows } = await checkCorrectness(new Wrong(at).device, { seed: SEED, cases });
    expect(rows).toHaveLength(1);
    for (const { error } of rows) expect(error, `step ${at}, LLA_SIM_SEED=${SEED}`).toBeGreaterThan(1e3);
  }
  const { rows } = await checkCorrectness(new RecordingDevice().device, { seed: SEED, cases });
  expect(rows[0]?.error).toBeGreaterThan(LOGIT_TOLERANCE.f32);
  expect(relativeError([1, NaN], [1, 1])).toBe(Infinity);
});
