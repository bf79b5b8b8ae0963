/**
 * The operations on rows that all kinds of prefill use: encoding, reconstructing, keeping, writing to the cache and
 * reading back.
 */
import { pathSpec } from '../codecs/paths.js';
import {
  encodersOf,
  everyRestoredLoop,
  headsPerGpu,
  latentsOf,
  op,
  perHead,
  restoredLoops,
  restoreOps,
  storageOf,
  type Configuration,
  type Op,
  type When,
} from './configuration.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents } from './eviction-ops.js';
import { groupOf } from '../kernels/spec.js';
import { keptRowType, readsReconstructions, type Pass } from './prefill-pass.js';

export type Axis = 'k' | 'v';
export const AXES: readonly Axis[] = ['k', 'v'];

export const kvHeadsOf = (c: Configuration): number => headsPerGpu(c.geometry.kvHeads, c.gpus);
export const rankOf = ({ codec }: Configuration, axis: Axis): number => (axis === 'k' ? codec.rankK : codec.rankV) ?? 0;
export const branchHeadsOf = (c: Configuration): number => (c.branch.perHead ? kvHeadsOf(c) : 1);

/** Rows of full width as attention reads them, in memory of their own. */
export const keepOp = (
  { c, captures }: Pick<Pass, 'c' | 'captures'>,
  label: string,
  rows: number,
  when: When = 'always',
): Op =>
  op(
    label,
    'append',
    keptRowType(c, captures),
    { rows, heads: kvHeadsOf(c), width: c.geometry.headDim, groupSize: 0 },
    when,
  );

/** Encoding of exact keys or values of one loop. */
export function encodeOp(c: Configuration, axis: Axis, rows: number): Op {
  const [groups, width] = encodersOf(c);
  return perHead(`encode-${axis}`, groups, rows, width, rankOf(c, axis));
}

const loadOp = (
  c: Configuration,
  label: string,
  rows: number,
  heads: number,
  width: number,
  when: When = 'always',
): Op =>
  op(label, 'load', storageOf(c), { rows, heads, width, groupSize: groupOf(storageOf(c), c.choice.groupSize) }, when);

/** Reading rows of full width, or latents, back from the cache. */
export const loadRows = (c: Configuration, axis: Axis, rows: number): Op =>
  loadOp(c, `load-${axis}`, rows, kvHeadsOf(c), c.geometry.headDim);
export const loadLatents = (c: Configuration, axis: Axis, rows: number): Op =>
  loadOp(c, `load-${axis}`, rows, latentsOf(c), rankOf(c, axis));

/** Rows of one loop from latents, and their mean. */
export function reconstructOps(c: Configuration, axis: Axis, rows: number): Op[] {
  const { headDim } = c.geometry;
  return [
    perHead(`reconstruct-${axis}`, kvHeadsOf(c), rows, rankOf(c, axis), headDim),
    op(`mean-${axis}`, 'rmsnorm', 'add', { rows, width: kvHeadsOf(c) * headDim }),
  ];
}

/**
 * Rows of the cache as attention reads them: latents reconstructed in one loop, or rows of full width as they are.
 * @param branchTime of keys of the rotary branch
 */
export function readBackOps(p: Pass, rows: number, branchTime: When = branchKeyTime(p.c)): Op[] {
  const { c, block } = p;
  const branch = branchWidth(c, block);
  const branchKeys = branch > 0 ? [loadOp(c, 'load-branch', rows, branchHeadsOf(c), branch, branchTime)] : [];
  if (readsReconstructions(p)) return branchKeys;
  if (!readsLatents(c, block)) return AXES.map((axis) => loadRows(c, axis, rows));
  return [...AXES.flatMap((axis) => [loadLatents(c, axis, rows), ...reconstructOps(c, axis, rows)]), ...branchKeys];
}

export const appendOp = (c: Configuration, label: string, rows: number, heads: number, width: number, when: When): Op =>
  op(label, 'append', storageOf(c), { rows, heads, width, groupSize: groupOf(storageOf(c), c.choice.groupSize) }, when);

/** Writing of latents that are complete, or of the rows of all their loops on the fast path. */
export function writeLatentOps({ c, block }: Pass, axis: Axis, rows: number): Op[] {
  const d = c.geometry.headDim;
  const when = closingTime(c, block);
  if (!pathSpec(c.path).restores) return [appendOp(c, `append-${axis}`, rows, latentsOf(c), rankOf(c, axis), when)];
  const loops = restoredLoops(c);
  return [
    ...restoreOps(c, `restore-${axis}`, rankOf(c, axis), rows, when),
    ...(axis === 'k'
      ? [op('rope-write', 'rope', c.geometry.rope.pairing, { rows, heads: loops * kvHeadsOf(c), headDim: d }, when)]
      : []),
    ...everyRestoredLoop(c, [appendOp(c, `append-${axis}`, rows, kvHeadsOf(c), d, when)]),
  ];
}

/** Writing of the rotary branch's keys. */
export function writeBranchOps({ c, block }: Pass, rows: number): Op[] {
  const branch = branchWidth(c, block);
  return branch > 0 ? [appendOp(c, 'append-branch', rows, branchHeadsOf(c), branch, closingTime(c, block))] : [];
}
