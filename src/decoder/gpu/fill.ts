/** Fabricated cache contents: pseudo-random words that are finite in every storage. */
import { write } from '../../../kernels/host/plan.js';
import type { Buffer, Step } from '../../gpu/index.js';
import { mix } from '../../numbers/hash.js';
import type { Machine } from './machine.js';
import { runAlone } from './program.js';

/** Modes of fill.wgsl: halves in ±[0.25, 1), as codes and scales too; singles; positive; words below a bound. */
const MODES = { f16: 1, f32: 2, u32: 3, positive: 5 } as const;
const WORKGROUP = 256;
const MOST_WORKGROUPS = 4096;

/** Fills all caches, and H2O's mass and positions. */
export async function fillCaches({ device, caches, allocations, setting }: Machine): Promise<void> {
  let seed = 1;
  const fill = (target: Buffer, content: keyof typeof MODES, modulus = 1): Promise<void> => {
    const words = target.bytes / 4;
    const step: Step = {
      source: 'fill',
      element: 'f32',
      constants: { MODE: MODES[content] },
      uniforms: { words, seed: mix(seed++), modulus },
      buffers: write('target'),
      workgroups: [Math.min(MOST_WORKGROUPS, Math.ceil(words / WORKGROUP)), 1, 1],
    };
    return runAlone(device, step, { target });
  };
  for (const { tensor, buffer } of caches.buffers()) await fill(buffer, tensor.storage === 'f32' ? 'f32' : 'f16');
  for (const buffer of allocations.startingWith('kept mass ')) await fill(buffer, 'positive');
  for (const buffer of allocations.startingWith('kept positions ')) await fill(buffer, 'u32', setting.contextTokens);
}
