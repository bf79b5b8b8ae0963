/**
 * Parts of measuring in a browser that need none: clocks, bounds, names, and what a file from elsewhere is judged by.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, test, vi } from 'vitest';
import { permitted } from '../../src/bench/calibrate/tracks.js';
import { lightest } from '../../src/bench/calibrate/choose.js';
import { summary } from '../../src/bench/calibrate/summary.js';
import { chooseClock, stepOf, wallStep } from '../../src/bench/resolution.js';
import { openBrowserDevice, rendererName } from '../../src/gpu/browser.js';
import { browserOf, systemOf } from '../../src/measure/host.js';
import { readRequest } from '../../src/measure/request.js';
import { judge } from '../../src/plan/ask/judge.js';
import { calibrationSchema, type Calibration } from '../../src/schema/calibration.js';
import { ROOT } from '../cli/program.js';

describe('clocks', () => {
  test('the step of timestamps is what all their differences are multiples of', () => {
    expect(stepOf([3e-4, 7e-4, 0, 1.1e-3])).toBeCloseTo(1e-4, 12);
    expect(stepOf([65_536e-9 * 3, 65_536e-9 * 4])).toBeCloseTo(65_536e-9, 12);
    expect(stepOf([0, 0])).toBeNull();
  });

  test('a submission is a hundred steps long, by the clock of the page where the GPU’s is too coarse', () => {
    const fine = chooseClock(1e-7, 1e-4, 0.005);
    expect(fine).toMatchObject({ kind: 'gpu-timestamp', resolutionSeconds: 1e-7, batchSeconds: 0.005 });
    const coarse = chooseClock(1e-4, 5e-6, 0.005);
    expect(coarse.kind).toBe('gpu-timestamp');
    expect(coarse.resolutionSeconds / coarse.batchSeconds).toBeLessThanOrEqual(0.01 + 1e-12);
    for (const stamps of [null, 2e-3]) {
      const wall = chooseClock(stamps, 1e-4, 0.005);
      expect(wall).toMatchObject({ kind: 'wall', resolutionSeconds: 1e-4 });
      expect(wall.batchSeconds).toBeCloseTo(0.01, 9);
    }
  });

  test('the step of a clock is the least that it makes', () => {
    let calls = 0;
    expect(wallStep(() => Math.floor(calls++ / 7) * 1e-4)).toBeCloseTo(1e-4, 9);
  });
});

describe('the device of a browser', () => {
  afterEach(() => vi.unstubAllGlobals());
  const open = (maxBufferSize: number, info: object) => {
    const device = { limits: {}, features: new Set(), addEventListener: () => {}, lost: new Promise(() => {}) };
    const adapter = {
      features: new Set(['b', 'a']),
      limits: { maxBufferSize },
      info: { vendor: '', architecture: '', device: '', description: 'a GPU', ...info },
      requestDevice: () => Promise.resolve(device),
    };
    vi.stubGlobal('navigator', { gpu: { requestAdapter: () => Promise.resolve(adapter) } });
    return openBrowserDevice();
  };

  it('has a quarter of the largest buffer for a point, at most 512 MiB', async () => {
    expect((await open(2 ** 30, {}))?.device.bounds.pointBytes).toBe(2 ** 28);
    expect((await open(2 ** 33, {}))?.device.bounds.pointBytes).toBe(2 ** 29);
    expect(await open(2 ** 30, {})).toMatchObject({ features: ['a', 'b'], limits: { maxBufferSize: 2 ** 30 } });
  });

  it('has the sizes of subgroups that its adapter tells, or none', async () => {
    const told = await open(2 ** 30, { subgroupMinSize: 8, subgroupMaxSize: 32 });
    expect(told?.device.units.subgroupSizes).toEqual([8, 32]);
    expect((await open(2 ** 30, {}))?.device.units.subgroupSizes).toEqual([0, 0]);
  });
});

describe('short dispatches', () => {
  const shapes = [64, 1, 8].map((rows) => ({ shape: { rows, width: 512 }, share: 0 }));
  const ceilings = { readBytesPerSecond: 1e9, f32FlopsPerSecond: 1e9 };
  const device = { bounds: { dispatchSeconds: 0.1, pointBytes: 1e9, roundedClocks: true } };
  const call = (rows: number) => ({ kernel: 'swiglu', variant: 'f32', shape: { rows, width: 512 } }) as const;

  it('begins with the lightest shape, and leaves out what the slowest so far says is too long', () => {
    expect(lightest({ kernel: 'swiglu', variant: 'f32', candidates: shapes })).toBe(1);
    const nothing = { variant: 'f32', entry: { samples: [] } } as unknown as Parameters<typeof permitted>[1];
    expect(permitted(device, nothing, call(64), ceilings)).toEqual(call(64));
    // One row took 10 ms; 64 rows would take 640.
    const slow = {
      variant: 'f32',
      entry: { samples: [{ ...call(1), seconds: [0.01] }] },
    } as unknown as typeof nothing;
    expect(permitted(device, slow, call(4), ceilings)).toEqual(call(4));
    // It may scatter by a factor of two: 80 ms are too near to the bound.
    expect(() => permitted(device, slow, call(8), ceilings)).toThrow(/takes about 0\.080 s a call/);
    expect(() => permitted(device, slow, call(64), ceilings)).toThrow(/takes about 0\.64 s a call/);
  });
});

test('a GPU is named without the words of WebGL’s translator', () => {
  expect(rendererName('ANGLE (NVIDIA, NVIDIA GeForce RTX 4090 (0x00002684) Direct3D11 vs_5_0 ps_5_0, D3D11)')).toBe(
    'NVIDIA GeForce RTX 4090',
  );
  expect(rendererName('ANGLE (Apple, ANGLE Metal Renderer: Apple M2 Pro, Unspecified Version)')).toBe('Apple M2 Pro');
  expect(rendererName('NVIDIA GeForce RTX 3060/PCIe/SSE2')).toBe('NVIDIA GeForce RTX 3060');
});

test('browser and system are what every page is told', () => {
  const firefox = 'Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0';
  expect([browserOf(firefox), systemOf(firefox)]).toEqual([{ name: 'Firefox', version: '150.0' }, 'Linux']);
  const safari =
    'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) ' +
    'Version/26.0 Safari/605.1.15';
  expect([browserOf(safari), systemOf(safari)]).toEqual([{ name: 'Safari', version: '26.0' }, 'macOS']);
  const brands = {
    brands: [
      { brand: 'Not)A;Brand', version: '8' },
      { brand: 'Chromium', version: '156' },
      { brand: 'Google Chrome', version: '156' },
    ],
    platform: 'Windows',
  };
  expect([browserOf('', brands), systemOf('', brands)]).toEqual([{ name: 'Google Chrome', version: '156' }, 'Windows']);
});

test('the address asks for less, never for nonsense', () => {
  const request = readRequest('#seconds=9&kernels=rope&seed=3');
  expect(request).toMatchObject({ seconds: 9, seed: 3 });
  const list = ['rope', 'swiglu'].map((kernel) => ({ kernel, variant: 'x', shape: {}, share: 1 }));
  const lists = [() => list, () => list] as unknown as Parameters<typeof request.calls>[0];
  expect(request.calls(lists).map((l) => l().map((c) => c.kernel))).toEqual([['rope'], ['rope']]);
  expect(readRequest('#seconds=-1&seed=x')).toMatchObject({ seconds: null, seed: null });
});

describe('a calibration from elsewhere', () => {
  const folder = join(ROOT, 'calibrations');
  const carried = readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .map((name) => [name, JSON.parse(readFileSync(join(folder, name), 'utf8')) as { schema?: string }] as const)
    .filter(([, json]) => json.schema === 'lla-sim/calibration')
    .map(([name, json]) => [name, calibrationSchema.parse(json)] as const);
  const wrong = (c: Calibration): string[] =>
    judge(c)
      .filter((f) => f.verdict === 'wrong')
      .map((f) => f.text);
  const changed = (change: (c: Calibration) => void): string[] => {
    const copy = structuredClone(carried[0]![1]);
    change(copy);
    return wrong(copy);
  };

  it.each(carried)('%s is taken', (_, c) => {
    expect(wrong(c)).toEqual([]);
  });

  it('is refused where its numbers cannot be', () => {
    const all = (c: Calibration) => c.kernels.flatMap((k) => k.samples);
    expect(changed((c) => all(c).forEach((s) => (s.seconds = s.seconds.map((t) => t / 1000)))).join()).toMatch(
      /above the ceilings/,
    );
    expect(changed((c) => all(c).forEach((s) => (s.seconds = s.seconds.map((t) => 1 / t)))).join()).toMatch(
      /twice as fast as a shape with an eighth of the work/,
    );
    expect(
      changed((c) =>
        all(c).forEach((s) => (s.seconds = s.seconds.map((t, i) => (2 * i < s.seconds.length ? t : 2 * t)))),
      ).join(),
    ).toMatch(/halves of the repetitions agree/);
    expect(changed((c) => c.kernels.forEach((k) => (k.sourceHash = 'other'))).join()).toMatch(/have changed since/);
    expect(changed((c) => c.kernels.forEach((k) => (k.samples = [])))).toEqual(['it holds no measured shape']);
  });
});

test('a summary names each ceiling, or why there is none', () => {
  const read = (name: string): Calibration =>
    calibrationSchema.parse(JSON.parse(readFileSync(join(ROOT, 'calibrations', name), 'utf8')));
  const text = summary(read('mesa-llvmpipe.json'), 'x.json');
  expect(text).toContain('f32 58.9GFLOP/s, f16 15.4GFLOP/s, no matrix ceiling (the adapter has no chromium-');
});
