/** The runtime: bytes come back as they went, and what is wrong fails loudly. */
import { expect, test } from 'vitest';
import { fill, makeOperands, singleAt } from '../../src/bench/inputs.js';
import { mix } from '../../src/numbers/hash.js';
import { GpuError, planOperation, openDevice } from '../../src/gpu/index.js';
import { write, type Step } from '../../kernels/host/plan.js';
import type { KernelCall } from '../../kernels/registry.js';
import { describeGpu } from './device.js';

const noop: Step = {
  source: 'noop',
  element: 'f32',
  constants: {},
  uniforms: { value: 7 },
  buffers: write('target'),
  workgroups: [1, 1, 1],
};

test("an adapter that is not there is the user's error, with exit code 6 and the remedy", async () => {
  await expect(openDevice({ adapter: 'no such adapter' })).rejects.toMatchObject({
    name: 'UserError',
    exitCode: 6,
    message: expect.stringMatching(
      /^no usable GPU: (no adapter has "no such adapter" in its name$|(?!no adapter has))/,
    ) as string,
    hint: expect.stringMatching(/setup:gpu|^give --adapter a part of ".+", or leave it out$/) as string,
  });
});

describeGpu('device', (device) => {
  test('an upload in several chunks comes back unchanged', async () => {
    const words = Uint32Array.from({ length: 5_000_000 }, (_, i) => mix(i));
    const buffer = await device.buffer('words', words.byteLength);
    await device.write(buffer, words);
    expect(Buffer.compare(Buffer.from(await device.read(buffer)), Buffer.from(words.buffer))).toBe(0);
    device.free(buffer);
  });

  test('the device fills a buffer with what the host computes', async () => {
    const buffer = await device.buffer('random', 4000);
    await fill(device, buffer, 99);
    new Float32Array(await device.read(buffer)).forEach((x, i) => expect(x).toBe(singleAt(99, i)));
    device.free(buffer);
  });

  test('a step runs, and its run is timed', async () => {
    const target = await device.buffer('target', 16);
    const time = await device.run([await device.bind(noop, new Map([['target', target]]))]);
    expect(new Uint32Array(await device.read(target, 4))[0]).toBe(7);
    expect(time.wallSeconds).toBeGreaterThan(0);
    expect(time.deviceSeconds === null).toBe(device.clock === 'wall');
    expect(device.clock === 'processor').toBe(device.description.clock === 'processor');
    device.free(target);
  });

  test('parts of a program run in order, each with a time of its own, however many there are', async () => {
    const target = await device.buffer('target', 16);
    const steps = await Promise.all(
      [7, 8].map((value) => device.bind({ ...noop, uniforms: { value } }, new Map([['target', target]]))),
    );
    const parts = Array.from({ length: 2100 }, (_, i) => steps.slice(i % 2, (i % 2) + 1));
    if (device.hasTimestamps) {
      const seconds = await device.runEach(parts);
      expect(seconds).toHaveLength(parts.length);
      expect(await device.runEach([])).toEqual([]);
      for (const each of seconds) expect(each).toBeGreaterThanOrEqual(0);
      expect(Math.max(...seconds)).toBeGreaterThan(0);
      expect(new Uint32Array(await device.read(target, 4))[0]).toBe(8);
    } else {
      await expect(device.runEach(parts)).rejects.toThrow(/no timestamps/);
    }
    device.free(target);
  });

  test('a buffer beyond the limit is out of memory, before the driver is asked', async () => {
    await expect(device.buffer('huge', device.limits.maxBufferSize + 4)).rejects.toMatchObject({
      name: 'GpuError',
      fault: 'out-of-memory',
    });
  });

  test("an unknown constant and a missing buffer fail with the kernel's name", async () => {
    await expect(device.pipeline({ ...noop, constants: { NO_SUCH: 1 } })).rejects.toThrow(/noop\.wgsl.*NO_SUCH/s);
    await expect(device.bind(noop, new Map())).rejects.toThrow(/no buffer target/);
  });

  test('running a freed buffer fails and leaves the device usable', async () => {
    const target = await device.buffer('target', 16);
    const step = await device.bind(noop, new Map([['target', target]]));
    device.free(target);
    await expect(device.run([step])).rejects.toBeInstanceOf(GpuError);
    await expect(device.submitEmpty()).resolves.toBeGreaterThan(0);
  });

  test('outputs are poisoned: an output that no kernel wrote is NaN', async () => {
    const plan = planOperation({ kernel: 'swiglu', variant: 'f32', shape: { rows: 1, width: 8 } });
    const operands = await makeOperands(device, plan, 1);
    const output = operands.buffers.get('output');
    expect([...new Float32Array(await device.read(output!, 32))].every(Number.isNaN)).toBe(true);
    device.free(...operands.buffers.values());
  });
});

const ONES = { sequences: 1, kvHeads: 1, group: 1, context: 1, splits: 1 };
const ATTEND = { ...ONES, keyWidth: 2, valueWidth: 2, branchWidth: 0, branchHeads: 1 };

test.each([
  [{ kernel: 'attend', variant: 'q5', shape: { ...ATTEND, groupSize: 64 } }, /attend has no variant q5/],
  [{ kernel: 'attend', variant: 'q4', shape: { ...ATTEND, groupSize: 48 } }, /48 is not a multiple of 32/],
  [
    { kernel: 'rope', variant: 'half-split', shape: { rows: 1, heads: 1, headDim: 27 } },
    /headDim must be even, not 27/,
  ],
  [{ kernel: 'matmul', variant: 'f16', shape: { groups: 1, m: 0, k: 1, n: 1 } }, /m must be at least 1/],
  [{ kernel: 'swiglu', variant: 'f32', shape: { rows: 1 } }, /width must be a whole number/],
] as [KernelCall, RegExp][])('a shape that no kernel handles is refused: %j', (call, message) => {
  expect(() => planOperation(call)).toThrow(message);
});
