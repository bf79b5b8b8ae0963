/** Operations on the rows of new tokens that steps and prompts have: encoding, rotation and writing to the cache. */
import { averagesLoops, isLatent, layoutOf } from '../codecs/registry.js';
import type { LayerBlock } from '../geometry/geometry.js';
import {
  anchoredIn,
  AXES,
  branchHeadsOf,
  encodersOf,
  groupSizeOf,
  headsOf,
  kvHeadsOf,
  op,
  perHead,
  rankOf,
  storageOf,
  type Axis,
  type Configuration,
  type Op,
  type When,
} from './configuration.js';
import type { ResidualRow } from '../../kernels/shared/cache/residual.layout.js';
import { owningTime } from './dense.js';
import { branchKeyTime, branchWidth } from './eviction-ops.js';

/** Encoding of exact keys or values of one loop. */
export function encodeOp(c: Configuration, axis: Axis, rows: number): Op {
  const [groups, width] = encodersOf(c);
  return perHead(`encode-${axis}`, groups, rows, width, rankOf(c, axis));
}

/**
 * Encoding of new tokens, from their keys before rotation. It is linear: the loops of a loop-axis latent accumulate.
 */
export const encodeOps = (c: Configuration, block: LayerBlock, rows: number): Op[] =>
  block.name === 'core' && isLatent(c.codec) ? AXES.map((axis) => encodeOp(c, axis, rows)) : [];

/** Rotation of heads of full width unless given. */
export const ropeOp = (
  c: Configuration,
  label: string,
  rows: number,
  heads: number,
  when: When = 'always',
  headDim = c.geometry.headDim,
): Op => op(label, 'rope', c.geometry.rope.pairing, { rows, heads, headDim }, when);

/** Rotation of queries and new keys; on the absorbed path of the rotary branch alone, whose content has no position. */
export function rotateOps(c: Configuration, block: LayerBlock, rows: number, queries = true, keys = true): Op[] {
  const branch = branchWidth(c, block);
  if (branch > 0)
    return [
      ropeOp(c, 'rope-branch', rows, headsOf(c), 'always', branch),
      ...(keys ? [ropeOp(c, 'rope-branch-key', rows, branchHeadsOf(c), branchKeyTime(c), branch)] : []),
    ];
  const owning = owningTime(c, block);
  if (queries && owning === 'always') return [ropeOp(c, 'rope', rows, headsOf(c) + (keys ? kvHeadsOf(c) : 0))];
  return [
    ...(queries ? [ropeOp(c, 'rope', rows, headsOf(c))] : []),
    ...(keys ? [ropeOp(c, 'rope-k', rows, kvHeadsOf(c), owning)] : []),
  ];
}

/** The mean of keys (rotated) and values over the loops, which is complete after the last one. */
export function meanOps(c: Configuration, block: LayerBlock, rows: number): Op[] {
  if (block.name !== 'core' || !averagesLoops(c.codec)) return [];
  const shape = { rows, width: meanRow(c) };
  return [
    op('mean-rows', 'accumulate', 'begin', shape, 'first-loop'),
    op('mean-rows', 'accumulate', 'add', shape, 'later-loops'),
  ];
}

/**
 * The row of a layer whose loops are stored together.
 * @throws Error for a codec without
 */
export function anchoredRow(c: Configuration): ResidualRow {
  const found = layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch).find(({ residual }) => residual);
  if (!found?.residual) throw new Error(`${c.codec.kind} stores each loop as it comes`);
  return found.residual;
}

/** Keys (rotated) and values of a loop, which wait until all that are stored with them are there. */
export const holdOps = (c: Configuration, block: LayerBlock, rows: number): Op[] =>
  anchoredIn(c, block) > 1 ? [op('hold-rows', 'accumulate', 'begin', { rows, width: meanRow(c) })] : [];

/** Coding and writing of the loops that are stored together. */
export const appendLoopsOp = (c: Configuration, axis: Axis, rows: number, repeat = 1): Op =>
  op(
    `append-${axis}`,
    'append_residual',
    'f32',
    { rows, heads: kvHeadsOf(c), ...anchoredRow(c) },
    'anchor-loop',
    repeat,
  );

/** Scalars of a token's rows of one loop in a layer: its keys, then its values. */
export const meanRow = (c: Configuration): number => 2 * kvHeadsOf(c) * c.geometry.headDim;

/** Writing of rows to the cache. */
export const appendOp = (
  c: Configuration,
  label: string,
  rows: number,
  heads: number,
  width: number,
  when: When,
  repeat = 1,
): Op => op(label, 'append', storageOf(c), { rows, heads, width, groupSize: groupSizeOf(c) }, when, repeat);
