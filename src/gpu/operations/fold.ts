/** What the three split-KV attention kernels share on the host side: see kernels/attend_fold.wgsl. */
import { capacityOf, TILE_TOKENS } from '../cache-layout.js';
import { f32, u32, type Uniform } from '../plan.js';

/** Query heads of one pass: enough for the group, in vec4 lanes, at most 16. */
const MAX_LANES = 16;
export const lanesOf = (group: number): number => (group === 1 ? 1 : Math.min(MAX_LANES, Math.ceil(group / 4) * 4));

/** Threads of which the most have a value pair to sum; of equals the larger, up to `most`. */
export function workgroupFor(valuePairs: number, most = 256): number {
  const used = (size: number) => (valuePairs >= size ? valuePairs / (Math.ceil(valuePairs / size) * size) : (Math.floor(size / valuePairs) * valuePairs) / size);
  return [256, 128, 64].filter((size) => size <= most).reduce((best, size) => (used(size) > used(best) + 0.04 ? size : best));
}

export interface FoldShape {
  group: number;
  context: number;
  splits: number;
  keyWidth: number;
  valueWidth: number;
  /** Rotary key scalars beside the key, and whether the heads of a sequence share them. */
  branchWidth?: number;
  branchShared?: boolean;
  /** Rows of a sequence's cache where that is not one a KV head: 1 if all heads share. */
  latentHeads?: number;
}

/** Constants of attend_fold.wgsl. */
export function foldConstants(shape: FoldShape, workgroup: number, tile: number, lanes = lanesOf(shape.group)): Record<string, number> {
  const quads = Math.ceil(lanes / 4);
  return {
    WG: workgroup,
    TILE: tile,
    LANES: lanes,
    QUADS: quads,
    STEP_LANES: Math.min(4, lanes),
    FOLD: workgroup * Math.max(lanes, 2 * Math.min(4, lanes)),
  };
}

/** Tokens of one split: whole units, so that splits start at a tile. Later splits may come out empty. */
export const splitTokens = (shape: FoldShape, unit: number = TILE_TOKENS): number => Math.ceil(Math.ceil(shape.context / shape.splits) / unit) * unit;

/** The uniform block `Params` of attend_fold.wgsl. `scale` multiplies q · k; softmax is computed in base 2. */
export const foldUniforms = (shape: FoldShape, workgroup: number, scale: number, unit: number = TILE_TOKENS): Uniform[] => [
  u32(shape.context),
  u32(capacityOf(shape.context)),
  u32(splitTokens(shape, unit)),
  f32(scale * Math.LOG2E),
  u32(1),
  u32(shape.latentHeads === 1 ? 1 : 0),
  u32(shape.group),
  u32(shape.keyWidth / 2),
  u32(shape.valueWidth / 2),
  u32(Math.max(1, Math.floor(workgroup / (shape.valueWidth / 2)))),
  u32((shape.branchWidth ?? 0) / 2),
  u32(shape.branchShared ? 1 : 0),
];

/** Bytes of the split partials of all queries. */
export const partialsBytes = (queries: number, shape: FoldShape): number => queries * shape.splits * (shape.valueWidth + 2) * 4;
