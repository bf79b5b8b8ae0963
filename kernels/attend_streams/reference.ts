/** The float64 reference of attend_streams, and the comparison of its outputs with it. */
import { cacheRow } from '../host/cache-layout.js';
import { bufferOf } from '../host/plan.js';
import { dimsOf, type Checker, type Subject } from '../reference.js';
import {
  queryHeads,
  runOf,
  weightedSum,
  withScores,
  type CachedRows,
} from '../shared/attention/attention.reference.js';
import { GROUP_SIZE } from '../spec.js';
import { streamsRowOf } from '../shared/cache/streams.launch.js';
import { rebuilt, storedCodes } from '../shared/cache/streams.reference.js';
import { ROWS_LIKE } from './terms.js';

/** Rows by their positions. @param packed tokens of the sequence that are */
function rowsOf(s: Subject, axis: 'keys' | 'values', capacity: number, packed: number): CachedRows {
  const { loops, headDim: d } = dimsOf<'attend_streams'>(s);
  const { tailSlots = capacity, loops: all = loops } = s.options.streams ?? {};
  const streams = storedCodes(s.inputWords(axis), streamsRowOf(s.call, all), axis, capacity);
  const tail = axis === 'keys' ? 'tailKeys' : 'tailValues';
  const exact = cacheRow(s.inputWords(tail), ROWS_LIKE, d, GROUP_SIZE, tailSlots);
  return (row, position, i) =>
    position < packed ? rebuilt(streams, loops, row, position, i) : exact(row, position % tailSlots, i);
}

export const reference: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, head) => {
    const { headDim: d, group, kvHeads, context } = dimsOf<'attend_streams'>(s);
    const chosen = s.call.variant === 'chosen';
    const run = runOf(s);
    const row = Math.floor(head / group);
    const sequence = Math.floor(row / kvHeads);
    const { pinned, ring } = run.span(sequence);
    const { listWords = 1 + context, firstList = 0 } = s.options.streams ?? {};
    const lists = chosen ? bufferOf(s.plan, 'chosen').data?.() : undefined;
    const list = (i: number): number => lists?.[(firstList + head) * listWords + i] as number;
    const positions = chosen
      ? Array.from({ length: list(0) & 0x7fffffff }, (_, i) => list(1 + i))
      : Array.from({ length: pinned + ring }, (_, i) => i);
    const capacity = s.options.run?.capacity ?? 32 * Math.ceil(context / 32);
    const [keys, values] = [rowsOf(s, 'keys', capacity, pinned), rowsOf(s, 'values', capacity, pinned)];
    const query = s.input('queries');
    const scores = Float64Array.from(positions, (position) => {
      let dot = 0;
      for (let i = 0; i < d; i++) dot += query(head * d + i) * keys(row, position, i);
      return d ** -0.5 * dot;
    });
    const output = weightedSum(scores, d, (token, i) => values(row, positions[token] as number, i));
    const written = new Map(positions.map((position, i) => [position, scores[i] as number]));
    return withScores(s, head, { ...run, capacity }, { output, scores: written });
  },
};
