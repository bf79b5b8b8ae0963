/**
 * FlashLoop's operations (codecs/flashloop-codec.ts). Loops are packed as differences: loop t reads the streams of the
 * loops up to it, and the exact rows of the last tokens. Loops 1 and 2 attend to all tokens. Loop 2 also tells, of each
 * head, the keys that loops 3 and 4 read: a tenth, the most probable. It attends to these alone once more, which gives
 * what later loops take off.
 */
import type { Streams } from '../codecs/codec.js';
import { streamsOf } from '../codecs/registry.js';
import { chosenKeys, choosesKeys, packedTokens } from '../codecs/flashloop.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import type { ShapeOf } from '../../kernels/registry.js';
import type { Shape } from '../../kernels/spec.js';
import { AXES, headsOf, kvHeadsOf, op, type Configuration, type Op, type Part, type When } from './configuration.js';

/** Streams of the codec in a block; undefined where its loops do not differ. */
export const streamsIn = (c: Configuration, block: LayerBlock): Streams | undefined =>
  block.name === 'core' ? streamsOf(c.geometry, c.codec) : undefined;

/** When a loop of streams runs: each of the four reads other streams. */
const WHEN: readonly When[] = ['first-loop', 'second-loop', 'third-loop', 'fourth-loop'];

/** Attention of one loop of a step. */
export interface StreamLoop {
  readonly when: When;
  /** What attention over all tokens reads, where the loop does so, and that over chosen ones. */
  readonly all?: StreamReads;
  readonly chosen?: StreamReads;
}

interface StreamReads {
  readonly tokens: number;
  /** Fields of a call's shape (kernels/attend_streams). */
  readonly shape: Shape;
}

/** Between two packings the tail holds so many tokens on average. */
const tailOf = ({ tail }: Streams, context: number): number =>
  Math.min(context, Math.round((tail.least + tail.most) / 2));

/** Groups of the codec, as shapes have them. */
const packedShape = (c: Configuration, { group, anchorBits }: Streams, loop: number): Shape => ({
  headDim: c.geometry.headDim,
  loops: loop + 1,
  anchorBits,
  packGroup: group,
});

/** The loops of a step at a context. Of the chosen keys those in the tail count as packed, which is more to read. */
export function streamLoops(c: Configuration, block: LayerBlock, context: number): StreamLoop[] {
  const streams = streamsIn(c, block);
  if (!streams) return [];
  const tail = tailOf(streams, context);
  const kept = Math.min(context, chosenKeys(streams, context));
  let rows = 0;
  return streams.stored.map((share, loop) => {
    rows += share * streams.weights[loop]!;
    const reads = (tokens: number, exact: number): StreamReads => ({
      tokens,
      shape: { ...packedShape(c, streams, loop), packedRows: Math.round((tokens - exact) * rows), tail: exact },
    });
    const [dense, choosing] = [loop < streams.dense, loop >= streams.dense - 1 && choosesKeys(streams)];
    return {
      when: WHEN[loop] as When,
      ...(dense ? { all: reads(context, tail) } : {}),
      ...(choosing ? { chosen: reads(kept, 0) } : {}),
    };
  });
}

/** The choice of keys after the last dense loop, of every query head by its scores of all tokens. */
export const chooseKeysOps = (c: Configuration, streams: Streams, parts: readonly Part[], context: number): Op[] =>
  parts.map(({ size, repeat }) =>
    op(
      'choose-keys',
      'choose_keys',
      'f32',
      { rows: size * headsOf(c), context, kept: chosenKeys(streams, context), width: c.geometry.headDim },
      'always',
      repeat,
    ),
  );

/** What later loops add to loop 2's output: their own over the chosen keys, less loop 2's over the same. */
export const joinChosenOp = (c: Configuration, batch: number, begins: boolean): Op =>
  op('join-chosen', 'join_chosen', begins ? 'begin' : 'add', { rows: batch * headsOf(c), width: c.geometry.headDim });

/** Packing of as many tokens of a loop as the operation's rows; a step packs one in the mean. */
const packOps = (c: Configuration, streams: Streams, rows: number, loop: number, when: When, repeat = 1): Op[] =>
  AXES.map((axis) =>
    op(
      `pack-${axis}`,
      'append_streams',
      axis === 'k' ? 'keys' : 'values',
      { rows, heads: kvHeadsOf(c), ...packedShape(c, streams, loop) } as ShapeOf<'append_streams'>,
      when,
      repeat,
    ),
  );

/** The same of every loop of a step. */
export const packLoopsOps = (c: Configuration, streams: Streams, { size, repeat }: Part): Op[] =>
  streams.stored.flatMap((_, loop) => packOps(c, streams, size, loop, WHEN[loop] as When, repeat));

/** Loops of a prompt that run the same tokens. */
export interface PromptLoops {
  readonly block: LayerBlock;
  /** Tokens that run, of each prompt. */
  readonly tokens: number;
  /** The first of the loops, and tokens of each prompt that are packed of them, where they are streams. */
  readonly streams?: { readonly firstLoop: number; readonly packed: number };
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
export function packPromptOps(
  c: Configuration,
  { block, streams: own }: Omit<PromptLoops, 'tokens'>,
  batch: number,
): Op[] {
  const streams = streamsIn(c, block);
  if (!streams || !own || own.packed === 0) return [];
  return Array.from({ length: block.loops }, (_, i) =>
    packOps(c, streams, batch * own.packed, own.firstLoop + i, WHEN[i] as When),
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
    ? [op('score-rows', 'accumulate', 'add', { rows, width: c.geometry.hidden })]
    : [];
