/**
 * FlashLoop's operations (codecs/flashloop-codec.ts). Loops are packed as differences: loop t reads the streams of the
 * loops up to it. Loops 1 and 2 attend to all tokens. Loop 2 also tells, of each head, the keys that loops 3 and 4
 * read: a tenth, the most probable. The last tokens are exact.
 *
 * No kernel was written for it. Each operation is listed as one that exists and moves the same bytes: a row of a stream
 * as a row in 4 bits with a scale for 32 scalars, which takes as much as a pair for 64; a token of two streams as two
 * rows; a row of an anchor in 8 bits as nearly two.
 */
import type { Streams } from '../codecs/codec.js';
import { streamsOf } from '../codecs/registry.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import { AXES, headsOf, kvHeadsOf, op, type Configuration, type Op, type Part, type When } from './configuration.js';

/**
 * Scalars of a scale in a row that takes as many bytes as a stream's, whose scale and lowest value serve twice as many.
 */
const scaleGroup = ({ group }: Streams): number => group / 2;
export const PACKED = 'q4';

/** Streams of the codec in a block; undefined where its loops do not differ. */
export const streamsIn = (c: Configuration, block: LayerBlock): Streams | undefined =>
  block.name === 'core' ? streamsOf(c.geometry, c.codec) : undefined;

/** When a loop of streams runs: each of the four reads other streams. */
const WHEN: readonly When[] = ['first-loop', 'second-loop', 'third-loop', 'fourth-loop'];

/** Attention of one loop of a step. */
export interface StreamLoop {
  readonly when: When;
  /** Rows of streams that each head reads, in 4 bits. */
  readonly packedRows: number;
  /** Rows of the exact tail that it reads. */
  readonly tailRows: number;
  /**
   * The last dense loop writes its scores, from which keys are chosen; loops after it read those of each head alone.
   */
  readonly chooses: boolean;
  readonly sparse: boolean;
  /** Scalars of a scale in a packed row. */
  readonly groupSize: number;
}

/** Between two packings the tail holds so many tokens on average. */
const tailOf = ({ tail }: Streams, context: number): number =>
  Math.min(context, Math.round((tail.least + tail.most) / 2));

/** The loops of a step at a context. Of the chosen keys those in the tail count as packed, which is more to read. */
export function streamLoops(c: Configuration, block: LayerBlock, context: number): StreamLoop[] {
  const streams = streamsIn(c, block);
  if (!streams) return [];
  const tail = tailOf(streams, context);
  const chosen = Math.ceil(streams.keys * (context + 1));
  let rows = 0;
  return streams.stored.map((share, loop) => {
    rows += share * streams.weights[loop]!;
    const sparse = loop >= streams.dense;
    return {
      when: WHEN[loop] as When,
      packedRows: sparse ? Math.max(1, Math.round(chosen * rows)) : Math.round((context - tail) * rows),
      tailRows: sparse ? 0 : tail,
      chooses: loop === streams.dense - 1 && streams.stored.length > streams.dense,
      sparse,
      groupSize: scaleGroup(streams),
    };
  });
}

/** The choice of keys after the last dense loop: every head weighs the scores of all tokens, as for H2O's masses. */
export const chooseKeysOps = (c: Configuration, parts: readonly Part[], context: number, when: When): Op[] =>
  parts.map(({ size, repeat }) =>
    op('choose-keys', 'mass', 'f32', { rows: size * headsOf(c), group: 1, context }, when, repeat),
  );

/** What later loops add to loop 2's output: their own over the chosen keys, less loop 2's over the same. */
export const addSparseOp = (c: Configuration, batch: number, when: When): Op =>
  op('add-sparse', 'attend_join', 'f32', { rows: batch * headsOf(c), width: c.geometry.headDim }, when);

/** Packing of as many tokens as the operation's rows, a loop's stream at a time; a step packs one in the mean. */
export const packOps = (c: Configuration, streams: Streams, rows: number, repeat = 1): Op[] =>
  AXES.map((axis) =>
    op(
      `pack-${axis}`,
      'append',
      PACKED,
      { rows, heads: kvHeadsOf(c), width: c.geometry.headDim, groupSize: scaleGroup(streams) },
      'always',
      repeat,
    ),
  );

/** Loops of a prompt that run the same tokens. */
export interface PromptLoops {
  readonly block: LayerBlock;
  /** Tokens that run, of each prompt. */
  readonly tokens: number;
}

/** Loops of a block by the tokens of a prompt that run them: all of them, but for streams. */
export function promptLoops(c: Configuration, block: LayerBlock, tokens: number): PromptLoops[] {
  const streams = streamsIn(c, block);
  if (!streams) return [{ block, tokens }];
  const whole = streams.runs.filter((share) => share === 1).length;
  return [
    { block: { ...block, loops: whole }, tokens },
    ...streams.runs
      .filter((share) => share < 1)
      .map((share) => ({ block: { ...block, loops: 1 }, tokens: Math.ceil(share * tokens) })),
  ];
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
export const scoreRowsOp = (c: Configuration, rows: number): Op =>
  op('score-rows', 'accumulate', 'add', { rows, width: c.geometry.hidden });
