/**
 * Execution of operations on the rows of new tokens, the same for a step and for a prompt: encoding, rotation,
 * restoring rows of full width from latents, and writing to the cache.
 */
import type { RopeOptions, Rows } from '../../../kernels/options.js';
import { pathSpec } from '../../codecs/paths.js';
import { averagesLoops, codecSpec, isHybrid, isLatent } from '../../codecs/registry.js';
import type { Buffer } from '../../gpu/index.js';
import { anchoredIn, latentsOf, restoredLoops, spansLoops } from '../../schedule/configuration.js';
import type { Visit } from '../../schedule/expand.js';
import { branchTensor, codecTensor, type CodecAxis } from '../tensors.js';
import { normedRows, plan, project, type Executor, type Executors } from './dense.js';
import { loopOf, placed, type Dispatch, type Machine, type Placed, type Target } from './machine.js';

/** Rotary options that all calls share. */
export const rotary = (m: Machine) => ({ ropeBase: m.c.geometry.rope.theta, positions: m.positions });

/** c (+)= x_t W_down,t, of the keys before their rotation; the mean is taken off when the row is stored. */
const encode =
  (axis: CodecAxis): Executor =>
  async (m, visit) => {
    const loop = loopOf(visit);
    const [from, to] = [m.projected(axis), m.latents(visit, axis)];
    const x: Rows = { offset: from.at.offset, row: from.at.stride, group: m.c.geometry.headDim };
    const y: Rows = { offset: to.at.offset, row: to.at.stride, group: m.rankOf(axis) };
    const accumulate = spansLoops(m.c) && loop > 0;
    const weights = await m.weights.down(placed(visit).layer, loop, axis);
    return {
      plan: plan(m, visit, { matmul: { x, y, accumulate } }),
      buffers: { x: from.rows, weights, y: to.rows },
    };
  };

/** Rotated latents, of attention's input: those of loops after the first accumulate. */
const encodeInput: Executor = async (m, visit) => {
  const { layer, loop } = placed(visit);
  const [from, to] = [normedRows(m, visit), m.latents(visit, 'key')];
  const matmul = {
    x: { offset: from.at.offset, row: from.at.stride },
    y: { offset: to.at.offset, row: to.at.stride },
    accumulate: loop > 1,
  };
  const weights = await m.weights.hybridMap(layer, loop, 'encode');
  return { plan: plan(m, visit, { matmul }), buffers: { x: from.rows, weights, y: to.rows } };
};

/** Key latents that are complete: heads of ordinary width side by side. */
const ropeLatent: Executor = (m, visit) => rotate(m, visit, m.latents(visit, 'key'), m.c.geometry.headDim);

const branchKey: Executor = (m, visit) => {
  const { layer } = placed(visit);
  const y = m.branchKeys(visit);
  return project(m, visit, {
    weights: `branch key ${layer}`,
    pieces: [{ tensor: branchTensor(layer, 'key'), outputs: y.at.stride, kind: 'codec' }],
    x: normedRows(m, visit),
    y,
  });
};

/**
 * Rotation of vectors by the positions of an operation's rows: in place, or to a target.
 * @param more options of the kernel; buffers in place of those of a step
 */
export function rotate(
  m: Machine,
  visit: Visit,
  { rows, at }: Placed,
  width: number,
  more: RopeOptions = {},
  buffers: Readonly<Record<string, Buffer>> = {},
): Dispatch {
  return {
    plan: plan(m, visit, { ...rotary(m), rope: { data: at, positionOffset: m.firstPosition(visit), ...more } }),
    buffers: {
      positions: m.buffer('positions'),
      turns: m.turns(width),
      data: rows,
      target: m.buffer(more.target ? 'queries' : 'unused output'),
      ...buffers,
    },
  };
}

/** The new keys alone: layers that share them have queries of their own, prompts rotate them apart. */
const ropeKeys: Executor = (m, visit) => rotate(m, visit, m.projected('key'), m.c.geometry.headDim);

const ropeBranchKey: Executor = (m, visit) => rotate(m, visit, m.branchKeys(visit), m.c.branch.width);

const restoredRow = (m: Machine): number => restoredLoops(m.c) * m.c.geometry.kvHeads * m.c.geometry.headDim;
/** First float of a loop's rows among those of all loops that a latent stands for. */
const restoredAt = (m: Machine, visit: Visit): number =>
  (visit.op.loop ?? 0) * m.c.geometry.kvHeads * m.c.geometry.headDim;
const restoredBuffer = (m: Machine, axis: CodecAxis): Buffer => m.buffer(`reconstructed ${axis}s`);

/** fast: rows of the loops of a latent. With one latent a KV head a loop is an operation of its own. */
const restore =
  (axis: CodecAxis): Executor =>
  async (m, visit) => {
    const { layer, loop } = placed(visit);
    const { kvHeads, headDim } = m.c.geometry;
    const { rows, at } = m.latents(visit, axis);
    const rank = m.rankOf(axis);
    const buffers = { x: rows, y: restoredBuffer(m, axis) };
    if (codecSpec(m.c.codec).latentFor === 'all-heads')
      return {
        plan: plan(m, visit, { matmul: { x: { offset: at.offset, row: rank }, y: { row: restoredRow(m) } } }),
        buffers: { ...buffers, weights: await m.weights.upStacked(layer, loop, axis) },
      };
    const x: Rows = { offset: at.offset, row: kvHeads * rank, group: rank };
    const y: Rows = { offset: restoredAt(m, visit), row: restoredRow(m), group: headDim };
    return {
      plan: plan(m, visit, { matmul: { x, y } }),
      buffers: { ...buffers, weights: await m.weights.upColumns(layer, loopOf(visit), axis) },
    };
  };

/**
 * The terms to add to restored rows: mu, and the term that centring the latent would have subtracted. [KV
 * head][component] of a loop.
 */
function restoredMean(m: Machine, layer: number, loop: number, axis: CodecAxis): Float64Array {
  const { kvHeads, headDim } = m.c.geometry;
  const rank = m.rankOf(axis);
  const out = m.weights.meanOf(layer, loop, axis);
  const centre = m.weights.centreOf(layer, loop, axis);
  for (let head = 0; head < kvHeads; head++) {
    const up = m.weights.upOf(layer, loop, axis, head);
    const latent = latentsOf(m.c) === 1 ? 0 : head * rank;
    for (let i = 0; i < headDim; i++) {
      for (let r = 0; r < rank; r++)
        out[head * headDim + i] =
          (out[head * headDim + i] as number) + (up[i * rank + r] as number) * (centre[latent + r] as number);
    }
  }
  return out;
}

/** These of some loops, end to end. */
const restoredMeans = (m: Machine, layer: number, loops: readonly number[], axis: CodecAxis): Promise<Buffer> =>
  m.weights.vector(`${codecTensor(layer, axis, 'mean')} of loops ${loops.join()}, reconstructed`, 'codec', () =>
    Float32Array.from(loops.flatMap((loop) => [...restoredMean(m, layer, loop, axis)])),
  );

/** Restored keys of all loops, with their means. */
const ropeWrite: Executor = async (m, visit) => {
  const { layer, loop } = placed(visit);
  const loops = Array.from({ length: restoredLoops(m.c) }, (_, i) => (spansLoops(m.c) ? i : loop));
  const { headDim } = m.c.geometry;
  const at = { offset: 0, stride: restoredRow(m) };
  const bias = await restoredMeans(m, layer, loops, 'key');
  return rotate(m, visit, { rows: restoredBuffer(m, 'key'), at }, headDim, { bias: true }, { bias });
};

/** Writes rows to a cache. @param bias added to them */
export function append(
  m: Machine,
  visit: Visit,
  { cache, options, row = 0 }: Target,
  { rows, at }: Placed,
  bias?: Buffer,
): Dispatch {
  const own = { rowOffset: at.offset + row * at.stride, rowStride: at.stride };
  return {
    plan: plan(m, visit, { append: { ...options, ...own, ...(bias ? { bias: true } : {}) } }),
    buffers: { tokens: m.buffer('positions'), rows, ...(bias ? { bias } : {}), cache },
  };
}

/** Codes the rows of the loops that are stored together, and writes them to the cache. */
function appendLoops(m: Machine, visit: Visit, axis: CodecAxis): Dispatch {
  const { cache, options, row = 0 } = m.target(visit, axis);
  const { rows, at, loopStride } = m.waiting(visit, axis);
  const { capacity, chunk = 1, first = 0, firstSequence = 0, firstStart = 0 } = options;
  const own = { rowOffset: at.offset + row * at.stride, rowStride: at.stride, loopStride };
  return {
    plan: plan(m, visit, { appendResidual: { capacity, chunk, first, firstSequence, firstStart, ...own } }),
    buffers: { tokens: m.buffer('positions'), rows, cache },
  };
}

/**
 * A token's rows join the cache: of full width as they were projected, or their mean over the loops, or centred latents,
 * or the rows of a loop that a latent stands for.
 */
const appendRows =
  (axis: CodecAxis): Executor =>
  async (m, visit) => {
    const { block, layer } = placed(visit);
    if (anchoredIn(m.c, block) > 1) return appendLoops(m, visit, axis);
    if (block.name !== 'core' || !isLatent(m.c.codec)) {
      // Steps alone have windows of later loops: they take prompts token by token.
      if (block.name === 'core' && m.c.geometry.laterLoopsWindow !== undefined && placed(visit).loop > 0)
        return append(m, visit, m.recentTarget(visit, axis), m.projected(axis));
      const averaged = block.name === 'core' && averagesLoops(m.c.codec);
      return append(m, visit, m.target(visit, axis), averaged ? m.means(visit, axis) : m.projected(axis));
    }
    const loop = loopOf(visit);
    if (isHybrid(m.c.codec)) {
      const role = `${loop === 0 ? 'first-' : ''}${axis}-latent` as const;
      return append(m, visit, m.target(visit, role), m.latents(visit, axis));
    }
    if (!pathSpec(m.c.path).restores) {
      const centre = await m.weights.centre(layer, loop, axis);
      return append(m, visit, m.target(visit, `${axis}-latent`), m.latents(visit, axis), centre);
    }
    const at = { offset: restoredAt(m, visit), stride: restoredRow(m) };
    const mean = axis === 'value' ? await restoredMeans(m, layer, [loop], axis) : undefined;
    return append(m, visit, m.target(visit, axis, loop), { rows: restoredBuffer(m, axis), at }, mean);
  };

const appendBranch: Executor = (m, visit) => append(m, visit, m.target(visit, 'rotary-key'), m.branchKeys(visit));

/** Adds this loop's keys and values, which lie side by side, to their mean over the loops. */
const meanRows: Executor = (m, visit) => {
  const [{ rows: input, at: from }, { rows: target, at: to }] = [m.projected('key'), m.means(visit)];
  return {
    plan: plan(m, visit, { factor: 1 / m.c.geometry.loops, placement: { input: from, output: to } }),
    buffers: { input, target },
  };
};

/** A step's keys and values of a loop, beside those of the loops that are stored with it. */
const holdRows: Executor = (m, visit) => {
  const [{ rows: input, at }, held] = [m.projected('key'), m.waiting(visit)];
  const { block, loop } = placed(visit);
  const offset = held.at.offset + (loop % anchoredIn(m.c, block)) * held.loopStride;
  const placement = { input: at, output: { ...held.at, offset } };
  return { plan: plan(m, visit, { factor: 1, placement }), buffers: { input, target: held.rows } };
};

/** Exact rows of new tokens, into the window beside latents. */
const appendRecent =
  (axis: CodecAxis): Executor =>
  (m, visit) =>
    append(m, visit, m.recentTarget(visit, axis), m.projected(axis));

export const ROW_EXECUTORS: Executors = {
  'encode-k': encode('key'),
  'encode-v': encode('value'),
  encode: encodeInput,
  'rope-latent': ropeLatent,
  'branch-key': branchKey,
  'rope-k': ropeKeys,
  'rope-branch-key': ropeBranchKey,
  'restore-k': restore('key'),
  'restore-v': restore('value'),
  'rope-write': ropeWrite,
  'mean-rows': meanRows,
  'hold-rows': holdRows,
  'append-k': appendRows('key'),
  'append-v': appendRows('value'),
  'append-branch': appendBranch,
  'append-recent-k': appendRecent('key'),
  'append-recent-v': appendRecent('value'),
};
