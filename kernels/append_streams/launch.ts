/** Packing of whole groups of tokens: append_streams.wgsl. */
import type { Span } from '../attention-options.js';
import { cached, capacityOf, rowLayout } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { oneStep, stored } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { spansBuffer } from '../shared/attention/fold.launch.js';
import { streamsGroup, streamsRowOf, streamsRowWords, streamsUniforms } from '../shared/cache/streams.launch.js';

const WORKGROUP = 64;

/** Sequences of a step without options: of as many as a group has tokens one packs, as in the mean. */
export const usualSpans = (sequences: number, group: number): readonly Span[] =>
  Array.from({ length: sequences }, (_, i) => ({ pinned: 0, firstPosition: 0, ring: i % group === 0 ? group - 1 : 0 }));

/** Buffers: spans, rows, cache. Without options every row of the call is a sequence. */
const plan: Launch['plan'] = (call, { appendStreams: options }) => {
  const s = shapeOf<'append_streams'>(call);
  const axis = call.variant as 'keys' | 'values';
  const {
    sequences = s.rows,
    groups = 1,
    loops = s.loops,
    capacity = capacityOf(s.packGroup),
    slots = capacity,
    full = s.packGroup,
    firstSequence = 0,
    spans = usualSpans(sequences, s.packGroup),
  } = options ?? {};
  const row = streamsRowOf(call, loops);
  const { pairWords } = streamsGroup(row, axis);
  const cacheWords = (firstSequence + sequences) * s.heads * Math.max(4, streamsRowWords(row, axis, capacity));
  requireShape(groups * row.group <= capacity, `append_streams: ${groups} groups of ${row.group} exceed ${capacity}`);
  return oneStep({
    buffers: [
      spansBuffer(spans),
      cached('rows', 'input', rowLayout('f16', s.headDim), slots, sequences * s.heads),
      stored('cache', 'state', 'f16', 4 * cacheWords),
    ],
    source: 'append_streams',
    constants: {
      GROUP: row.group,
      CHANNELS: Math.min(row.group, row.headDim),
      ANCHOR_BITS: row.anchorBits,
      PAIRS: pairWords,
    },
    uniforms: {
      streams: streamsUniforms(row, axis, capacity),
      loop_of: s.loops - 1,
      full,
      first_row: firstSequence * s.heads,
      slots,
    },
    workgroups: [groups, s.heads, sequences],
    tuning: { workgroup: WORKGROUP },
  });
};

export const launch: Launch = { plan };
