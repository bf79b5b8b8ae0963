/** The figures of a validation from made-up measurements whose answers are known. */
import { describe, expect, it } from 'vitest';
import { capacityHolds, type CapacityRow } from '../../src/validate/memory/capacity.js';
import type { StepRow } from '../../src/validate/latency.js';
import { judge, outsideTolerance } from '../../src/validate/checks.js';
import { type Check } from '../../src/validate/report.js';
import { signedError, summarise } from '../../src/validate/statistics.js';

const compared = (measuredSeconds: number, estimate: number, width = 0.1) => ({
  measuredSeconds,
  predicted: { estimate, low: estimate * (1 - width), high: estimate * (1 + width) },
});

describe('errors', () => {
  it('are signed from the measurement, and summarised', () => {
    expect(signedError(compared(2, 1))).toBeCloseTo(-0.5);
    const s = summarise([compared(1, 1.02), compared(1, 0.96), compared(1, 1.5), compared(1, 1.01), compared(1, 1.03)]);
    expect(s?.medianError).toBeCloseTo(0.03);
    expect(s?.bias).toBeCloseTo(0.02);
    expect(s?.coverage).toBeCloseTo(0.8);
    expect(s?.p90Error).toBeCloseTo(0.04 + 0.6 * 0.46);
    expect(summarise([])).toBeNull();
  });
});

describe('the end of memory', () => {
  it('holds within 2 % and on the same grid point', () => {
    const row = (predicted: number, reached: number, onGrid: [number, number]): CapacityRow => ({
      id: '',
      contextTokens: 1,
      predicted: { exact: predicted, onGrid: onGrid[0] },
      reached: { exact: reached, onGrid: onGrid[1], failedAt: reached + 1 },
      error: reached / predicted - 1,
    });
    expect(capacityHolds(row(100, 99, [96, 96]))).toBe(true);
    expect(capacityHolds(row(100, 97, [96, 96]))).toBe(false);
    expect(capacityHolds(row(96, 95, [96, 64]))).toBe(false);
  });
});

describe('judgement', () => {
  const step = (measuredSeconds: number, estimate: number): StepRow => ({
    ...compared(measuredSeconds, estimate),
    id: 'full/full',
    batch: 1,
    contextTokens: 2048,
    rawSeconds: [measuredSeconds],
    drift: [1],
    kernelDrift: 1,
    evidence: 'interpolated',
    rooflineShare: 0,
    octavesOutside: 0,
    operationsSeconds: measuredSeconds / 1.05,
    kernels: [],
  });
  const nothing = { correctness: null, memory: null, steps: null, capacity: null };
  const statusOf = (checks: readonly Check[], name: Check['name']) => checks.find((c) => c.name === name)?.status;
  it('fails on the median of a software adapter, and on a smaller one of a GPU', () => {
    const steps = Array.from({ length: 10 }, () => step(1, 1.05));
    expect(statusOf(judge({ ...nothing, software: true, quick: false, steps }), 'step-median-error')).toBe('holds');
    expect(statusOf(judge({ ...nothing, software: false, quick: false, steps }), 'step-median-error')).toBe('failed');
  });
  it('times never decide the exit code of --quick; memory always does', () => {
    const steps = [step(1, 2)];
    expect(outsideTolerance(judge({ ...nothing, software: true, quick: true, steps }))).toBe(false);
    expect(outsideTolerance(judge({ ...nothing, software: true, quick: false, steps }))).toBe(true);
    const kinds = [{ kind: 'cache' as const, allocatedBytes: 8, predictedBytes: 4 }];
    const row = { id: 'x', model: 'm', batch: 1, contextTokens: 1, controlBytes: 0, kinds };
    const memory = { rows: [row], mismatches: [row], notRun: [], notReached: 0 };
    expect(outsideTolerance(judge({ ...nothing, software: true, quick: true, memory }))).toBe(true);
  });
  it('fails on intervals that are too wide to act on', () => {
    const wide = (width: number, octavesOutside = 0): StepRow => {
      const own = step(1, 1);
      return { ...own, octavesOutside, predicted: { estimate: 1, low: 1 / width, high: width } };
    };
    const status = (steps: readonly StepRow[]) =>
      statusOf(judge({ ...nothing, software: true, quick: false, steps }), 'interval-width');
    expect(status([wide(1.2), wide(1.2), wide(2.9)])).toBe('holds');
    expect(status([wide(1.2), wide(1.3), wide(1.3)])).toBe('failed');
    expect(status([wide(1.2), wide(1.2), wide(3.1)])).toBe('failed');
    expect(status([wide(1.2), wide(1.2), wide(3.1, 2)])).toBe('holds');
  });
  it('says what was not checked', () => {
    expect(judge({ ...nothing, software: true, quick: false }).every((c) => c.status === 'not-checked')).toBe(true);
  });
});
