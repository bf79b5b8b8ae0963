/**
 * Eviction by position (StreamingLLM): the run's kept tokens are written to the cache, layer by layer, after the last
 * read of the rows that they replace.
 */
import { takesTwoPasses } from '../../codecs/registry.js';
import { weighsTokens } from '../../eviction/policy.js';
import {
  AXES,
  branchHeadsOf,
  groupSizeOf,
  kvHeadsOf,
  latentsOf,
  op,
  rankOf,
  storageOf,
  type Axis,
  type Op,
} from '../configuration.js';
import { branchWidth, closingTime, readsLatents } from '../eviction-ops.js';
import { joiningTime, prefillRowType, setsRowsAside, keptIn, type Chunk, type Pass } from './pass.js';
import { appendOp } from '../rows.js';

/** One kind of row that a layer caches. */
interface Cached {
  readonly name: Axis | 'branch';
  readonly heads: number;
  readonly width: number;
}

/**
 * Rows that were set aside, and kept rows that layers share, are loaded and written. Others are written from their
 * projection, which still holds them: such a run has one pass.
 */
export function keptTokenOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, pass2, batch } = p;
  if (c.eviction === null || weighsTokens(c.eviction) || pass2 !== takesTwoPasses(c.codec)) return [];
  const when = joiningTime(c, block);
  const shared = closingTime(c, block) === 'closing-layer';
  return keptIn(p, chunk).flatMap(({ from, tokens }) =>
    cachedOf(p).flatMap(({ name, heads, width }): Op[] => {
      const shape = { rows: batch * tokens, heads, width };
      const read = setsRowsAside(c)
        ? [op(`load-${name}-staying`, 'load', storageOf(c), { ...shape, groupSize: groupSizeOf(c) }, when)]
        : shared
          ? [op(`load-${name}-staying`, 'load', prefillRowType(c), { ...shape, groupSize: 0 }, when)]
          : [];
      return [...read, appendOp(c, `append-${name}-staying`, batch * tokens, heads, width, when)].map((o) => ({
        ...o,
        from,
      }));
    }),
  );
}

function cachedOf({ c, block }: Pass): Cached[] {
  if (!readsLatents(c, block)) return AXES.map((name) => ({ name, heads: kvHeadsOf(c), width: c.geometry.headDim }));
  const branch = branchWidth(c, block);
  return [
    ...AXES.map((name) => ({ name, heads: latentsOf(c), width: rankOf(c, name) })),
    ...(branch > 0 ? [{ name: 'branch', heads: branchHeadsOf(c), width: branch } as const] : []),
  ];
}
