/** Faults of the decoder: a clear error, everything freed, nothing that could pass for a result. */
import '../gpu/narrow.js';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openDecoder, type GpuDecoder, type GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import { UserError } from '../../src/errors.js';
import { GpuError, openDevice, type Device } from '../../src/gpu/index.js';
import type { Configuration } from '../../src/schedule/schedule.js';
import { SMALL_OURO } from '../../src/validate/memory/geometries.js';
import { configuration } from '../contract/geometries.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { weightsOf } from '../decoder/models.js';
import { lose, meter, type Meter } from './meter.js';

const FULL = configuration({
  geometry: SMALL_OURO,
  choice: { storage: 'f16', groupSize: 32 },
  branch: { width: 6, perHead: false },
  targetWorkgroups: 8,
});
const LATENT: Configuration = { ...FULL, codec: { kind: 'lla', rankK: 12, rankV: 20 }, path: 'reconstruct' };
const open = (device: Device, c: Configuration, options: Partial<GpuDecoderOptions> = {}): Promise<GpuDecoder> =>
  openDecoder(device, c, { weights: { storage: 'f16', seed: SEED }, batch: 2, contextTokens: 64, ...options });

/** Weights of which one element is NaN. */
function withNaN(name: string, index: number): TensorSource {
  const plain = weightsOf(SMALL_OURO, SEED);
  return {
    shapes: plain.shapes,
    read: (tensor, from = 0, count) => {
      const values = plain.read(tensor, from, count);
      if (tensor === name && index >= from && index < from + values.length) values[index - from] = NaN;
      return values;
    },
  };
}

/** The error that a call ends with. */
const faultOf = async (call: Promise<unknown>): Promise<Error> => {
  const error = await call.then(String, (e: unknown) => e);
  return error instanceof Error ? error : expect.unreachable('no error');
};

describeGpu(`faults (LLA_SIM_SEED=${SEED})`, (device) => {
  let held: Meter;
  beforeEach(async () => {
    // The buffer of the timestamps belongs to the device and stays.
    await device.run([]);
    held = meter(device);
  });
  afterEach(() => held.remove());

  test('the meter sees what a decoder holds, and that closing frees all of it', async () => {
    const decoder = await open(device, LATENT);
    const allocated = decoder.allocations.reduce((sum, a) => sum + a.bytes, 0);
    expect(held.bytes).toBe(allocated + decoder.uniformBytes);
    decoder.close();
    decoder.close();
    expect([held.bytes, held.buffers]).toEqual([0, 0]);
  });

  test.each([
    ['full', FULL],
    ['lla', LATENT],
  ])('out of memory at any allocation: the error names the buffer, nothing stays (%s)', async (_, c) => {
    const whole = await open(device, c);
    const count = new Set(whole.allocations.map((a) => a.label.replace(' (rounding)', ''))).size;
    whole.close();
    const random = randomOf(SEED);
    const places = [0, 1, 2, count - 1, ...Array.from({ length: 12 }, () => random.whole(0, count - 1))];
    for (const place of places) {
      let made = 0;
      let refused = '';
      const short = Object.create(device, {
        buffer: {
          value: (label: string, bytes: number) => {
            if (made++ !== place) return device.buffer(label, bytes);
            refused = label;
            return Promise.reject(new GpuError('out-of-memory', `buffer ${label}: no memory`));
          },
        },
      }) as Device;
      const error = await faultOf(open(short, c));
      expect(error, `allocation ${place}`).toBeInstanceOf(GpuError);
      expect((error as GpuError).fault).toBe('out-of-memory');
      expect(error.message).toContain(refused);
      expect(error.message).toMatch(/ \(\d+ bytes in \d+ buffers are allocated already\)$/);
      expect([held.bytes, held.buffers], `allocation ${place} (${refused})`).toEqual([0, 0]);
    }
  });

  test("a buffer that the device itself refuses is an 'out-of-memory' too", async () => {
    const huge = { ...FULL, geometry: { ...SMALL_OURO, kvHeads: 4, headDim: 256, heads: 4 } };
    const error = await faultOf(open(device, huge, { contextTokens: 2 ** 26, batch: 1 }));
    expect(error).toBeInstanceOf(GpuError);
    expect((error as GpuError).fault).toBe('out-of-memory');
    expect(held.bytes).toBe(0);
  });

  test('NaN in weights that are stored as halves is refused by name when they are loaded', async () => {
    const random = randomOf(SEED + 1);
    const all = modelTensors(SMALL_OURO).filter((t) => t.role === 'matrix' && !t.name.includes('exit_gate'));
    const { name, shape } = all[random.whole(0, all.length - 1)] as (typeof all)[number];
    const index = random.whole(0, (shape[0] as number) * (shape[1] as number) - 1);
    const weights = { storage: 'f16', seed: SEED, model: withNaN(name, index) } as const;
    const error = await faultOf(open(device, FULL, { weights }));
    expect(error).toBeInstanceOf(UserError);
    for (const part of [name, `element ${index}`]) expect(error.message).toContain(part);
    expect([held.bytes, held.buffers]).toEqual([0, 0]);
  });

  test('NaN that reaches the logits is an error of the step, not a token', async () => {
    const random = randomOf(SEED + 2);
    const all = modelTensors(SMALL_OURO).filter((t) => /_proj|mlp|lm_head/.test(t.name) && t.role === 'matrix');
    const { name, shape } = all[random.whole(0, all.length - 1)] as (typeof all)[number];
    const index = random.whole(0, (shape[0] as number) * (shape[1] as number) - 1);
    const weights = { storage: 'f32', seed: SEED, model: withNaN(name, index) } as const;
    const decoder = await open(device, FULL, { weights });
    const error = await faultOf(decoder.step([1, 2]));
    expect(error, name).toBeInstanceOf(GpuError);
    expect(error.message).toContain('the logits of sequence 0 hold NaN at position 0');
    expect([held.bytes, held.buffers]).toEqual([0, 0]);
    expect(await faultOf(decoder.step([1, 2]))).toBeInstanceOf(GpuError);
  });

  test('a lost device in mid-step: the step rejects, and so does everything after it', async () => {
    const own = await openDevice();
    await own.run([]);
    const counted = meter(own);
    const decoder = await open(own, LATENT);
    await decoder.step([1, 2]);
    const pending = faultOf(decoder.step([3, 4]));
    // The step is under way: its inputs are being written.
    await Promise.resolve();
    lose(own);
    const error = await pending;
    expect(error).toBeInstanceOf(GpuError);
    expect(['lost', 'validation', 'internal']).toContain((error as GpuError).fault);
    const after = await faultOf(decoder.step([5, 6]));
    expect((after as GpuError).fault).toBe('lost');
    expect(counted.bytes).toBe(0);
    own.close();
  });

  test('8 decoders one after the other and 80 steps leave no buffer behind', async () => {
    for (let i = 0; i < 8; i++) {
      const decoder = await open(device, i % 2 === 0 ? FULL : LATENT);
      await decoder.step([1, 2]);
      decoder.close();
    }
    expect([held.bytes, held.buffers]).toEqual([0, 0]);
    const decoder = await open(device, LATENT, { contextTokens: 81 });
    await decoder.step([1, 2]);
    const before = held.buffers;
    for (let i = 0; i < 80; i++) await decoder.step([i % 100, 3]);
    // Steps are bound anew where their shapes change; one step's uniform blocks replace another's.
    expect(Math.abs(held.buffers - before)).toBeLessThanOrEqual(16);
    decoder.close();
    expect([held.bytes, held.buffers]).toEqual([0, 0]);
  });
});
