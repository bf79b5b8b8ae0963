/**
 * FlashLoop's operations (codecs/flashloop-codec.ts). Loops are packed as differences: loop t reads the streams of the
 * loops up to it, and the exact rows of the last tokens. Loops 1 and 2 attend to all tokens. Loop 2 also tells, of each
 * head, the keys that loops 3 and 4 read: a tenth, the most probable. It attends to these alone once more, which gives
 * what later loops take off.
 */
import type { Streams } from '../codecs/codec.js';
import { chosenKeys, choosesKeys, packedTokens } from '../codecs/flashloop.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import type { ShapeOf } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { attendAndMerge, type Layer, type Segment } from './attend.js';
import { placed } from './bind/refs.js';
import type { StepFrame } from './bind/step.js';
import { listWords } from './buffers.js';
import { AXES, kvHeadsOf, NAME, type Configuration, type Visit, type When } from './configuration.js';
import { streamsIn } from './facts.js';
import { inEachPart, op, PRICED_ONLY, type Bind, type Op } from './op.js';

/** When a loop of streams runs: each of the four reads other streams. */
const WHEN: readonly When[] = ['first-loop', 'second-loop', 'third-loop', 'fourth-loop'];

/** Groups of the codec, as shapes have them. */
const packedShape = (c: Configuration, { group, anchorBits }: Streams, loop: number): Shape => ({
  headDim: c.geometry.headDim,
  loops: loop + 1,
  anchorBits,
  packGroup: group,
});

/**
 * Attention over packed rows and the exact tail, loop by loop; loops after the second read chosen keys. Of these those
 * in the tail count as packed, which is more to read.
 */
export function packedLoops(l: Layer, streams: Streams): Op[] {
  const { c, context } = l;
  // Between two packings the tail holds so many tokens on average.
  const tail = Math.min(context, Math.round((streams.tail.least + streams.tail.most) / 2));
  const kept = Math.min(context, chosenKeys(streams, context));
  let rows = 0;
  return streams.stored.flatMap((share, loop) => {
    rows += share * streams.weights[loop]!;
    /** Fields of a call's shape (kernels/attend_streams). */
    const reads = (tokens: number, exact: number): Shape => ({
      ...packedShape(c, streams, loop),
      packedRows: Math.round((tokens - exact) * rows),
      tail: exact,
    });
    const [dense, choosing] = [loop < streams.dense, loop >= streams.dense - 1 && choosesKeys(streams)];
    return [
      ...(dense ? overStreams(l, streams, choosing ? 'all+scores' : 'all', context, reads(context, tail)) : []),
      ...(dense && choosing ? chooseKeysOps(l, streams) : []),
      // Each head chooses its own keys.
      ...(choosing
        ? [...overStreams(l, streams, 'chosen', kept, reads(kept, 0)), joinChosenOp(l, streams, dense)]
        : []),
    ].map((o) => ({ ...o, when: WHEN[loop] as When }));
  });
}

/** Lists of chosen keys: words of each, and the first of a part's. */
function listsOf(f: StepFrame, streams: Streams, visit: Visit): { listWords: number; firstList: number } {
  const words = listWords(streams, f.caches.slots.capacity);
  return { listWords: words, firstList: f.partOf(visit).first * f.c.geometry.heads };
}

/** Attention over all tokens, or over those that each head has chosen. */
function overStreams(
  l: Layer,
  streams: Streams,
  variant: 'all' | 'all+scores' | 'chosen',
  tokens: number,
  shape: Shape,
): Op[] {
  const { c, heads, kvHeads, group, reads } = l;
  const width = c.geometry.headDim;
  const chosen = variant === 'chosen';
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const own = { loops: c.geometry.loops, tailSlots: f.caches.recentSlots.capacity };
    const run = f.run(visit, reads);
    const { spans: _all, ...apart } = run;
    return {
      options: chosen ? { run: apart, streams: { ...own, ...listsOf(f, streams, visit) } } : { run, streams: own },
      binds: {
        queries: f.queries(visit),
        tailKeys: f.cacheOf(visit, 'key'),
        tailValues: f.cacheOf(visit, 'value'),
        ...f.attends(visit, reads, 'key-stream', 'value-stream'),
        ...(variant === 'all+scores' ? { scores: f.scores(visit) } : {}),
        ...(chosen ? { chosen: f.buffer('chosen keys', placed(visit).layer) } : {}),
      },
    };
  };
  const segment: Segment = {
    label: chosen ? 'attend-chosen' : 'attend',
    kernel: 'attend_streams',
    variant,
    tokens: { pinned: 0, ring: tokens },
    shape: { kvHeads, group, ...shape },
    binds,
  };
  const into = chosen
    ? { label: 'merge-chosen', output: 'chosen attention', stats: 'chosen stats' }
    : { current: true as const, output: 'attention', stats: 'stats' };
  return attendAndMerge(l, 'f16', [segment], { rowsEach: chosen ? heads : kvHeads, width, reads, ...into });
}

/** The choice of keys after the last dense loop, of every query head by its scores of all tokens. */
function chooseKeysOps({ c, parts, context, heads, group, reads }: Layer, streams: Streams): Op[] {
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const { offset, stride } = f.packed.keys;
    const keys = { offset: offset + f.partOf(visit).first * stride, stride };
    const { capacity } = f.caches.slots;
    return {
      options: { chooseKeys: { heads, group, capacity, keys, ...listsOf(f, streams, visit) } },
      binds: {
        scores: f.scores(visit),
        queries: f.queries(visit),
        newKeys: f.buffer('query key value'),
        spans: f.spans(visit, reads),
        chosen: f.buffer('chosen keys', placed(visit).layer),
      },
    };
  };
  return inEachPart(parts, (size) => {
    const shape = { rows: size * heads, context, kept: chosenKeys(streams, context), width: c.geometry.headDim };
    return [op('choose-keys', 'choose_keys', 'f32', shape, binds)];
  });
}

/** What later loops add to loop 2's output: their own over the chosen keys, less loop 2's over the same. */
function joinChosenOp({ c, batch, heads, group }: Layer, streams: Streams, begins: boolean): Op {
  const binds: Bind = (f: StepFrame, visit: Visit) => {
    const { layer } = placed(visit);
    const { keys, values } = f.packed;
    const queries = { offset: 0, stride: f.headWords };
    const { listWords } = listsOf(f, streams, visit);
    return {
      options: { current: { heads, group, queries, keys, values, listWords } },
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
  const shape = { rows: batch * heads, width: c.geometry.headDim };
  return op('join-chosen', 'join_chosen', begins ? 'begin' : 'add', shape, binds);
}

/** Packs a loop's exact rows of whole groups, as many as the operation's; a step packs one in the mean. */
const packOps = (c: Configuration, streams: Streams, rows: number, loop: number, when: When): Op[] =>
  AXES.map((axis) => {
    const binds: Bind = (f, visit) => {
      const { options, binds } = f.exactRows(visit, axis);
      const capacity = f.caches.slots.capacity;
      return {
        options: { appendStreams: { ...options, loops: streams.stored.length, capacity } },
        binds: { ...binds, cache: f.cacheOf(visit, `${axis}-stream`) },
      };
    };
    const shape = { rows, heads: kvHeadsOf(c), ...packedShape(c, streams, loop) } as ShapeOf<'append_streams'>;
    return op(`pack-${NAME[axis]}`, 'append_streams', `${axis}s`, shape, binds, when);
  });

/** The same of every loop of a step. */
export const packLoopsOps = (c: Configuration, streams: Streams, rows: number): Op[] =>
  streams.stored.flatMap((_, loop) => packOps(c, streams, rows, loop, WHEN[loop] as When));

/** Streams of a prompt: the first of their loops, and tokens that are packed of them. */
export interface PromptStreams {
  readonly firstLoop: number;
  readonly packed: number;
}

/** Loops of a prompt that run the same tokens. */
interface PromptLoops {
  readonly block: LayerBlock;
  readonly tokens: number;
  readonly streams?: PromptStreams;
}

/** Loops of a block by the tokens of a prompt that run them: all of them, but for streams. */
export function promptLoops(c: Configuration, block: LayerBlock, tokens: number): PromptLoops[] {
  const streams = streamsIn(c, block);
  if (!streams) return [{ block, tokens }];
  const packed = packedTokens(tokens, { group: streams.group, tail: streams.tail.least });
  const whole = streams.runs.filter((share) => share === 1).length;
  return [
    { block: { ...block, loops: whole }, tokens, streams: { firstLoop: 0, packed } },
    ...streams.runs.slice(whole).map((share, i) => ({
      block: { ...block, loops: 1 },
      tokens: Math.ceil(share * tokens),
      streams: { firstLoop: whole + i, packed: Math.round(share * packed) },
    })),
  ];
}

/** Packing of a prompt's whole groups, when the loop's rows of all of them are there. */
export function packPromptOps(c: Configuration, { block, streams: own }: Omit<PromptLoops, 'tokens'>): Op[] {
  const streams = streamsIn(c, block);
  if (!streams || !own || own.packed === 0) return [];
  return Array.from({ length: block.loops }, (_, i) =>
    packOps(c, streams, own.packed, own.firstLoop + i, WHEN[i] as When),
  ).flat();
}

/** Share of the layers that a prompt's tokens run, of all layers in all loops. */
export function promptShare(c: Configuration): number {
  const blocks = blocksOf(c.geometry);
  const total = (runs: (block: LayerBlock) => number): number =>
    blocks.reduce((sum, block) => sum + block.layers * runs(block), 0);
  const shares = (block: LayerBlock): number =>
    streamsIn(c, block)?.runs.reduce((sum, share) => sum + share, 0) ?? block.loops;
  return total(shares) / total(({ loops }) => loops);
}

/** Scores by which a prompt's tokens are chosen: a state beside the one before it. */
export const scoreRowsOps = (c: Configuration, block: LayerBlock, rows: number): Op[] =>
  streamsIn(c, block)?.runs.some((share) => share < 1)
    ? [op('score-rows', 'accumulate', 'add', { rows, width: c.geometry.hidden }, PRICED_ONLY)]
    : [];
