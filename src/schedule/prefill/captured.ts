/**
 * The operations of the kinds of prefill that capture, for codecs with latents and for loops that are stored together:
 * pass 1 keeps the rows that its attention reads, of every layer and loop, and latents are encoded from all loops of
 * these at once. Keys are captured rotated, as attention reads them. Before encoding they are rotated back, so that
 * none is kept twice.
 *
 * - `one-shot`: captures in 32 bits until the pass is over. Then every latent is encoded and written, and read back as
 *   rows of full width of every layer and loop, also in 32 bits; pass 2 attends to these.
 * - `by-layer`: captures rows in the type in which `accumulated` keeps them. A layer's latents are encoded after its
 *   last loop, which frees its captures. Pass 2 is that of `accumulated`.
 */
import { blocksOf } from '../../geometry/geometry.js';
import {
  anchoredIn,
  AXES,
  everyAnchoredLoop,
  everyRestoredLoop,
  kvHeadsOf,
  op,
  type Axis,
  type Op,
} from '../configuration.js';
import { branchWidth, closingTime, readsLatents } from '../eviction-ops.js';
import { keptRowType, over, type Chunk, type Pass } from './pass.js';
import { keepOp, loadLatents, loadRows, reconstructOps, writeLatentOps } from './rows.js';
import { appendLoopsOp, encodeOp, ropeOp } from '../rows.js';
import type { Stage } from '../schedule.js';

/** by-layer: the encoding of a layer, between its attention and its MLP. */
export const layerEncoding = (p: Pass, chunks: readonly Chunk[]): Op[] =>
  p.captures === 'by-layer' && !p.pass2 && p.block.name === 'core'
    ? over(chunks, (chunk) => (anchoredIn(p.c, p.block) > 1 ? storeLoops(p, chunk) : encodeCaptures(p, chunk)))
    : [];

/** Loops that are stored together, one axis after the other: their captured rows side by side, coded and written. */
function storeLoops({ c, batch }: Pass, chunk: Chunk): Op[] {
  const rows = batch * chunk.tokens;
  const shape = { rows, heads: kvHeadsOf(c), width: c.geometry.headDim, groupSize: 0 };
  return AXES.flatMap((axis) => [
    ...everyAnchoredLoop(c, [op(`hold-${axis}`, 'load', keptRowType(c), shape, 'anchor-loop')]),
    appendLoopsOp(c, axis, rows),
  ]);
}

/** one-shot: everything is encoded between the passes, and reconstructed. */
export const encodingStages = (of: Omit<Pass, 'block'>, chunks: readonly Chunk[]): Stage[] =>
  of.captures === 'one-shot'
    ? blocksOf(of.c.geometry)
        .filter((block) => block.name === 'core')
        .map((block) => ({
          kind: 'stack',
          block,
          loopStart: [],
          layer: over(chunks, (chunk) => [
            ...encodeCaptures({ ...of, block }, chunk),
            ...reconstructAll({ ...of, block }, chunk),
          ]),
          loopEnd: [],
        }))
    : [];

/** Rotation of a chunk's keys, or back. The absorbed path attends to keys that are not rotated. */
const rotation = ({ c, block }: Pass, label: string, rows: number): Op[] =>
  branchWidth(c, block) > 0 ? [] : [ropeOp(c, label, rows, kvHeadsOf(c))];

/** Encodes the captures of a chunk, one axis after the other, and writes the latents. */
function encodeCaptures(p: Pass, chunk: Chunk): Op[] {
  const { c, block, batch } = p;
  const rows = batch * chunk.tokens;
  const captured = (axis: Axis): Op =>
    op(`capture-${axis}`, 'load', keptRowType(c, p.captures), {
      rows,
      heads: kvHeadsOf(c),
      width: c.geometry.headDim,
      groupSize: 0,
    });
  const encoded = (axis: Axis): Op[] =>
    everyRestoredLoop(c, [
      captured(axis),
      ...(axis === 'k' ? rotation(p, 'rope-back', rows) : []),
      encodeOp(c, axis, rows),
    ]);
  const ops = AXES.flatMap((axis) => [...encoded(axis), ...writeLatentOps(p, axis, rows)]);
  return ops.map((o) => ({ ...o, when: closingTime(c, block) }));
}

/** Reads a chunk of the cache back as rows of full width of every loop, which pass 2 attends to. */
function reconstructAll(p: Pass, chunk: Chunk): Op[] {
  const { c, block, batch } = p;
  const rows = batch * chunk.tokens;
  const kept = (axis: Axis): Op => keepOp(p, `keep-reconstructed-${axis}`, rows);
  const rebuilt = (axis: Axis): Op[] => [
    loadLatents(c, axis, rows),
    ...everyRestoredLoop(c, [
      ...reconstructOps(c, axis, rows),
      ...(axis === 'k' ? rotation(p, 'rope-k', rows) : []),
      kept(axis),
    ]),
  ];
  const ops = AXES.flatMap((axis) =>
    readsLatents(c, block) ? rebuilt(axis) : everyRestoredLoop(c, [loadRows(c, axis, rows), kept(axis)]),
  );
  return ops.map((o) => ({ ...o, when: closingTime(c, block) }));
}
