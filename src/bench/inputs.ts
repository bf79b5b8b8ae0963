/**
 * Operands of a benchmark or a contract test: made on the device by fill.wgsl, and known to the host without
 * reading them back, as the value of a word depends on the seed and its index only.
 */
import { halfValue } from '../../kernels/host/half.js';
import { mix } from '../numbers/hash.js';
import type { Scalars } from '../../kernels/reference.js';
import { bufferOf, write, type OperationPlan, type Step } from '../../kernels/host/plan.js';
import type { Device } from '../gpu/device.js';
import type { Buffer } from '../gpu/passes.js';
import type { RunTime } from '../gpu/platform.js';

/** Word `index` of a buffer filled from `seed`, before it is shaped into a value. */
const wordAt = (seed: number, index: number): number => mix(index ^ mix(seed));

/** Scalar `index` (in scalars) of an f16 buffer: magnitudes in [0.25, 1). */
function halfAt(seed: number, index: number): number {
  const word = ((wordAt(seed, index >>> 1) & 0x87ff87ff) >>> 0) + 0x34003400;
  return halfValue(index & 1 ? word >>> 16 : word & 0xffff);
}

/** Scalar `index` of an f32 buffer: in [-1, 1). */
export const singleAt = (seed: number, index: number): number => (wordAt(seed, index) >>> 8) * 2 ** -23 - 1;

/** Scalar `index` of a positive f32 buffer: in [2^-24, 1]. */
const positiveAt = (seed: number, index: number): number => ((wordAt(seed, index) >>> 8) + 1) * 2 ** -24;

const single = new Float32Array(1);
const singleWord = new Uint32Array(single.buffer);
function singleBits(value: number): number {
  single[0] = value;
  return singleWord[0] as number;
}

/** Word `index` of a u32 buffer below `modulus`. */
const integerAt = (seed: number, index: number, modulus: number): number => wordAt(seed, index) % modulus;

const MODES = { poison: 0, f16: 1, f32: 2, u32: 3, sequence: 4, positive: 5 } as const;
const WORKGROUP = 256;
const MOST_WORKGROUPS = 4096;

/** NaN as f32 and, twice, as f16. */
const NAN_WORD = 0x7fc07fc0;

/** A step of a source that has one form. */
export const plain = (step: Omit<Step, 'element' | 'constants'> & Partial<Pick<Step, 'constants'>>): Step => ({
  element: 'f32',
  constants: {},
  ...step,
});

/** Binds a step and runs it once. */
export async function runStep(device: Device, step: Step, buffers: ReadonlyMap<string, Buffer>): Promise<RunTime> {
  const bound = await device.bind(step, buffers);
  try {
    return await device.run([bound]);
  } finally {
    device.free(bound.uniforms);
  }
}

/** What `make` puts on the device, and what frees the buffers that it owns: where it fails, at once. */
export async function holding<T>(
  device: Pick<Device, 'free'>,
  make: (owned: Buffer[]) => Promise<T>,
): Promise<T & { free(): void }> {
  const owned: Buffer[] = [];
  const free = (): void => device.free(...owned);
  try {
    return { ...(await make(owned)), free };
  } catch (error) {
    free();
    throw error;
  }
}

async function fillWords(
  device: Device,
  target: Buffer,
  mode: keyof typeof MODES,
  seed: number,
  modulus: number,
): Promise<void> {
  const words = target.bytes / 4;
  const step = plain({
    source: 'fill',
    constants: { MODE: MODES[mode] },
    uniforms: { words, seed, modulus },
    buffers: write('target'),
    workgroups: [Math.min(MOST_WORKGROUPS, Math.ceil(words / WORKGROUP)), 1, 1],
  });
  await runStep(device, step, new Map([['target', target]]));
}

/** Fills a buffer with NaN, so that an output that a kernel leaves out cannot pass for a result. */
export const poison = (device: Device, target: Buffer): Promise<void> =>
  fillWords(device, target, 'poison', NAN_WORD, 1);

/** Fills a buffer with f32 operands. */
export const fill = (device: Device, target: Buffer, seed: number): Promise<void> =>
  fillWords(device, target, 'f32', seed, 1);

/** A plan's buffers on the device, filled, with what the host knows of them. */
export interface Operands {
  readonly buffers: ReadonlyMap<string, Buffer>;
  /** Scalar `index` of a buffer as it was filled. */
  scalar(name: string): Scalars;
  /** Word `index` of a buffer as it was filled: of caches, whose codes are no numbers. */
  words(name: string): Scalars;
}

/**
 * Makes and fills every buffer of a plan: inputs, streams and states at random, tables with their contents, the rest
 * with NaN. `sequential`: integers count up from 0 (a cache in order) instead of being random.
 */
export async function makeOperands(
  device: Device,
  plan: OperationPlan,
  seed: number,
  sequential = false,
): Promise<Operands> {
  const buffers = new Map<string, Buffer>();
  const seedOf = (name: string): number => mix(seed ^ mix(plan.buffers.findIndex((b) => b.name === name) + 1));
  try {
    for (const b of plan.buffers) {
      const buffer = await device.buffer(b.name, b.bytes);
      buffers.set(b.name, buffer);
      if (b.data) await device.write(buffer, b.data());
      else if (b.role === 'output' || b.role === 'scratch') await poison(device, buffer);
      else
        await fillWords(
          device,
          buffer,
          b.positive ? 'positive' : b.content === 'u32' && sequential ? 'sequence' : b.content,
          seedOf(b.name),
          b.below ?? 1,
        );
    }
  } catch (error) {
    device.free(...buffers.values());
    throw error;
  }
  const scalar = (name: string): Scalars => {
    const b = bufferOf(plan, name);
    const from = seedOf(name);
    if (b.content === 'f16') return (i) => halfAt(from, i);
    if (b.positive) return (i) => positiveAt(from, i);
    if (b.content === 'f32') return (i) => singleAt(from, i);
    return sequential ? (i) => i % (b.below ?? 1) : (i) => integerAt(from, i, b.below ?? 1);
  };
  const words = (name: string): Scalars => {
    const b = bufferOf(plan, name);
    const from = seedOf(name);
    if (b.content === 'f16') return (i) => ((wordAt(from, i) & 0x87ff87ff) + 0x34003400) >>> 0;
    const value = scalar(name);
    return b.content === 'f32' ? (i) => singleBits(value(i)) : value;
  };
  return { buffers, scalar, words };
}
