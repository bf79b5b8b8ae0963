/** Which pipelines are compiled ahead of a calibration, on devices whose clock is a formula. */
import { describe, expect, test } from 'vitest';
import { ANCHOR_RANGES, firstCalls } from '../../src/bench/calibrate/anchors.js';
import { compileAhead } from '../../src/bench/calibrate/compile.js';
import type { Track } from '../../src/bench/calibrate/visits.js';
import { pipelineKey, type Device } from '../../src/gpu/device.js';
import type { Step } from '../../kernels/host/plan.js';
import { validationModel } from '../../src/bench/calibrate/lists.js';
import { trackOf } from './made-up.js';

/** Tracks of the first calls. */
function tracksOf(): Track[] {
  const range = { ...ANCHOR_RANGES.software, targetWorkgroups: 528, bindingBytes: 2 ** 27 };
  const tracks = new Map<string, Track>();
  for (const { kernel, variant, shape, share } of firstCalls(validationModel(true, null), range)) {
    const id = `${kernel} ${variant}`;
    const track = tracks.get(id) ?? trackOf(kernel, variant);
    tracks.set(id, track);
    track.candidates.push({ shape, share });
  }
  return [...tracks.values()];
}

/** A device that takes `seconds` for a pipeline that it has not run; `order`: the pipelines of all devices. */
function deviceOf(seconds: number, order: string[], spend: (seconds: number) => void): Device {
  const ran = new Set<string>();
  return {
    description: { software: true },
    units: { matrixConfigs: [], subgroupSizes: [8, 8] },
    has: (feature: string) => feature === 'subgroups',
    buffer: (label: string, bytes: number) => Promise.resolve({ label, bytes }),
    bind: (step: Step) => Promise.resolve({ key: pipelineKey(step), uniforms: {} }),
    run: ([bound]: [{ key: string }]) => {
      if (!ran.has(bound.key)) {
        order.push(bound.key);
        spend(seconds);
      }
      ran.add(bound.key);
      return Promise.resolve({ wallSeconds: seconds, gpuSeconds: null });
    },
    free: () => undefined,
  } as unknown as Device;
}

async function compileIn({ devices = 2, untilSeconds = Infinity, most = Infinity }) {
  const tracks = tracksOf();
  const before = tracks.map((t) => t.candidates.length);
  const order: string[] = [];
  const compiled: Track[] = [];
  let at = 0;
  const device = (): Device => deviceOf(1, order, (seconds) => (at += seconds / devices));
  await compileAhead(tracks, {
    devices: Array.from({ length: devices }, device),
    now: () => at,
    untilSeconds,
    most,
    stopped: () => false,
    reach: { floorSeconds: 1e-5, bytesPerSecond: 1e10, operationsPerSecond: 4e10 },
    onPipeline: (track) => compiled.push(track),
  });
  return { tracks, before, order, compiled, at };
}

describe('compiling ahead', () => {
  test('each pipeline once, whichever device; no candidate is lost or put off', async () => {
    const { tracks, before, compiled } = await compileIn({ devices: 3 });
    expect(compiled.length).toBeGreaterThan(tracks.length);
    expect(new Set(compiled)).toEqual(new Set(tracks));
    expect(tracks.map((t) => t.candidates.length)).toEqual(before);
    expect(tracks.every((t) => t.later.length === 0)).toBe(true);
    const alone = await compileIn({ devices: 1 });
    expect(new Set(alone.order).size).toBe(alone.order.length);
  });

  test('what tells most for its time first', async () => {
    const { tracks, compiled } = await compileIn({ devices: 1 });
    const place = (kernel: string): number => compiled.findIndex((track) => track.kernel === kernel);
    // Products carry most of a step, norms next to nothing.
    expect(place('matmul')).toBeLessThan(tracks.length / 2);
    expect(place('matmul')).toBeLessThan(place('rmsnorm'));
  });

  test('what there was no time for is put off, but of a kernel of which nothing was compiled', async () => {
    const count = tracksOf().length;
    const [untilSeconds, most] = [count / 4, Math.floor(count / 2)];
    for (const rules of [{ untilSeconds }, { most }] as { untilSeconds?: number; most?: number }[]) {
      const { tracks, before, compiled, at } = await compileIn({ devices: 2, ...rules });
      expect(compiled.length).toBeGreaterThan(0);
      expect(compiled.length).toBeLessThanOrEqual(rules.most ?? Infinity);
      expect(at).toBeLessThan((rules.untilSeconds ?? Infinity) + 2);
      tracks.forEach((track, i) => {
        expect(track.candidates.length).toBeGreaterThan(0);
        expect(track.candidates.length + track.later.length).toBe(before[i]);
        if (!compiled.includes(track)) expect(track.later).toEqual([]);
      });
      expect(tracks.some((t) => t.later.length > 0)).toBe(true);
    }
  });
});
