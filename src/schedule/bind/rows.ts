/**
 * What operations on the rows of new tokens bind, in steps and prompts: encoding, rotation, restoring rows of full
 * width from latents, and writing to the cache.
 */
import { pathSpec } from '../../codecs/paths.js';
import { averagesLoops, codecSpec, isHybrid, isLatent } from '../../codecs/registry.js';
import type { RopeOptions } from '../../../kernels/options.js';
import { anchoredIn, restoredLoops, spansLoops } from '../configuration.js';
import { streamsIn } from '../streams.js';
import type { Visit } from '../expand.js';
import { layerInput, type Bind, type Binds } from './dense.js';
import type { Frame, Target } from './frame.js';
import {
  loopOf,
  placed,
  type BufferRef,
  type Bound,
  type Placed,
  type Ref,
  type RowAxis,
  type WeightRef,
} from './refs.js';

/** c (+)= x_t W_down,t, of the keys before their rotation; the mean is taken off when the row is stored. */
const encode =
  (axis: RowAxis): Bind =>
  (f, visit) => {
    const loop = loopOf(visit);
    const [from, to] = [f.projected(axis), f.latents(visit, axis)];
    const x = { offset: from.at.offset, row: from.at.stride, group: f.c.geometry.headDim };
    const y = { offset: to.at.offset, row: to.at.stride, group: f.rankOf(axis) };
    return {
      options: { matmul: { x, y, accumulate: spansLoops(f.c) && loop > 0 } },
      binds: { x: from.rows, weights: { weights: 'down', layer: placed(visit).layer, loop, axis }, y: to.rows },
    };
  };

/** Rotated latents, of attention's input: those of loops after the first accumulate. */
const encodeInput: Bind = (f, visit) => {
  const { layer, loop } = placed(visit);
  const [from, to] = [layerInput(f, visit), f.latents(visit, 'key')];
  const rows = ({ at }: Placed) => ({ offset: at.offset, row: at.stride });
  return {
    options: { matmul: { x: rows(from), y: rows(to), accumulate: loop > 1 } },
    binds: { x: from.rows, weights: { weights: 'map', layer, loop, map: 'encode' }, y: to.rows },
  };
};

/**
 * Rotation of vectors by the positions of an operation's rows: in place, or to a target.
 * @param more options of the kernel; buffers in place of those of a step
 */
export const rotate = (
  f: Frame,
  visit: Visit,
  { rows, at }: Placed,
  width: number,
  more: RopeOptions = {},
  binds: Readonly<Record<string, Ref>> = {},
): Bound => ({
  options: { ...f.rotary, rope: { data: at, positionOffset: f.firstPosition(visit), ...more } },
  binds: {
    positions: f.buffer('positions'),
    turns: f.buffer(`rotary table ${width}`),
    data: rows,
    target: f.buffer(more.target ? 'queries' : 'unused output'),
    ...binds,
  },
});

const restoredRow = (f: Frame): number => restoredLoops(f.c) * f.c.geometry.kvHeads * f.c.geometry.headDim;
/** First float of a loop's rows among those of all loops that a latent stands for. */
const restoredAt = (f: Frame, visit: Visit): number =>
  (visit.op.loop ?? 0) * f.c.geometry.kvHeads * f.c.geometry.headDim;
const restoredBuffer = (f: Frame, axis: RowAxis): BufferRef => f.buffer(`reconstructed ${axis}s`);

/** fast: rows of the loops of a latent. With one latent a KV head a loop is an operation of its own. */
const restore =
  (axis: RowAxis): Bind =>
  (f, visit) => {
    const { layer, loop } = placed(visit);
    const { kvHeads, headDim } = f.c.geometry;
    const { rows, at } = f.latents(visit, axis);
    const rank = f.rankOf(axis);
    const together = codecSpec(f.c.codec).latentFor === 'all-heads';
    const weights: WeightRef = together
      ? { weights: 'up-stacked', layer, loop, axis }
      : { weights: 'up-columns', layer, loop: loopOf(visit), axis };
    return {
      options: {
        matmul: together
          ? { x: { offset: at.offset, row: rank }, y: { row: restoredRow(f) } }
          : {
              x: { offset: at.offset, row: kvHeads * rank, group: rank },
              y: { offset: restoredAt(f, visit), row: restoredRow(f), group: headDim },
            },
      },
      binds: { x: rows, weights, y: restoredBuffer(f, axis) },
    };
  };

/** Restored keys of all loops, with their means. */
const ropeWrite: Bind = (f, visit) => {
  const { layer, loop } = placed(visit);
  const loops = Array.from({ length: restoredLoops(f.c) }, (_, i) => (spansLoops(f.c) ? i : loop));
  const rows = { rows: restoredBuffer(f, 'key'), at: { offset: 0, stride: restoredRow(f) } };
  const bias: WeightRef = { weights: 'restored-means', layer, loops, axis: 'key' };
  return rotate(f, visit, rows, f.c.geometry.headDim, { bias: true }, { bias });
};

/** Writes rows to a cache. @param bias added to them */
export function append(f: Frame, { cache, options, row = 0 }: Target, { rows, at }: Placed, bias?: WeightRef): Bound {
  const own = { rowOffset: at.offset + row * at.stride, rowStride: at.stride };
  return {
    options: { append: { ...options, ...own, ...(bias ? { bias: true } : {}) } },
    binds: { tokens: f.buffer('positions'), rows, ...(bias ? { bias } : {}), cache },
  };
}

/** Codes the rows of the loops that are stored together, and writes them to the cache. */
function appendLoops(f: Frame, visit: Visit, axis: RowAxis): Bound {
  const { cache, options, row = 0 } = f.target(visit, axis);
  const { rows, at, loopStride } = f.waiting(visit, axis);
  const { capacity, chunk = 1, first = 0, firstSequence = 0, firstStart = 0 } = options;
  const own = { rowOffset: at.offset + row * at.stride, rowStride: at.stride, loopStride };
  return {
    options: { appendResidual: { capacity, chunk, first, firstSequence, firstStart, ...own } },
    binds: { tokens: f.buffer('positions'), rows, cache },
  };
}

/**
 * A token's rows join the cache: of full width as they were projected, or their mean over the loops, or centred
 * latents, or the rows of a loop that a latent stands for.
 */
const appendRows =
  (axis: RowAxis): Bind =>
  (f, visit) => {
    const { block, layer, loop: own } = placed(visit);
    if (anchoredIn(f.c, block) > 1) return appendLoops(f, visit, axis);
    if (block.name !== 'core' || !isLatent(f.c.codec)) {
      // Steps alone have windows of later loops: they take prompts token by token.
      if (block.name === 'core' && f.c.geometry.laterLoopsWindow !== undefined && own > 0)
        return append(f, f.recentTarget(visit, axis), f.projected(axis));
      // In a step.
      if (streamsIn(f.c, block)) return append(f, f.recentTarget(visit, axis), f.projected(axis));
      const averaged = block.name === 'core' && averagesLoops(f.c.codec);
      return append(f, f.target(visit, axis), averaged ? f.means(visit, axis) : f.projected(axis));
    }
    const loop = loopOf(visit);
    if (isHybrid(f.c.codec)) {
      const role = `${loop === 0 ? 'first-' : ''}${axis}-latent` as const;
      return append(f, f.target(visit, role), f.latents(visit, axis));
    }
    if (!pathSpec(f.c.path).restores) {
      const centre: WeightRef = { weights: 'centre', layer, loop, axis };
      return append(f, f.target(visit, `${axis}-latent`), f.latents(visit, axis), centre);
    }
    const at = { offset: restoredAt(f, visit), stride: restoredRow(f) };
    const mean: WeightRef | undefined =
      axis === 'value' ? { weights: 'restored-means', layer, loops: [loop], axis } : undefined;
    return append(f, f.target(visit, axis, loop), { rows: restoredBuffer(f, axis), at }, mean);
  };

/** Packs a loop's exact rows of whole groups of tokens. */
const pack =
  (axis: RowAxis): Bind =>
  (f, visit) => {
    const { options, binds } = f.exactRows(visit, axis);
    const loops = streamsIn(f.c, placed(visit).block)?.stored.length as number;
    return {
      options: { appendStreams: { ...options, loops, capacity: f.caches.slots.capacity } },
      binds: { ...binds, cache: f.cacheOf(visit, `${axis}-stream`) },
    };
  };

/** Copies rows, or adds them up. */
const accumulate = (input: Placed, output: Placed, factor = 1): Bound => ({
  options: { factor, placement: { input: input.at, output: output.at } },
  binds: { input: input.rows, target: output.rows },
});
export const copy = accumulate as (input: Placed, output: Placed) => Bound;

/** A step's keys and values of a loop, beside those of the loops that are stored with it. */
const holdRows: Bind = (f, visit) => {
  const { rows, at, loopStride } = f.waiting(visit);
  const { block, loop } = placed(visit);
  const offset = at.offset + (loop % anchoredIn(f.c, block)) * loopStride;
  return copy(f.projected('key'), { rows, at: { ...at, offset } });
};

/** Exact rows of new tokens, into the window beside latents. */
const appendRecent =
  (axis: RowAxis): Bind =>
  (f, visit) =>
    append(f, f.recentTarget(visit, axis), f.projected(axis));

export const ROWS: Binds = {
  'encode-k': encode('key'),
  'encode-v': encode('value'),
  encode: encodeInput,
  // Key latents that are complete: heads of ordinary width side by side.
  'rope-latent': (f, visit) => rotate(f, visit, f.latents(visit, 'key'), f.c.geometry.headDim),
  // The new keys alone: layers that share them have queries of their own, prompts rotate them apart.
  'rope-k': (f, visit) => rotate(f, visit, f.projected('key'), f.c.geometry.headDim),
  'rope-branch-key': (f, visit) => rotate(f, visit, f.branchKeys(visit), f.c.branch.width),
  'restore-k': restore('key'),
  'restore-v': restore('value'),
  'rope-write': ropeWrite,
  // Keys and values of a loop lie side by side.
  'mean-rows': (f, visit) => accumulate(f.projected('key'), f.means(visit), 1 / f.c.geometry.loops),
  'hold-rows': holdRows,
  'append-k': appendRows('key'),
  'append-v': appendRows('value'),
  'append-branch': (f, visit) => append(f, f.target(visit, 'rotary-key'), f.branchKeys(visit)),
  'pack-k': pack('key'),
  'pack-v': pack('value'),
  'append-recent-k': appendRecent('key'),
  'append-recent-v': appendRecent('value'),
};
