/** Set-up of block-absorbed attention, once a query: block_vectors.wgsl. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep, stored } from '../host/plan.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { tuned, type Launch } from '../launch.js';
import { evenRow } from '../spec.js';
import { blockComponents } from './terms.js';

/** Buffers: queries (rotated), weights (rows of an even number of halves), means, vectors. */
const plan: Launch['plan'] = (call, { pairing = 'half-split', blockVectors: { group } = {}, tuning }) => {
  const s = shapeOf<'block_vectors'>(call);
  requireEven(call, s, 'headDim');
  const shared = group ?? s.heads / s.kvHeads;
  requireShape(
    Number.isInteger(shared) && s.heads % (shared * s.kvHeads) === 0,
    `block_vectors: ${s.heads} query heads are not whole sequences of ${s.kvHeads} KV heads`,
  );
  const pairs = s.headDim / 2;
  const workgroup = tuned(tuning, 'workgroup', 64);
  const half = pairing === 'half-split';
  return oneStep({
    buffers: [
      f32('queries', 'input', s.heads * s.headDim),
      stored('weights', 'stream', 'f16', s.kvHeads * s.headDim * evenRow(s.rankK) * 2),
      f32('means', 'input', s.kvHeads * s.headDim),
      f32('vectors', 'output', s.heads * s.headDim * blockComponents(s.rankK)),
    ],
    source: 'block_vectors',
    element: 'f16',
    constants: { HEAD_PAIRS: pairs, WG: workgroup },
    uniforms: {
      rank: s.rankK,
      group: shared,
      kv_heads: s.kvHeads,
      pair_step: half ? 1 : 2,
      pair_width: half ? pairs : 1,
    },
    workgroups: [pairs, s.heads, 1],
    tuning: { workgroup },
  });
};

export const launch: Launch = {
  plan,
  tunables: [{ name: 'workgroup', values: [32, 64, 128] }],
};
