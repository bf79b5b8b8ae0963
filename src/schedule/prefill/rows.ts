/**
 * The operations on rows that all kinds of prefill use: encoding, reconstructing, keeping, writing to the cache and
 * reading back.
 */
import { pathSpec } from '../../codecs/paths.js';
import {
  AXES,
  branchHeadsOf,
  everyRestoredLoop,
  groupSizeOf,
  kvHeadsOf,
  latentsOf,
  op,
  perHead,
  rankOf,
  restoredLoops,
  restoreOps,
  storageOf,
  type Axis,
  type Configuration,
  type Op,
  type When,
} from '../configuration.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents, windowOf } from '../eviction-ops.js';
import { keptRowType, readsReconstructions, type Chunk, type Pass } from './pass.js';
import { appendOp, ropeOp } from '../rows.js';

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

/** Reading rows back from the cache. */
export const loadOp = (
  c: Configuration,
  label: string,
  rows: number,
  heads: number,
  width: number,
  when: When = 'always',
): Op => op(label, 'load', storageOf(c), { rows, heads, width, groupSize: groupSizeOf(c) }, when);

/** These rows are of full width, or latents. */
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

/** Writing of latents that are complete, or of the rows of all their loops on the fast path. */
export function writeLatentOps({ c, block }: Pass, axis: Axis, rows: number): Op[] {
  const d = c.geometry.headDim;
  const when = closingTime(c, block);
  if (!pathSpec(c.path).restores) return [appendOp(c, `append-${axis}`, rows, latentsOf(c), rankOf(c, axis), when)];
  return [
    ...restoreOps(c, `restore-${axis}`, rankOf(c, axis), rows, when),
    ...(axis === 'k' ? [ropeOp(c, 'rope-write', rows, restoredLoops(c) * kvHeadsOf(c), when)] : []),
    ...everyRestoredLoop(c, [appendOp(c, `append-${axis}`, rows, kvHeadsOf(c), d, when)]),
  ];
}

/** Writing of the rotary branch's keys. */
export function writeBranchOps({ c, block }: Pass, rows: number): Op[] {
  const branch = branchWidth(c, block);
  return branch > 0 ? [appendOp(c, 'append-branch', rows, branchHeadsOf(c), branch, closingTime(c, block))] : [];
}

/** Writing of the exact rows of a run's last tokens, which steps read beside latents or streams; pass 1 has them. */
export function recentOps({ c, block, batch, run, pass2, streams }: Pass, chunk: Chunk): Op[] {
  const window = streams ? run.tokens - streams.packed : windowOf(c, block);
  const from = Math.max(chunk.from, run.tokens - window);
  const tokens = chunk.from + chunk.tokens - from;
  if (pass2 || tokens <= 0 || window === 0) return [];
  return AXES.map((axis) => ({
    ...appendOp(c, `append-recent-${axis}`, batch * tokens, kvHeadsOf(c), c.geometry.headDim, 'always'),
    from,
  }));
}
