/** Materialises K or V of one layer and loop from latents: kernels/rebuild.wgsl. */
import type { KernelCall } from '../../schedule/kernels.js';
import { capacityOf } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { read, u32, write, type OperationPlan } from '../plan.js';
import { rotaryTables, type RotaryOptions } from '../rotary.js';
import { dimensions, requireEven, requirePositive, requireVariant } from '../shape.js';
import { rankStep } from './attend-rebuild.js';

/** Tokens of a workgroup: two a thread. */
const TOKENS = 256;

/** Buffers: keys (latents, f16), weights, means, positions, centres, offsets, rows. */
export function planRebuild(call: KernelCall, rotary: RotaryOptions): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'sequences', 'kvHeads', 'latentHeads', 'context', 'rank', 'headDim');
  requirePositive(call, s);
  requireEven(call, s, 'rank');
  requireShape(s.headDim % 4 === 0, `rebuild: headDim must be a multiple of 4, not ${s.headDim} (halves of a rotated row are stored in pairs)`);
  requireShape(s.latentHeads === 1 || s.latentHeads === s.kvHeads, `rebuild: latentHeads must be 1 or kvHeads (${s.kvHeads}), not ${s.latentHeads}`);
  const capacity = capacityOf(s.context);
  const rankPairs = s.rank / 2;
  return {
    buffers: [
      { name: 'keys', role: 'stream', content: 'f16', bytes: s.sequences * s.latentHeads * capacity * rankPairs * 4 },
      { name: 'weights', role: 'input', content: 'f16', bytes: s.kvHeads * s.headDim * rankPairs * 4 },
      { name: 'means', role: 'input', content: 'f32', bytes: s.kvHeads * s.headDim * 4 },
      { name: 'positions', role: 'input', content: 'u32', bytes: capacity * 4, below: rotary.positions },
      ...rotaryTables(s.headDim, rotary),
      { name: 'rows', role: 'output', content: 'f16', bytes: s.sequences * s.kvHeads * capacity * s.headDim * 2 },
    ],
    steps: [
      {
        source: 'rebuild',
        element: 'f16',
        constants: { HEAD_PAIRS: s.headDim / 2, RANK_STEP: rankStep(rankPairs), ROTATE: call.variant === 'rope' ? 1 : 0, ROW_SHARED: s.latentHeads === 1 ? 1 : 0 },
        uniforms: [u32(s.context), u32(capacity), u32(1), u32(rankPairs)],
        buffers: [...read('keys', 'weights', 'means', 'positions', 'centres', 'offsets'), ...write('rows')],
        workgroups: [Math.ceil(s.context / TOKENS), s.kvHeads, s.sequences],
      },
    ],
    tuning: { workgroup: TOKENS / 2, tile: TOKENS },
  };
}
