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
import { fromOf, type PromptFrame } from '../bind/prompt.js';
import { loopOf } from '../bind/refs.js';
import { anchoredIn, AXES, kvHeadsOf, NAME, type Axis, type Visit } from '../configuration.js';
import { branchWidth, closingTime, readsLatents } from '../facts.js';
import { everyAnchoredLoop, everyRestoredLoop, type Bind, type Op } from '../op.js';
import { appendLoopsOp, encodeOp, ropeKeys, ropeOp } from '../rows.js';
import type { Stage } from '../schedule.js';
import { over, type Chunk, type Pass } from './pass.js';
import { keepOp, load, loadKept, loadOp, reconstructOps, writeLatentOps } from './rows.js';

/** by-layer: the encoding of a layer, between its attention and its MLP. */
export const layerEncoding = (p: Pass, chunks: readonly Chunk[]): Op[] =>
  p.captures === 'by-layer' && !p.pass2 && p.block.name === 'core'
    ? over(chunks, (chunk) => (anchoredIn(p.c, p.block) > 1 ? storeLoops(p, chunk) : encodeCaptures(p, chunk)))
    : [];

/** Loops that are stored together, one axis after the other: their captured rows side by side, coded and written. */
function storeLoops({ c, block }: Pass, { tokens }: Chunk): Op[] {
  const together = anchoredIn(c, block);
  return AXES.flatMap((axis) => {
    const binds: Bind = (f: PromptFrame, visit: Visit) => {
      const { rows, at, loopStride } = f.waiting(visit);
      const offset = at.offset + (loopOf(visit) % together) * loopStride;
      return load(visit, f.kept(axis, visit), fromOf(visit), { rows, at: { ...at, offset } });
    };
    return [
      ...everyAnchoredLoop(c, [
        loadKept({ c, captures: undefined }, `hold-${NAME[axis]}`, tokens, binds, 'anchor-loop'),
      ]),
      appendLoopsOp(c, axis, tokens),
    ];
  });
}

/** one-shot: everything is encoded between the passes, and reconstructed. */
export function encodingStages(of: Omit<Pass, 'block'>, chunks: readonly Chunk[]): Stage[] {
  const block = blocksOf(of.c.geometry).find(({ name }) => name === 'core');
  if (of.captures !== 'one-shot' || !block) return [];
  const p = { ...of, block };
  const layer = over(chunks, (chunk) => [...encodeCaptures(p, chunk), ...reconstructAll(p, chunk)]);
  return [{ kind: 'stack', block, loopStart: [], layer, loopEnd: [] }];
}

/** The absorbed path attends to keys that are not rotated. */
const rotates = ({ c, block }: Pass, axis: Axis): boolean => axis === 'key' && branchWidth(c, block) === 0;

/** Encodes the captures of a chunk, one axis after the other, and writes the latents. */
function encodeCaptures(p: Pass, { tokens: rows }: Chunk): Op[] {
  const { c, block } = p;
  const back: Bind = (f, visit) =>
    f.rotate(visit, f.projected('key'), c.geometry.headDim, {}, { turns: f.buffer('inverse rotary table') });
  const encoded = (axis: Axis): Op[] => {
    // Where the chunk's own rows were projected.
    const binds: Bind = (f: PromptFrame, visit: Visit) =>
      load(visit, f.kept(axis, visit), fromOf(visit), f.projected(axis));
    return everyRestoredLoop(c, [
      loadKept(p, `capture-${NAME[axis]}`, rows, binds),
      ...(rotates(p, axis) ? [ropeOp(c, 'rope-back', rows, kvHeadsOf(c), back)] : []),
      encodeOp(c, axis, rows),
    ]);
  };
  const ops = AXES.flatMap((axis) => [...encoded(axis), ...writeLatentOps(p, axis, rows)]);
  return ops.map((o) => ({ ...o, when: closingTime(c, block) }));
}

/** Reads a chunk of the cache back as rows of full width of every loop, which pass 2 attends to. */
function reconstructAll(p: Pass, { tokens: rows }: Chunk): Op[] {
  const { c, block } = p;
  const kept = (axis: Axis): Op => keepOp(p, axis, rows, 'always', 'own', `keep-reconstructed-${NAME[axis]}`);
  const rebuilt = (axis: Axis): Op[] => [
    loadOp(p, axis, rows),
    ...everyRestoredLoop(c, [
      ...reconstructOps(c, axis, rows),
      ...(rotates(p, axis) ? [ropeKeys(c, rows)] : []),
      kept(axis),
    ]),
  ];
  const ops = AXES.flatMap((axis) =>
    readsLatents(c, block) ? rebuilt(axis) : everyRestoredLoop(c, [loadOp(p, axis, rows), kept(axis)]),
  );
  return ops.map((o) => ({ ...o, when: closingTime(c, block) }));
}
