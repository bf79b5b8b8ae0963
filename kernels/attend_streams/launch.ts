/** Split-KV decode attention over rows of flashloop: attend_streams.wgsl. */
import { cached, rowLayout } from '../host/cache-layout.js';
import { f32, oneStep, u32, type BufferPlan, type Uniforms } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { FOLD_TUNABLES, foldOf, spansBuffer, spansOf } from '../shared/attention/fold.launch.js';
import { unitsEach, unitsOf } from '../shared/attention/fold.terms.js';
import { streamsRowOf, streamsRowWords, streamsUniforms } from '../shared/cache/streams.launch.js';
import { headsOf, ROWS_LIKE } from './terms.js';

/** The lists that a benchmark reads: every query head its first tokens. */
function firstTokens(heads: number, words: number, context: number): BufferPlan {
  // Read 16 bytes at a time.
  const length = Math.ceil((heads * words) / 4) * 4;
  const data = () => Uint32Array.from({ length }, (_, i) => (i % words === 0 ? context : (i % words) - 1));
  return u32('chosen', 'table', length, { data });
}

/**
 * Buffers: queries, keys, values, partials, spans (packed and exact tokens), scores (a few bytes unless they are
 * written), chosen (lists of `chosen`; else a few bytes that are not read), tailKeys, tailValues.
 */
const plan: Launch['plan'] = (call, { streams: own = {}, run = {}, tuning }) => {
  const s = shapeOf<'attend_streams'>(call, 'packedRows', 'tail');
  const chosen = call.variant === 'chosen';
  const row = streamsRowOf(call, own.loops ?? s.loops);
  const spans = spansOf(run, s.sequences, s.context);
  const together = spans.map((span) => ({ pinned: 0, firstPosition: 0, ring: span.pinned + span.ring }));
  const fold = foldOf(
    { ...call, variant: call.variant === 'all+scores' ? `${ROWS_LIKE}+scores` : ROWS_LIKE },
    { ...s, ...headsOf(s, call.variant), groupSize: 0, keyWidth: s.headDim, valueWidth: s.headDim },
    { ...run, spans: together },
    tuning,
  );
  const heads = s.sequences * s.kvHeads * s.group;
  const { listWords = 1 + s.context, firstList = 0, tailSlots = fold.capacity } = own;
  const rows = s.sequences * s.kvHeads;
  const like = { storage: ROWS_LIKE, width: s.headDim } as const;
  const packed = (axis: 'keys' | 'values'): BufferPlan => ({
    ...fold.buffers[axis],
    bytes: 4 * rows * Math.max(4, streamsRowWords(row, axis, fold.capacity)),
  });
  const tail = (name: string): BufferPlan => cached(name, 'stream', rowLayout(ROWS_LIKE, s.headDim), tailSlots, rows);
  const shape = (axis: 'keys' | 'values'): Uniforms => ({
    streams: streamsUniforms(row, axis, fold.capacity),
    units: unitsOf(like),
    loops: s.loops,
    tail_slots: tailSlots,
    sharing: chosen ? s.group : 1,
    list_words: listWords,
    first_list: firstList,
    spare: 0,
    spare1: 0,
  });
  const lists: BufferPlan = chosen
    ? firstTokens(firstList + heads, listWords, s.context)
    : u32('chosen', 'input', 4, { below: 1 });
  return oneStep({
    buffers: [
      f32('queries', 'input', heads * s.headDim),
      packed('keys'),
      packed('values'),
      fold.buffers.partials,
      spansBuffer(spans),
      fold.buffers.scores,
      lists,
      tail('tailKeys'),
      tail('tailValues'),
    ],
    source: 'attend_streams',
    element: 'f16',
    constants: fold.constants({
      EDGES: unitsOf(like) % fold.launch.wide === 0 ? 0 : 1,
      KEY_EACH: unitsEach(like, fold.launch.wide),
      BRANCH_EACH: 0,
      CHOSEN: chosen ? 1 : 0,
      GROUP: row.group,
      CHANNELS: Math.min(row.group, row.headDim),
      ANCHOR_BITS: row.anchorBits,
    }),
    uniforms: {
      ...fold.uniforms(s.headDim ** -0.5),
      keys: shape('keys'),
      values: shape('values'),
      branch: shape('keys'),
    },
    workgroups: fold.workgroups,
    tuning: { ...fold.launch },
  });
};

export const launch: Launch = { plan, tunables: FOLD_TUNABLES };
