/**
 * The operations of one layer, in the order in which they run.
 *
 * The current token is never read from the cache: its exact key and value are folded in after the cached tokens, and
 * its rows are appended when no attention of this step will read the cache again (so that a full ring may overwrite its
 * oldest token). Latents are encoded from the key before its rotation.
 */
import { pathSpec } from '../codecs/paths.js';
import { reindexes } from '../eviction/policy.js';
import type { LayerBlock } from '../geometry/geometry.js';
import { anchoredLoops, firstRows, fullWidth, laterWindow, type Layer } from './attend.js';
import type { StepFrame } from './bind/step.js';
import { cacheParts } from './cache-parts.js';
import {
  anchoredIn,
  AXES,
  branchHeadsOf,
  headsOf,
  kvHeadsOf,
  latentsOf,
  rankOf,
  storageOf,
  type Axis,
  type Configuration,
  type Visit,
} from './configuration.js';
import { attentionOut, layerAround, mlpOps, queryKeyValue } from './dense.js';
import { evictOps, massOps } from './eviction-ops.js';
import { branchWidth, closingTime, hasHybridLatents, readsLatents, streamsIn, windowOf } from './facts.js';
import { latentOps } from './latents.js';
import { everyRestoredLoop, inEachPart, type Bind, type Op } from './op.js';
import {
  appendBranch,
  APPEND_LATENTS,
  appendLoopsOp,
  appendOp,
  APPEND_RECENT,
  APPEND_RESTORED,
  APPEND_ROWS,
  encodeOps,
  holdOps,
  hybridAppendOps,
  meanOps,
  restoreOps,
  ropeOp,
  ropeRestored,
  rotateOps,
} from './rows.js';
import { packedLoops, packLoopsOps } from './streams.js';

/**
 * Lists a layer's operations for one decode step.
 * @param batch sequences decoded together (≥ 1)
 * @param context tokens of each sequence before this step, evicted ones included (≥ 1)
 * @param slots tokens that each cached row has room for
 * @param inTurn rows are tokens that follow each other, as in StepOptions
 */
export function layerOps(
  c: Configuration,
  block: LayerBlock,
  batch: number,
  context: number,
  slots: number,
  inTurn = false,
): Op[] {
  const [heads, kvHeads] = [headsOf(c), kvHeadsOf(c)];
  const latent = readsLatents(c, block);
  const absorbed = latent && pathSpec(c.path).branch === true;
  const l: Layer = {
    c,
    block,
    batch,
    context,
    heads,
    kvHeads,
    group: heads / kvHeads,
    storage: storageOf(c),
    latent,
    absorbed,
    reads: streamsIn(c, block) ? 'packed' : windowOf(c, block) > 0 ? 'older' : 'all',
    second: reindexes(c.eviction) && (absorbed || !latent),
    parts: inTurn ? [{ size: 1, repeat: batch }] : cacheParts(c, block, batch, slots),
    inTurn,
  };
  const attention = [
    ...queryKeyValue(c, block, batch),
    ...encodeOps(c, block, batch),
    ...rotateQueryOps(l),
    ...meanOps(c, block, batch),
    ...holdOps(c, block, batch),
    ...(inTurn ? appendOps(l) : []),
    ...firstRows(l),
    ...attentionOps(l),
    ...massOps(l),
    ...evictOps(l, slots),
    ...(inTurn ? [] : appendOps(l)),
    ...attentionOut(c, batch),
  ];
  return layerAround(c, batch, attention, mlpOps(c, batch));
}

/** Attention over the cached tokens, the merge of its splits, and the current token. */
function attentionOps(l: Layer): Op[] {
  if (anchoredIn(l.c, l.block) > 1) return anchoredLoops(l);
  const streams = streamsIn(l.c, l.block);
  if (streams) return packedLoops(l, streams);
  return l.latent ? latentOps(l) : [...fullWidth(l, l.storage), ...laterWindow(l)];
}

/** Rotates query and new key in place; a second query scores sinks where keys are cached rotated. */
function rotateQueryOps({ c, block, batch, heads, absorbed, second }: Layer): Op[] {
  const width = absorbed ? branchWidth(c, block) : c.geometry.headDim;
  if (width === 0) return [];
  const sinks: Bind = (f: StepFrame, visit: Visit) => (absorbed ? f.rotateBranch(visit, 1) : f.rotateQueries(visit, 1));
  return [
    ...(second ? [ropeOp(c, 'rope-sinks', batch, heads, sinks, 'always', width)] : []),
    ...rotateOps(c, block, batch),
  ];
}

/** Writing the new token's rows, once nothing in this step reads the cache any more, or as soon as they are known. */
function appendOps(l: Layer): Op[] {
  const { c, block, batch, kvHeads, inTurn } = l;
  const d = c.geometry.headDim;
  if (anchoredIn(c, block) > 1)
    return AXES.flatMap((axis) => inEachPart(l.parts, (size) => [appendLoopsOp(c, axis, size)]));
  const closing = closingTime(c, block);
  const when = inTurn && closing === 'closing-layer' ? 'owning-layer' : closing;
  const each = (label: string, heads: number, width: number, binds: Bind, time = when): Op[] =>
    inEachPart(l.parts, (size) => [appendOp(c, label, size, heads, width, binds, time)]);
  const both = (
    label: string,
    heads: number,
    [k, v]: readonly [number, number],
    binds: Readonly<Record<Axis, Bind>>,
    time = when,
  ): Op[] => [
    ...each(`${label}-k`, heads, k, binds.key, time),
    ...(v > 0 ? each(`${label}-v`, heads, v, binds.value, time) : []),
  ];
  if (l.latent) {
    const branch = branchWidth(c, block);
    return [
      ...(hasHybridLatents(c, block)
        ? hybridAppendOps(c, l.batch, l.parts)
        : both('append', latentsOf(c), [rankOf(c, 'key'), rankOf(c, 'value')], APPEND_LATENTS)),
      ...(branch > 0 ? each('append-branch', branchHeadsOf(c), branch, appendBranch) : []),
      // No later loop reads a loop's exact rows.
      ...(windowOf(c, block) > 0 ? both('append-recent', kvHeads, [d, d], APPEND_RECENT, 'always') : []),
    ];
  }
  const full = (binds: Readonly<Record<Axis, Bind>>): Op[] =>
    both('append', kvHeads, [d, c.geometry.valuesAreKeys ? 0 : d], binds);
  const streams = streamsIn(c, block);
  if (streams) return [...full(APPEND_RECENT), ...inEachPart(l.parts, (size) => packLoopsOps(c, streams, size))];
  if (block.name !== 'core' || !pathSpec(c.path).restores) return full(APPEND_ROWS);
  return [
    ...AXES.flatMap((axis) => restoreOps(c, axis, batch, when)),
    ropeRestored(c, batch, when),
    ...everyRestoredLoop(c, full(APPEND_RESTORED)),
  ];
}
