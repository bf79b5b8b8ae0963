/** Loops that are stored as differences to the last of them: what a step and a prompt do, and in which order. */
import { expect, test } from 'vitest';
import { RESIDUAL_FORMS } from '../../src/codecs/codec.js';
import { memoryModel, prefillPeaks } from '../../src/cost/memory.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { expand, forEachOp } from '../../src/schedule/expand.js';
import { prefillSchedule } from '../../src/schedule/prefill/prefill.js';
import { schedule, type Configuration } from '../../src/schedule/schedule.js';
import { workOf } from '../../kernels/registry.js';
import { asData, configuration, HUGINN, KiB, MiB, OURO } from '../contract/geometries.js';
import { runsOf, total } from './listed.js';

const of = (geometry: Geometry, residual: (typeof RESIDUAL_FORMS)[number] = 'mixed-g32'): Configuration =>
  configuration({ geometry, codec: { kind: 'residual-quant', residual }, path: 'full' });

const runs = (c: Configuration, label: string): string[] =>
  [...expand(c, schedule(c, 1, 1000))]
    .filter(({ op, place }) => op.label === label && place?.block.name === 'core' && place.layer === 0)
    .map(({ op, place }) => `${op.variant} ${place?.loop}`);

test('loops before the anchor read residuals, and all are written after the anchor has read the cache', () => {
  const c = of(OURO);
  expect(runs(c, 'attend')).toEqual(['residual 0', 'residual 1', 'residual 2', 'anchor 3']);
  expect(runs(c, 'hold-rows')).toHaveLength(4);
  expect(runs(c, 'append-k')).toEqual(['f32 3']);
  const last = [...expand(c, schedule(c, 1, 1000))]
    .filter(({ place }) => place?.layer === 0 && place.loop === 3)
    .map(({ op }) => op.label);
  expect(last.indexOf('hold-rows')).toBeGreaterThan(last.indexOf('rope'));
  expect(last.indexOf('append-k')).toBeGreaterThan(last.indexOf('merge'));
});

test('Huginn has an anchor every four loops, in the core alone', () => {
  const c = of(HUGINN);
  expect(runs(c, 'append-v')).toEqual([3, 7, 11, 15, 19, 23, 27, 31].map((loop) => `f32 ${loop}`));
  expect(runs(c, 'attend').filter((run) => run.startsWith('anchor'))).toHaveLength(8);
  const attends = runsOf(c, schedule(c, 1, 1000)).filter(({ op }) => op.kernel === 'attend_residual');
  expect(attends.map(({ op, calls }) => [op.variant, calls])).toEqual([
    ['residual', 4 * 24],
    ['anchor', 4 * 8],
  ]);
});

test('a step reads 310.5 KiB of each cached token, and keeps 1.5 MiB of a sequence until its last loop', () => {
  const c = of(OURO);
  const read = (context: number): number =>
    total(runsOf(c, schedule(c, 1, context)), 'attend', (op) => workOf(op).readBytes);
  expect(read(2000) - read(1000)).toBe(1000 * 310.5 * KiB);
  expect(memoryModel(c, 1000, 32).inFlightBytesPerSequence).toBe(1.5 * MiB);
});

test('a prompt attends exactly, whatever the method, and holds the rows of all layers until the last loop', () => {
  const c = of(OURO);
  const taken = prefillSchedule(c, 3000, 1024, 'chunked');
  expect(asData(taken)).toEqual(asData(prefillSchedule(c, 3000, 1024)));
  const kernels = new Map<string, number>();
  forEachOp(c, taken, ({ label, kernel }, calls) => {
    const key = label.startsWith('hold') || label.startsWith('append') ? label : kernel;
    kernels.set(key, (kernels.get(key) ?? 0) + calls);
  });
  // Three chunks of 24 layers, four loops.
  expect(kernels.get('attend_prefill')).toBe(3 * 24 * 4);
  expect(kernels.get('hold-k')).toBe(3 * 24 * 4);
  expect(kernels.get('append-k')).toBe(3 * 24);
  expect(kernels.has('attend_carried')).toBe(false);
  const { accumulated, chunked } = prefillPeaks(c, 4096);
  expect(chunked).toBe(accumulated);
  expect(accumulated).toBeGreaterThan((3 * 24 + 1) * 2 * 4096 * 16 * 128 * 2);
});
