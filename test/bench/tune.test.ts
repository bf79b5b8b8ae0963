/** The search for tuned constants: with times that are a formula, then once on the device at hand. */
import type { Tuning } from '../../kernels/options.js';
import { describe, expect, test } from 'vitest';
import { searchTuning, tuningOf, type Trial, type TuneTools } from '../../src/bench/calibrate/tune.js';
import { randomFrom } from '../../src/numbers/random.js';
import { GpuError } from '../../kernels/host/errors.js';
import { tuned } from '../../kernels/launch.js';
import { TUNABLES } from '../../kernels/launches.js';
import { KERNEL_NAMES, type KernelCall } from '../../kernels/registry.js';
import type { Calibration } from '../../src/schema/calibration.js';
import { SEED as seed } from '../gpu/random.js';

const shapes: KernelCall[] = [
  { kernel: 'swiglu', variant: 'f32', shape: { rows: 1, width: 64 } },
  { kernel: 'swiglu', variant: 'f32', shape: { rows: 1, width: 4096 } },
];
const tunables = {
  swiglu: [
    { name: 'workgroup', values: [64, 128, 256, 512] },
    { name: 'columns', values: [1, 2, 4] },
  ],
} as const;

/** Tools whose times are `seconds(call, tuning)`, with noise that hits both sides of a round. */
function toolsOf(
  seconds: (call: KernelCall, tuning: Tuning) => number,
  change: Partial<TuneTools> = {},
): TuneTools & { trials: Trial[] } {
  const random = randomFrom(seed);
  const trials: Trial[] = [];
  const value = (t: Tuning): string => `${tuned(t, 'workgroup', 128)} ${tuned(t, 'columns', 2)}`;
  return {
    seed,
    trials,
    spent: () => false,
    changes: (_, a, b) => value(a) !== value(b),
    compare: (call, tuning, best) =>
      Promise.resolve(
        Array.from({ length: 12 }, () => (seconds(call, tuning) / seconds(call, best)) * (1 + 0.04 * (random() - 0.5))),
      ),
    onTrial: (t) => trials.push(t),
    ...change,
  };
}
/** The planner's own: 128 and 2. */
const cost = (t: Tuning, best: number): number =>
  1 + 0.2 * Math.abs(Math.log2(tuned(t, 'workgroup', 128) / best)) + 0.1 * Math.abs(tuned(t, 'columns', 2) - 4);

describe(`coordinate search (LLA_SIM_SEED=${seed})`, () => {
  test('finds the best of each constant and does not try the planner’s own again', async () => {
    const tools = toolsOf((_, t) => cost(t, 512));
    expect(await searchTuning(shapes, tools, tunables)).toEqual({ swiglu: { workgroup: 512, columns: 4 } });
    expect(tools.trials.map((t) => JSON.stringify(t.tuning))).not.toContain('{"workgroup":128}');
  });

  test('keeps nothing where nothing is faster, though noise favours some', async () => {
    const tools = toolsOf(() => 1);
    expect(await searchTuning(shapes, tools, tunables)).toEqual({});
  });

  test('what helps one shape and harms another is not taken', async () => {
    const tools = toolsOf(({ shape }, t) =>
      tuned(t, 'workgroup', 128) === 64 ? (shape['width'] === 64 ? 0.5 : 1.2) : 1,
    );
    expect(await searchTuning(shapes, tools, { swiglu: [tunables.swiglu[0]] })).toEqual({});
  });

  test('a wrong or refused candidate is told and never kept; a lost device ends the search', async () => {
    const tools = toolsOf((_, t) => cost(t, 512));
    const wrong = (tuning: Tuning): boolean => tuned(tuning, 'workgroup', 128) === 512;
    const reason = 'wrong result: relative error 0.5';
    const careful: TuneTools = {
      ...tools,
      compare: (c, t, b) => (wrong(t) ? Promise.reject(new GpuError('internal', reason)) : tools.compare(c, t, b)),
    };
    expect(await searchTuning(shapes, careful, tunables)).toEqual({ swiglu: { workgroup: 256, columns: 4 } });
    const found = tools.trials.find((t) => t.tuning['workgroup'] === 512);
    expect(found).toMatchObject({ kept: false, ratio: null, reason });
    const lost: TuneTools = { ...tools, compare: () => Promise.reject(new GpuError('lost', 'gone')) };
    await expect(searchTuning(shapes, lost, tunables)).rejects.toThrow('gone');
  });

  test('it stops when the time is spent', async () => {
    let left = 1;
    const tools = toolsOf((_, t) => cost(t, 512), { spent: () => left-- <= 0 });
    await searchTuning(shapes, tools, tunables);
    expect(tools.trials.length).toBeLessThanOrEqual(1);
  });
});

test('tunables name real kernels, each value once', () => {
  for (const [kernel, list] of Object.entries(TUNABLES)) {
    expect(KERNEL_NAMES).toContain(kernel);
    expect(new Set(list.map((t) => t.name)).size).toBe(list.length);
    for (const { values } of list) expect(new Set(values).size).toBe(values.length);
  }
});

test('the tuning of a calibration is found by kernel', () => {
  const kernels = [{ kernel: 'matmul', tuning: { workgroup: 64 } }, { kernel: 'rope' }];
  expect(tuningOf({ kernels } as unknown as Calibration)).toEqual({ matmul: { workgroup: 64 } });
});
