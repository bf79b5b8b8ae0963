/** Fabricated cache contents: pseudo-random words that are finite in every storage. */
import { write } from '../../../kernels/host/plan.js';
import type { Buffer, Device, Step } from '../../gpu/index.js';
import { mix } from '../../numbers/hash.js';
import type { Machine } from './machine.js';

/**
 * Modes of fill.wgsl: pairs of halves in ±[0.25, 1), which codes and scales can be as well; singles in [-1, 1);
 * positive ones; words below a bound.
 */
const MODES = { f16: 1, f32: 2, u32: 3, positive: 5 } as const;
const WORKGROUP = 256;
const MOST_WORKGROUPS = 4096;

async function fill(
  device: Device,
  target: Buffer,
  content: keyof typeof MODES,
  seed: number,
  below = 1,
): Promise<void> {
  const words = target.bytes / 4;
  const step: Step = {
    source: 'fill',
    element: 'f32',
    constants: { MODE: MODES[content] },
    uniforms: { words, seed, modulus: below },
    buffers: write('target'),
    workgroups: [Math.min(MOST_WORKGROUPS, Math.ceil(words / WORKGROUP)), 1, 1],
  };
  const bound = await device.bind(step, new Map([['target', target]]));
  try {
    await device.run([bound]);
  } finally {
    device.free(bound.uniforms);
  }
}

/** Fills all caches, and H2O's mass and positions. */
export async function fillCaches(device: Device, machine: Machine): Promise<void> {
  let seed = 1;
  for (const { tensor, buffer } of machine.caches.buffers())
    await fill(device, buffer, tensor.storage === 'f32' ? 'f32' : 'f16', mix(seed++));
  for (const buffer of machine.allocations.startingWith('kept mass '))
    await fill(device, buffer, 'positive', mix(seed++));
  for (const buffer of machine.allocations.startingWith('kept positions '))
    await fill(device, buffer, 'u32', mix(seed++), machine.setting.contextTokens);
}
