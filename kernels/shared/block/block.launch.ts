/** Launch parts that the kernels of block-absorbed attention share: blocks, their basis, and its tables. */
import type { RunOptions } from '../../attention-options.js';
import { capacityOf } from '../../host/cache-layout.js';
import { requireShape } from '../../host/errors.js';
import { f32, type BufferPlan } from '../../host/plan.js';
import type { RotaryOptions } from '../../host/rotary.js';
import { BLOCK_SIZES, blockPlan } from './block-absorbed.js';
import type { BlockBasis } from './block-basis.js';
import { blockBasisScalars } from '../../block_basis/terms.js';
import type { KernelCall } from '../../registry.js';
import { spansOf } from '../attention/fold.launch.js';

export const table = (name: string, words: number, data: () => Float32Array<ArrayBuffer>): BufferPlan =>
  f32(name, 'table', words, { data });

/** Blocks that a sequence's ring may have, and the last position of a call. */
export function reachOf(
  run: RunOptions,
  sequences: number,
  context: number,
  blockTokens: number,
): { blocks: number; positions: number } {
  const { pinned = 0 } = run;
  const spans = spansOf(run, sequences, context);
  const ring = capacityOf(run.capacity ?? pinned + spans.reduce((most, s) => Math.max(most, s.ring), 1)) - pinned;
  return {
    blocks: Math.ceil(ring / blockTokens),
    positions: spans.reduce((most, s) => Math.max(most, s.firstPosition + s.ring), 1),
  };
}

export function basisOf(call: KernelCall, rotary: RotaryOptions, headDim: number, blockTokens: number): BlockBasis {
  requireShape(
    (BLOCK_SIZES as readonly number[]).includes(blockTokens),
    `${call.kernel}: blocks have ${BLOCK_SIZES.join(', ')} positions, not ${blockTokens}`,
  );
  const { basis, functions } = blockPlan(rotary.ropeBase, headDim, blockTokens);
  requireShape(
    functions === call.shape.functions,
    `${call.kernel}: rotary base ${rotary.ropeBase} takes ${functions} functions for blocks of ${blockTokens}, ` +
      `not ${call.shape.functions}`,
  );
  return basis;
}

/** f32 [query head][block][quad of components, then the mean][function] (x 4). */
export const basisBuffer = (
  role: 'input' | 'output',
  queries: number,
  blocks: number,
  rankK: number,
  functions: number,
): BufferPlan => f32('basis', role, queries * blockBasisScalars(blocks, rankK, { blockTokens: 1, functions }));
