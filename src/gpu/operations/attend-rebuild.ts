/** Split-KV decode attention over latents with K rebuilt and rotated inside: kernels/attend_rebuild.wgsl. */
import type { KernelCall } from '../../schedule/kernels.js';
import { capacityOf } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { read, write, type OperationPlan } from '../plan.js';
import { rotaryTables, type RotaryOptions } from '../rotary.js';
import { bytesOfPairs, dimensions, elementOf, requireEven, requirePositive } from '../shape.js';
import { foldConstants, foldUniforms, lanesOf, partialsBytes, workgroupFor } from './fold.js';

/** Latent pairs staged in workgroup memory at a time: 4 pairs of rows of them are 16 KiB. */
const MOST_RANK_STEP = 256;
/** Steps come in powers of two, so that few pipelines serve all ranks. */
export const rankStep = (rankPairs: number): number => Math.min(MOST_RANK_STEP, Math.max(16, 2 ** Math.ceil(Math.log2(rankPairs))));

/** Which positions each cached token has: all rows alike, or a list a sequence, or one a sequence and KV head (H2O). */
export type PositionsOf = 'all' | 'sequence' | 'head';

export interface AttendRebuildOptions {
  /** Factor of q · k; headDim^-½ unless given. */
  scale?: number;
  positionsOf?: PositionsOf;
}

/** Buffers: queries (rotated), keys, values, partials, weights, means, positions, centres, offsets. */
export function planAttendRebuild(call: KernelCall, rotary: RotaryOptions, { scale, positionsOf = 'all' }: AttendRebuildOptions = {}): OperationPlan {
  const s = dimensions(call, 'sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'splits');
  requirePositive(call, s);
  requireEven(call, s, 'rankK', 'rankV', 'headDim');
  const element = elementOf(call);
  requireShape(s.latentHeads === 1 || s.latentHeads === s.kvHeads, `attend_rebuild: latentHeads must be 1 or kvHeads (${s.kvHeads}), not ${s.latentHeads}`);
  const heads = s.sequences * s.kvHeads;
  const rows = s.sequences * s.latentHeads;
  const capacity = capacityOf(s.context);
  const shape = { ...s, keyWidth: s.rankK, valueWidth: s.rankV };
  const workgroup = workgroupFor(s.rankV / 2, 128);
  const rankPairs = s.rankK / 2;
  const positionRows = { all: 1, sequence: s.sequences, head: heads }[positionsOf];
  return {
    buffers: [
      { name: 'queries', role: 'input', content: 'f32', bytes: heads * s.group * s.headDim * 4 },
      { name: 'keys', role: 'stream', content: element, bytes: rows * capacity * rankPairs * bytesOfPairs(element) },
      { name: 'values', role: 'stream', content: element, bytes: rows * capacity * (s.rankV / 2) * bytesOfPairs(element) },
      { name: 'partials', role: 'output', content: 'f32', bytes: partialsBytes(heads * s.group, shape) },
      { name: 'weights', role: 'input', content: 'f16', bytes: s.kvHeads * s.headDim * rankPairs * 4 },
      { name: 'means', role: 'input', content: 'f32', bytes: s.kvHeads * s.headDim * 4 },
      { name: 'positions', role: 'input', content: 'u32', bytes: positionRows * capacity * 4, below: rotary.positions },
      ...rotaryTables(s.headDim, rotary),
    ],
    steps: [
      {
        source: 'attend_rebuild',
        element,
        constants: {
          ...foldConstants(shape, workgroup, 2 * workgroup),
          HEAD_PAIRS: s.headDim / 2,
          RANK_STEP: rankStep(rankPairs),
          POSITION_SEQUENCE: positionsOf === 'all' ? 0 : positionsOf === 'sequence' ? capacity : s.kvHeads * capacity,
          POSITION_HEAD: positionsOf === 'head' ? capacity : 0,
        },
        uniforms: foldUniforms(shape, workgroup, scale ?? s.headDim ** -0.5),
        buffers: [...read('queries', 'keys', 'values'), ...write('partials'), ...read('weights', 'means', 'positions', 'centres', 'offsets')],
        workgroups: [s.splits, s.kvHeads, s.sequences],
      },
    ],
    tuning: { workgroup, tile: 2 * workgroup, lanes: lanesOf(s.group) },
  };
}
