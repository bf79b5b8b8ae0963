/** What a step binds where rows are packed (flashloop): attention over all tokens or chosen ones, and their choice. */

import type { Streams } from '../../codecs/codec.js';
import { listWords } from '../buffers.js';
import { streamsIn } from '../streams.js';
import type { Visit } from '../expand.js';
import { type Bind } from './dense.js';
import { placed, type BufferRef } from './refs.js';
import type { StepFrame } from './step.js';

type StepBind = Bind<StepFrame>;

/** Lists of chosen keys: words of each, and the first of a part's. */
function listsOf(f: StepFrame, visit: Visit): { listWords: number; firstList: number } {
  const words = listWords(streamsIn(f.c, placed(visit).block) as Streams, f.caches.slots.capacity);
  return { listWords: words, firstList: f.partOf(visit).first * f.c.geometry.heads };
}

const scoresOf = (f: StepFrame, visit: Visit): BufferRef =>
  f.own('scores', f.partOf(visit), f.c.geometry.heads * f.caches.slots.capacity);

/** Attention over packed rows and exact ones: of all tokens, or of those that each head has chosen. */
export const attendStreams: StepBind = (f, visit) => {
  const { layer } = placed(visit);
  const { variant } = visit.op;
  const { listWords, firstList } = listsOf(f, visit);
  const { spans: _all, ...apart } = f.run(visit);
  const streams = { loops: f.c.geometry.loops, tailSlots: f.caches.recentSlots.capacity };
  const chosen = variant === 'chosen';
  return {
    options: chosen ? { run: apart, streams: { ...streams, listWords, firstList } } : { run: f.run(visit), streams },
    binds: {
      queries: f.queries(f.partOf(visit), f.headWords),
      keys: f.cacheOf(visit, 'key-stream'),
      values: f.cacheOf(visit, 'value-stream'),
      tailKeys: f.cacheOf(visit, 'key'),
      tailValues: f.cacheOf(visit, 'value'),
      ...f.attends(visit),
      ...(variant === 'all+scores' ? { scores: scoresOf(f, visit) } : {}),
      ...(chosen ? { chosen: f.buffer('chosen keys', layer) } : {}),
    },
  };
};

/** The keys that later loops read. */
export const chooseKeys: StepBind = (f, visit) => {
  const part = f.partOf(visit);
  const { offset, stride } = f.packed.keys;
  const keys = { offset: offset + part.first * stride, stride };
  const { heads } = f.c.geometry;
  const { capacity } = f.caches.slots;
  return {
    options: { chooseKeys: { heads, group: f.group, capacity, keys, ...listsOf(f, visit) } },
    binds: {
      scores: scoresOf(f, visit),
      queries: f.queries(part, f.headWords),
      newKeys: f.buffer('query key value'),
      spans: f.spans(part, visit),
      chosen: f.buffer('chosen keys', placed(visit).layer),
    },
  };
};

/** Attention over chosen keys, beside that of the last dense loop. */
export const joinChosen: StepBind = (f, visit) => {
  const { layer } = placed(visit);
  const { heads } = f.c.geometry;
  const { keys, values } = f.packed;
  const queries = { offset: 0, stride: f.headWords };
  return {
    options: { current: { heads, group: f.group, queries, keys, values, listWords: listsOf(f, visit).listWords } },
    binds: {
      output: f.buffer('attention'),
      stats: f.buffer('stats'),
      part: f.buffer('chosen attention'),
      partStats: f.buffer('chosen stats'),
      queries: f.buffer('queries'),
      newRows: f.buffer('query key value'),
      chosen: f.buffer('chosen keys', layer),
      base: f.buffer('second outputs', layer),
    },
  };
};
