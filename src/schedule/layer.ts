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
import { cacheParts } from './cache-parts.js';
import {
  anchoredIn,
  AXES,
  branchHeadsOf,
  everyRestoredLoop,
  headsOf,
  kvHeadsOf,
  latentsOf,
  restoredLoops,
  restoreOps,
  storageOf,
  type Configuration,
  type Op,
} from './configuration.js';
import { hasHybridLatents, hybridAppendOps, hybridEncodeOps } from './hybrid.js';
import { attentionOut, layerAround, mlpOps, queryKeyValue } from './dense.js';
import { branchWidth, closingTime, evictOps, massOps, readsLatents, windowOf } from './eviction-ops.js';
import { appendLoopsOp, appendOp, encodeOps, holdOps, meanOps, ropeOp, rotateOps } from './rows.js';
import { packLoopsOps, streamsIn } from './streams.js';
import { attentionOps, firstRows, type Layer } from './attend.js';

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
    absorbed: latent && pathSpec(c.path).branch === true,
    parts: inTurn ? [{ size: 1, repeat: batch }] : cacheParts(c, block, batch, slots),
    inTurn,
  };
  const attention = [
    ...queryKeyValue(c, block, batch),
    ...(hasHybridLatents(c, block) ? hybridEncodeOps(c, batch) : encodeOps(c, block, batch)),
    ...rotateQueryOps(l),
    ...meanOps(c, block, batch),
    ...holdOps(c, block, batch),
    ...(inTurn ? appendOps(l) : []),
    ...firstRows(l),
    ...attentionOps(l),
    ...massOps(c, block, l.parts, context),
    ...evictOps(c, block, l.parts, slots),
    ...(inTurn ? [] : appendOps(l)),
    ...attentionOut(c, batch),
  ];
  return layerAround(c, batch, attention, mlpOps(c, batch));
}

/**
 * Rotation of the query and the new key, in place. StreamingLLM's distances are those inside the cache. Where keys are
 * cached rotated, sinks are scored by a second query, rotated accordingly; where keys are rotated as they are read, the
 * sinks' keys take that position.
 */
function rotateQueryOps({ c, block, batch, heads, latent, absorbed }: Layer): Op[] {
  const width = absorbed ? branchWidth(c, block) : c.geometry.headDim;
  if (width === 0) return [];
  const second = reindexes(c.eviction) && (absorbed || !latent);
  return [...(second ? [ropeOp(c, 'rope-sinks', batch, heads, 'always', width)] : []), ...rotateOps(c, block, batch)];
}

/** Writing the new token's rows, once nothing in this step reads the cache any more, or as soon as they are known. */
function appendOps(l: Layer): Op[] {
  const { c, block, batch, kvHeads, inTurn } = l;
  const d = c.geometry.headDim;
  const { rankK = 0, rankV = 0 } = c.codec;
  if (anchoredIn(c, block) > 1)
    return AXES.flatMap((axis) => l.parts.map(({ size, repeat }) => appendLoopsOp(c, axis, size, repeat)));
  const closing = closingTime(c, block);
  const when = inTurn && closing === 'closing-layer' ? 'owning-layer' : closing;
  const append = (label: string, heads: number, width: number, time = when): Op[] =>
    l.parts.map(({ size, repeat }) => appendOp(c, label, size, heads, width, time, repeat));
  if (l.latent) {
    const rows = latentsOf(c);
    const branch = branchWidth(c, block);
    return [
      ...(hasHybridLatents(c, block)
        ? hybridAppendOps(c, l.batch, l.parts)
        : [...append('append-k', rows, rankK), ...append('append-v', rows, rankV)]),
      ...(branch > 0 ? append('append-branch', branchHeadsOf(c), branch) : []),
      // No later loop reads a loop's exact rows.
      ...(windowOf(c, block) > 0
        ? [...append('append-recent-k', kvHeads, d, 'always'), ...append('append-recent-v', kvHeads, d, 'always')]
        : []),
    ];
  }
  const both = [...append('append-k', kvHeads, d), ...(c.geometry.valuesAreKeys ? [] : append('append-v', kvHeads, d))];
  const streams = streamsIn(c, block);
  if (streams) return [...both, ...l.parts.flatMap((part) => packLoopsOps(c, streams, part))];
  if (block.name !== 'core' || !pathSpec(c.path).restores) return both;
  return [
    ...restoreOps(c, 'restore-k', rankK, batch, when),
    ...restoreOps(c, 'restore-v', rankV, batch, when),
    ropeOp(c, 'rope-write', batch, restoredLoops(c) * kvHeads, when),
    ...everyRestoredLoop(c, both),
  ];
}
