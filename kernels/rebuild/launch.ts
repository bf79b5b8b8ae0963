/** Materialises K or V of one layer and loop from latents: rebuild.wgsl, or rebuild_matrix.wgsl on matrix units. */
import type { Tuning } from '../options.js';
import { cached, rowLayout, streamed } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep, stored } from '../host/plan.js';
import { rotaryTable } from '../host/rotary.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { rotaryOf, tuned, type Launch } from '../launch.js';
import {
  pinnedPositions,
  requireLatentHeads,
  rowUniforms,
  slotsOf,
  spansBuffer,
} from '../shared/attention/fold.launch.js';
import { readUnit } from '../shared/attention/fold.terms.js';
import { matrixRebuild, type RebuildLaunch } from '../shared/dense/matrix.launch.js';
import { evenRow, storageOfVariant } from '../spec.js';

const DEFAULT_WORKGROUP = 64;

/** Tokens of a thread, and rotary pairs at a time. */
const DEFAULT_TOKENS = 4;

const DEFAULT_PAIRS = 4;

const MOST_TOKENS = 8;

const MOST_PAIRS = 64;

/** Vec4 of a row of weights that are staged at a time: a multiple of the vecs of every unit. */
const STEP_VECS = 32;

/**
 * Buffers: keys (latents), weights, means, spans, positions (of pinned tokens), turns, rows (f16, as many slots as the
 * latents have).
 * @throws GpuError for a shape that the kernel does not handle, or spans that do not fit
 */
const plan: Launch['plan'] = (call, o) => {
  // Rows that are not rotated are the same with either pairing.
  const { pairing = 'half-split', positionsByHead = false, matrixUnits = false, run = {}, tuning } = o;
  const rotary = rotaryOf(call, o);
  const s = shapeOf<'rebuild'>(call, 'groupSize');
  const rotate = call.variant.endsWith('+rope');
  // Without rotation neighbouring components can be the pairs, which works for any even width.
  const adjacent = pairing === 'adjacent' || !rotate;
  requireEven(call, s, 'headDim');
  requireShape(
    adjacent || s.headDim % 4 === 0,
    `rebuild: headDim must be a multiple of 4, not ${s.headDim} (halves of a rotated row are stored in pairs)`,
  );
  requireLatentHeads(call, s);
  const storage = storageOfVariant(call.variant);
  const keys = rowLayout(storage, s.rank, s.groupSize || undefined);
  const rows = rowLayout('f16', s.headDim);
  const { spans, pinned, ring, capacity } = slotsOf(call, run, s);
  const edges = s.rank % readUnit(keys) === 0 ? 0 : 1;
  const { slots, ...step } = matrixUnits
    ? matrixRebuild(readUnit(keys), s.headDim, edges)
    : threadRebuild(edges, tuning);
  const heads = s.sequences * s.kvHeads;
  return oneStep({
    buffers: [
      streamed('keys', keys, capacity, s.sequences * s.latentHeads),
      stored('weights', 'input', 'f16', s.kvHeads * s.headDim * evenRow(s.rank) * 2),
      f32('means', 'input', s.kvHeads * s.headDim),
      spansBuffer(spans),
      pinnedPositions(positionsByHead ? heads : s.sequences, capacity, pinned, rotary.positions),
      rotaryTable(s.headDim, rotary),
      cached('rows', 'output', rows, capacity, heads),
    ],
    ...step,
    element: storage,
    uniforms: {
      pinned,
      ring,
      once: 1,
      row_shared: s.latentHeads === 1 && s.kvHeads > 1 ? 1 : 0,
      rank: s.rank,
      pairs: s.headDim / 2,
      adjacent: adjacent ? 1 : 0,
      rotate: rotate ? 1 : 0,
      positions_by_head: positionsByHead ? 1 : 0,
      keys: rowUniforms(keys),
    },
    workgroups: [Math.ceil(capacity / slots), s.kvHeads, s.sequences],
  });
};

/** The step of rebuild.wgsl, without its element, uniforms, buffers and grid. */
function threadRebuild(edges: number, tuning: Tuning | undefined): RebuildLaunch {
  const workgroup = tuned(tuning, 'workgroup', DEFAULT_WORKGROUP);
  const tokens = tuned(tuning, 'tokens', DEFAULT_TOKENS);
  const pairs = tuned(tuning, 'pairs', DEFAULT_PAIRS);
  requireShape(
    tokens <= MOST_TOKENS && pairs % 2 === 0 && tokens * pairs <= MOST_PAIRS,
    `rebuild: ${tokens} tokens and ${pairs} pairs a thread want more registers than there are`,
  );
  return {
    source: 'rebuild',
    constants: {
      WG: workgroup,
      TOKENS: tokens,
      PAIR_STEP: pairs,
      STEP_VECS,
      STAGED: 2 * pairs * STEP_VECS,
      EDGES: edges,
    },
    slots: tokens * workgroup,
    tuning: { workgroup, tokens, pairs },
  };
}

export const launch: Launch = {
  plan,
  tunables: [
    { name: 'workgroup', values: [64, 128] },
    { name: 'tokens', values: [2, 4, 8] },
    { name: 'pairs', values: [2, 4, 8] },
  ],
};
