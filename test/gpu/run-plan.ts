/** Runs a plan with buffers whose contents the test gives word by word; what it does not give is poisoned. */
import { expect } from 'vitest';
import { poison } from '../../src/bench/inputs.js';
import { mix } from '../../src/numbers/hash.js';
import { SEED } from './random.js';
import { bufferOf, type Buffer, type Device, type OperationPlan } from '../../src/gpu/index.js';

export type Contents = Readonly<Record<string, Uint32Array<ArrayBuffer> | Float32Array<ArrayBuffer>>>;

/** A call of a kernel that adds up across eight threads of a subgroup. */
export const EIGHT_THREADS = {
  kernel: 'block_basis',
  variant: 'f32',
  shape: {
    ...{ sequences: 1, heads: 2, context: 256, rankK: 8, headDim: 128 },
    ...{ blockTokens: 256, functions: 37, setupPerRank: 1051 },
  },
} as const;

/** Random words: any bit pattern, NaN and infinities among them. */
export const randomWords = (seed: number, count: number): Uint32Array<ArrayBuffer> =>
  Uint32Array.from({ length: count }, (_, i) => mix(i ^ mix(seed)));

/** Random f32 in [-1, 1). */
export const randomSingles = (seed: number, count: number): Float32Array<ArrayBuffer> =>
  Float32Array.from({ length: count }, (_, i) => (mix(i ^ mix(seed)) >>> 8) * 2 ** -23 - 1);

/** Words of a plan's buffer. */
export const wordsIn = (plan: OperationPlan, name: string): number => bufferOf(plan, name).bytes / 4;

/** The words of each buffer after `runs` runs. */
export async function runPlan(
  device: Device,
  plan: OperationPlan,
  contents: Contents,
  runs = 1,
): Promise<(name: string) => Uint32Array<ArrayBuffer>> {
  const unknown = Object.keys(contents).filter((name) => !plan.buffers.some((b) => b.name === name));
  if (unknown.length > 0) throw new Error(`the plan has no buffer ${unknown.join(', ')}`);
  const buffers = new Map<string, Buffer>();
  try {
    for (const b of plan.buffers) {
      const buffer = await device.buffer(b.name, b.bytes);
      buffers.set(b.name, buffer);
      const given = contents[b.name] ?? b.data?.();
      if (given && given.byteLength !== b.bytes)
        throw new Error(`buffer ${b.name} takes ${b.bytes} bytes, ${given.byteLength} are given`);
      if (given) await device.write(buffer, given);
      else await poison(device, buffer);
    }
    const steps = await device.bindAll(plan, buffers);
    for (let i = 0; i < runs; i++) await device.run(steps);
    device.free(...steps.map((step) => step.uniforms));
    const read = new Map<string, Uint32Array<ArrayBuffer>>();
    for (const b of plan.buffers) read.set(b.name, new Uint32Array(await device.read(buffers.get(b.name)!, b.bytes)));
    return (name) => read.get(name)!;
  } finally {
    device.free(...buffers.values());
  }
}

/** Fails where any word of a buffer is another than expected. */
export function expectWords(
  result: (name: string) => Uint32Array<ArrayBuffer>,
  expected: Iterable<readonly [name: string, words: Uint32Array]>,
  where: string,
): void {
  for (const [name, words] of expected) {
    const actual = result(name);
    const wrong = words.findIndex((word, i) => word !== actual[i]);
    const what = `word ${wrong} of ${name} is ${actual[wrong]}, not ${words[wrong]}`;
    expect(wrong, `${what}: ${where}, LLA_SIM_SEED=${SEED}`).toBe(-1);
  }
}
