/** Where tokens are evicted: what of a run joins the cache, layer by layer, once nothing reads there any more what it replaces. */
import { isLatent } from '../codecs/registry.js';
import { headsPerGpu, op, storageOf, type Op, type When } from './configuration.js';
import { branchWidth, closingTime, readsLatents } from './eviction-ops.js';
import { groupOf } from './kernels.js';
import { prefillRowType, setsRowsAside, stayingOf, type Chunk, type Pass } from './prefill-pass.js';

/** One kind of row that a layer caches. */
interface Cached {
  readonly name: 'k' | 'v' | 'branch';
  readonly heads: number;
  readonly width: number;
}

/**
 * Rows that were set aside, and kept ones that layers share, are read back and written; others are written from their projection.
 * A run without latents has one pass, in which they stay there until attention is over.
 */
export function stayingOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, again, batch } = p;
  if (c.eviction === null || again !== isLatent(c.codec)) return [];
  const storage = storageOf(c);
  const groupSize = groupOf(storage, c.choice.groupSize);
  // Rows of full width have one buffer a loop.
  const when: When = setsRowsAside(c) && !readsLatents(c, block) ? 'always' : closingTime(c, block);
  const shared = block.name === 'core' && c.codec.kind === 'cla';
  return stayingOf(p, chunk).flatMap(({ from, tokens }) =>
    cachedOf(p).flatMap(({ name, heads, width }): Op[] => {
      const shape = { rows: batch * tokens, heads, width };
      const read = setsRowsAside(c) ? [op(`load-${name}-staying`, 'load', storage, { ...shape, groupSize }, when)] : shared ? [op(`load-${name}-staying`, 'load', prefillRowType(c), { ...shape, groupSize: 0 }, when)] : [];
      return [...read, op(`append-${name}-staying`, 'append', storage, { ...shape, groupSize }, when)].map((o) => ({ ...o, from }));
    }),
  );
}

function cachedOf({ c, block }: Pass): Cached[] {
  const kvHeads = headsPerGpu(c.geometry.kvHeads, c.gpus);
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  if (!readsLatents(c, block)) return (['k', 'v'] as const).map((name) => ({ name, heads: kvHeads, width: c.geometry.headDim }));
  const heads = kind === 'lla' ? kvHeads : 1;
  const branch = branchWidth(c, block);
  return [
    { name: 'k', heads, width: rankK },
    { name: 'v', heads, width: rankV },
    ...(branch > 0 ? [{ name: 'branch', heads: c.branch.perHead ? kvHeads : 1, width: branch } as const] : []),
  ];
}
