/** Operations on the rows of new tokens that steps and prompts have: encoding, rotation and writing to the cache. */
import { averagesLoops, codecSpec, isLatent } from '../codecs/registry.js';
import type { LayerBlock } from '../geometry/geometry.js';
import type { Frame, Target } from './bind/frame.js';
import { codecPlace, loopOf, placed, type Bound, type Placed, type WeightRef } from './bind/refs.js';
import { readsFirstRows } from './buffers.js';
import {
  anchoredIn,
  AXES,
  branchHeadsOf,
  groupSizeOf,
  headsOf,
  kvHeadsOf,
  latentsOf,
  NAME,
  rankOf,
  restoredLoops,
  spansLoops,
  storageOf,
  type Axis,
  type Configuration,
  type Part,
  type Visit,
  type When,
} from './configuration.js';
import { layerInput, type Rows } from './dense.js';
import {
  anchoredRow,
  branchKeyTime,
  branchWidth,
  hasHybridLatents,
  latentsByLoop,
  meanRow,
  owningTime,
} from './facts.js';
import { byAxis, everyRestoredLoop, inEachPart, op, perHead, type Bind, type Op } from './op.js';

/** Encodes keys (before rotation) or values of one loop: c (+)= x_t W_down,t. Storing takes the mean off. */
export function encodeOp(c: Configuration, axis: Axis, rows: number): Op {
  const latents = latentsOf(c);
  const width = (kvHeadsOf(c) / latents) * c.geometry.headDim;
  return perHead(`encode-${NAME[axis]}`, latents, rows, width, rankOf(c, axis), ENCODE[axis]);
}
const ENCODE = byAxis((axis): Bind => (f, visit) => {
  const [from, to] = [f.projected(axis), f.latents(visit, axis)];
  const x = { offset: from.at.offset, row: from.at.stride, group: f.c.geometry.headDim };
  const y = { offset: to.at.offset, row: to.at.stride, group: rankOf(f.c, axis) };
  return {
    options: { matmul: { x, y, accumulate: spansLoops(f.c) && loopOf(visit) > 0 } },
    binds: { x: from.rows, weights: { weights: 'down', ...codecPlace(visit), axis }, y: to.rows },
  };
});

/** Rotated latents, of attention's input, K and V side by side: those of loops after the first accumulate. */
const encodeInput: Bind = (f, visit) => {
  const [from, to] = [layerInput(f, visit), f.latents(visit, 'key')];
  const rows = ({ at }: Placed) => ({ offset: at.offset, row: at.stride });
  return {
    options: { matmul: { x: rows(from), y: rows(to), accumulate: placed(visit).loop > 1 } },
    binds: { x: from.rows, weights: { weights: 'map', ...codecPlace(visit), map: 'encode' }, y: to.rows },
  };
};

/** Encoding of new tokens. It is linear: the loops of a loop-axis latent accumulate. */
export function encodeOps(c: Configuration, block: LayerBlock, rows: number): Op[] {
  if (hasHybridLatents(c, block))
    return latentsByLoop(c).map(({ rankK, rankV, read }) =>
      perHead('encode', 1, rows, c.geometry.hidden, rankK + rankV, encodeInput, read),
    );
  return block.name === 'core' && isLatent(c.codec) ? AXES.map((axis) => encodeOp(c, axis, rows)) : [];
}

/** Rotation in place, of vectors of full width. */
const rotated =
  (of: Rows): Bind =>
  (f, visit) =>
    f.rotate(visit, of(f, visit), f.c.geometry.headDim);
const ROTATE_KEYS = rotated((f) => f.projected('key'));
const ROTATE_LATENTS = rotated((f, visit) => f.latents(visit, 'key'));
const rotateQueries: Bind = (f, visit) => f.rotateQueries(visit);
const rotateBranch: Bind = (f, visit) => f.rotateBranch(visit);
const rotateBranchKeys: Bind = (f, visit) => f.rotate(visit, f.branchKeys(visit), f.c.branch.width);

/** Rotation of heads of full width unless given. */
export const ropeOp = (
  c: Configuration,
  label: string,
  rows: number,
  heads: number,
  binds: Bind,
  when: When = 'always',
  headDim = c.geometry.headDim,
): Op => op(label, 'rope', c.geometry.rope.pairing, { rows, heads, headDim }, binds, when);

/** Rotation of new keys alone: where layers share them, and where prompts rotate them apart. */
export const ropeKeys = (c: Configuration, rows: number, when?: When): Op =>
  ropeOp(c, 'rope-k', rows, kvHeadsOf(c), ROTATE_KEYS, when);

/** Rotation of queries and new keys; on the absorbed path of the rotary branch alone, whose content has no position. */
export function rotateOps(c: Configuration, block: LayerBlock, rows: number, queries = true, keys = true): Op[] {
  const branch = branchWidth(c, block);
  if (branch > 0) {
    const time = branchKeyTime(c);
    return [
      ropeOp(c, 'rope-branch', rows, headsOf(c), rotateBranch, 'always', branch),
      ...(keys ? [ropeOp(c, 'rope-branch-key', rows, branchHeadsOf(c), rotateBranchKeys, time, branch)] : []),
    ];
  }
  const owning = owningTime(c, block);
  const rope = (heads: number): Op => ropeOp(c, 'rope', rows, heads, rotateQueries);
  if (queries && owning === 'always') return [rope(headsOf(c) + (keys ? kvHeadsOf(c) : 0))];
  return [...(queries ? [rope(headsOf(c))] : []), ...(keys ? [ropeKeys(c, rows, owning)] : [])];
}

/** Copies rows, or adds them up. */
export const accumulate = (input: Placed, output: Placed, factor = 1): Bound => ({
  options: { factor, placement: { input: input.at, output: output.at } },
  binds: { input: input.rows, target: output.rows },
});

/** The mean of keys (rotated) and values over the loops, which is complete after the last one; both side by side. */
export function meanOps(c: Configuration, block: LayerBlock, rows: number): Op[] {
  if (block.name !== 'core' || !averagesLoops(c.codec)) return [];
  const shape = { rows, width: meanRow(c) };
  const binds: Bind = (f, visit) => accumulate(f.projected('key'), f.means(visit), 1 / c.geometry.loops);
  return [
    op('mean-rows', 'accumulate', 'begin', shape, binds, 'first-loop'),
    op('mean-rows', 'accumulate', 'add', shape, binds, 'later-loops'),
  ];
}

/** Keys (rotated) and values of a loop, which wait until all that are stored with them are there. */
export function holdOps(c: Configuration, block: LayerBlock, rows: number): Op[] {
  const together = anchoredIn(c, block);
  const binds: Bind = (f, visit) => {
    const { rows, at, loopStride } = f.waiting(visit);
    const offset = at.offset + (placed(visit).loop % together) * loopStride;
    return accumulate(f.projected('key'), { rows, at: { ...at, offset } });
  };
  return together > 1 ? [op('hold-rows', 'accumulate', 'begin', { rows, width: meanRow(c) }, binds)] : [];
}

/** Coding and writing of the loops that are stored together. */
export function appendLoopsOp(c: Configuration, axis: Axis, rows: number): Op {
  const binds: Bind = (f, visit) => {
    const { cache, options, row = 0 } = f.target(visit, axis);
    const { rows, at, loopStride } = f.waiting(visit, axis);
    const { capacity, chunk = 1, first = 0, firstSequence = 0, firstStart = 0 } = options;
    const own = { rowOffset: at.offset + row * at.stride, rowStride: at.stride, loopStride };
    return {
      options: { appendResidual: { capacity, chunk, first, firstSequence, firstStart, ...own } },
      binds: { tokens: f.buffer('positions'), rows, cache },
    };
  };
  const shape = { rows, heads: kvHeadsOf(c), ...anchoredRow(c) };
  return op(`append-${NAME[axis]}`, 'append_residual', 'f32', shape, binds, 'anchor-loop');
}

export const appendOp = (
  c: Configuration,
  label: string,
  rows: number,
  heads: number,
  width: number,
  binds: Bind,
  when: When,
): Op => op(label, 'append', storageOf(c), { rows, heads, width, groupSize: groupSizeOf(c) }, binds, when);

/** Writes rows to a cache. @param bias added to them */
export function append(f: Frame, { cache, options, row = 0 }: Target, { rows, at }: Placed, bias?: WeightRef): Bound {
  const own = { rowOffset: at.offset + row * at.stride, rowStride: at.stride };
  return {
    options: { append: { ...options, ...own, ...(bias ? { bias: true } : {}) } },
    binds: { tokens: f.buffer('positions'), rows, ...(bias ? { bias } : {}), cache },
  };
}

/** Exact rows of new tokens, into the window beside latents. */
export const APPEND_RECENT = byAxis(
  (axis): Bind =>
    (f, visit) =>
      append(f, f.recentTarget(visit, axis), f.projected(axis)),
);

/** Rows of full width as they were projected, or their mean over the loops; into the window of a later loop. */
export const APPEND_ROWS = byAxis((axis): Bind => (f, visit) => {
  const { block, loop } = placed(visit);
  if (readsFirstRows(f.c, block) && loop > 0) return APPEND_RECENT[axis](f, visit);
  const averaged = block.name === 'core' && averagesLoops(f.c.codec);
  return append(f, f.target(visit, axis), averaged ? f.means(visit, axis) : f.projected(axis));
});

export const appendBranch: Bind = (f, visit) => append(f, f.target(visit, 'rotary-key'), f.branchKeys(visit));

/** Centred latents. */
export const APPEND_LATENTS = byAxis((axis): Bind => (f, visit) => {
  const centre: WeightRef = { weights: 'centre', ...codecPlace(visit), axis };
  return append(f, f.target(visit, `${axis}-latent`), f.latents(visit, axis), centre);
});

/** Latents that carry their rotation. */
const APPEND_ROTATED = byAxis((axis): Bind => (f, visit) => {
  const role = `${loopOf(visit) === 0 ? 'first-' : ''}${axis}-latent` as const;
  return append(f, f.target(visit, role), f.latents(visit, axis));
});

/** Rotation of key latents that are complete, heads of ordinary width side by side, and their writing to the cache. */
export const hybridAppendOps = (
  c: Configuration,
  rows: number,
  parts: readonly Part[] = [{ size: rows, repeat: 1 }],
): Op[] =>
  latentsByLoop(c).flatMap(({ rankK, rankV, complete }) => {
    const written = (label: string, width: number, binds: Bind): Op[] =>
      inEachPart(parts, (size) => [appendOp(c, label, size, 1, width, binds, complete)]);
    return [
      ropeOp(c, 'rope-latent', rows, rankK / c.geometry.headDim, ROTATE_LATENTS, complete),
      ...written('append-k', rankK, APPEND_ROTATED.key),
      ...written('append-v', rankV, APPEND_ROTATED.value),
    ];
  });

/** Rows of full width of every loop of a latent (`fast`): a product each where a KV head has a latent. */
export function restoreOps(c: Configuration, axis: Axis, rows: number, when: When): Op[] {
  const { headDim } = c.geometry;
  const [kvHeads, rank] = [kvHeadsOf(c), rankOf(c, axis)];
  const product = (groups: number, width: number): Op =>
    perHead(`restore-${NAME[axis]}`, groups, rows, rank, width, RESTORE[axis], when);
  return codecSpec(c.codec).latentFor === 'one-head'
    ? everyRestoredLoop(c, [product(kvHeads, headDim)])
    : [product(1, restoredRow(c))];
}
const RESTORE = byAxis((axis): Bind => (f, visit) => {
  const { kvHeads, headDim } = f.c.geometry;
  const { rows, at } = f.latents(visit, axis);
  const [rank, row] = [rankOf(f.c, axis), restoredRow(f.c)];
  const together = codecSpec(f.c.codec).latentFor === 'all-heads';
  const weights: WeightRef = { weights: together ? 'up-stacked' : 'up-columns', ...codecPlace(visit), axis };
  const matmul = together
    ? { x: { offset: at.offset, row: rank }, y: { row } }
    : {
        x: { offset: at.offset, row: kvHeads * rank, group: rank },
        y: { offset: restoredAt(f.c, visit), row, group: headDim },
      };
  return { options: { matmul }, binds: { x: rows, weights, y: f.buffer(`reconstructed ${axis}s`) } };
});

const restoredRow = (c: Configuration): number => restoredLoops(c) * kvHeadsOf(c) * c.geometry.headDim;
/** First float of a loop's rows among those of all loops that a latent stands for. */
const restoredAt = (c: Configuration, { op }: Visit): number => (op.loop ?? 0) * kvHeadsOf(c) * c.geometry.headDim;

/** Rotation of restored keys of all loops, with their means. */
export const ropeRestored = (c: Configuration, rows: number, when: When): Op =>
  ropeOp(c, 'rope-write', rows, restoredLoops(c) * kvHeadsOf(c), rotateRestored, when);
const rotateRestored: Bind = (f, visit) => {
  const { layer, loop } = placed(visit);
  const loops = Array.from({ length: restoredLoops(f.c) }, (_, i) => (spansLoops(f.c) ? i : loop));
  const keys = { rows: f.buffer('reconstructed keys'), at: { offset: 0, stride: restoredRow(f.c) } };
  const bias: WeightRef = { weights: 'restored-means', layer, loops, axis: 'key' };
  return f.rotate(visit, keys, f.c.geometry.headDim, { bias: true }, { bias });
};

export const APPEND_RESTORED = byAxis((axis): Bind => (f, visit) => {
  const [{ layer }, loop] = [placed(visit), loopOf(visit)];
  const at = { offset: restoredAt(f.c, visit), stride: restoredRow(f.c) };
  const mean: WeightRef | undefined =
    axis === 'value' ? { weights: 'restored-means', layer, loops: [loop], axis } : undefined;
  return append(f, f.target(visit, axis, loop), { rows: f.buffer(`reconstructed ${axis}s`), at }, mean);
});
