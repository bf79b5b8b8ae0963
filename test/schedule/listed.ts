/** What a schedule lists, and what every operation of it has. */
import { expect } from 'vitest';
import { KERNELS, workOf, type KernelCall } from '../../kernels/registry.js';
import type { Work } from '../../kernels/spec.js';
import { forEachOp } from '../../src/schedule/expand.js';
import type { Configuration, Op, Schedule } from '../../src/schedule/schedule.js';

export const STREAMING = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 } as const;
export const H2O = { policy: 'h2o', heavyTokens: 128, recentTokens: 132, budgetTokens: 260 } as const;

/** An operation, how often it runs, and the work of each run. */
export interface Run {
  readonly op: Op;
  readonly calls: number;
  readonly work: Work;
}

export function runsOf(c: Configuration, s: Schedule): Run[] {
  const list: Run[] = [];
  forEachOp(c, s, (op, calls) => list.push({ op, calls, work: workOf(op) }));
  return list;
}

/** Over all runs of the operations of a label. */
export const total = (list: readonly Run[], label: string, value: (op: Op) => number = () => 1): number =>
  list.reduce((sum, { op, calls }) => (op.label === label ? sum + calls * value(op) : sum), 0);

/** Rows that an operation works on. */
export const rowsOf = ({ shape }: Op): number => (shape['m'] ?? shape['rows'] ?? shape['queries']) as number;

/** What a visitor is called with. */
export function callsOf(visit: (add: (call: KernelCall, times: number) => void) => unknown): [KernelCall, number][] {
  const calls: [KernelCall, number][] = [];
  visit((call, times) => calls.push([call, times]));
  return calls;
}

/** How often each call is there. */
export function counted(calls: Iterable<readonly [call: KernelCall, times: number]>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [{ kernel, variant, shape }, times] of calls) {
    const key = `${kernel} ${variant} ${JSON.stringify(Object.entries(shape).sort())}`;
    counts.set(key, (counts.get(key) ?? 0) + times);
  }
  return new Map([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** It has the dimensions of its kernel, a known variant, and finite work. */
export function expectKnown({ op, calls, work }: Run): void {
  expect(Object.keys(op.shape).sort(), op.label).toEqual([...KERNELS[op.kernel].dims].sort());
  expect(KERNELS[op.kernel].variants).toContain(op.variant);
  expect(calls).toBeGreaterThan(0);
  const { readBytes, writeBytes, flops, matrixFlops } = work;
  const amounts = [readBytes, writeBytes, flops, matrixFlops, ...KERNELS[op.kernel].terms(op.shape, op.variant)];
  for (const amount of amounts) {
    expect(amount, op.label).toBeGreaterThanOrEqual(0);
    expect(Number.isFinite(amount), op.label).toBe(true);
  }
  expect(matrixFlops).toBeLessThanOrEqual(flops);
}
