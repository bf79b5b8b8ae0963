/**
 * H2O for whole prompts: a run's tokens attend to all of it. A token's score (its mass) is the sum of the attention
 * weights that later tokens give it, in the last pass. Rows that evict together share scores, and tokens are chosen
 * after the last of these rows has attended.
 */
import { pathSpec } from '../../codecs/paths.js';
import { takesTwoPasses } from '../../codecs/registry.js';
import { keptTokens, weighsTokens } from '../../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../../geometry/geometry.js';
import { runOf } from '../../../kernels/shared/cache/evict.terms.js';
import type { PromptFrame, Rowset } from '../bind/prompt.js';
import { placed, type BufferRef } from '../bind/refs.js';
import {
  groupSizeOf,
  headsOf,
  kvHeadsOf,
  storageOf,
  type Configuration,
  type Place,
  type Visit,
  type When,
} from '../configuration.js';
import { evictedRows } from '../eviction-ops.js';
import { branchWidth, closingTime, evictedScalars, evictingRows } from '../facts.js';
import { op, type Bind, type Op } from '../op.js';
import { cachedBefore, joiningTime, keptRowType, type Chunk, type Pass } from './pass.js';

/** True where tokens are chosen by the attention of this pass. */
export const weighs = ({ c, pass2 }: Pick<Pass, 'c' | 'pass2'>): boolean =>
  weighsTokens(c.eviction) && pass2 === takesTwoPasses(c.codec);

/** True where all loops of a layer evict together. */
const poolsLoops = (c: Configuration, block: LayerBlock): boolean =>
  block.loops > 1 && !pathSpec(c.path).restores && closingTime(c, block) === 'last-loop';

/** Index of a layer's H2O scores among the run's: a layer has its own until its last loop where loops share them. */
const massNumber = (c: Configuration, block: LayerBlock, layer: number): number => (poolsLoops(c, block) ? layer : 0);

/** Evicting rows of each buffer of the run's H2O scores. */
export function massRows(c: Configuration): number[] {
  const rows: number[] = [];
  if (!weighsTokens(c.eviction)) return rows;
  for (const block of blocksOf(c.geometry)) {
    for (let i = 0; i <= massNumber(c, block, block.layers - 1); i++)
      rows[i] = Math.max(rows[i] ?? 0, evictingRows(c, block));
  }
  return rows;
}

/** True at the first layer and loop that adds to shared H2O scores. */
function beginsMass(c: Configuration, { block, layer, loop }: Place): boolean {
  const shared = block.name === 'core' ? (c.codec.shareLayers ?? 1) : 1;
  return layer % shared === 0 && (loop === 0 || !poolsLoops(c, block));
}

/** When that is. */
export function massTime(c: Configuration, block: LayerBlock): When {
  if (closingTime(c, block) === 'closing-layer') return 'owning-layer';
  return poolsLoops(c, block) ? 'first-loop' : 'always';
}

/** H2O scores of the run's tokens. */
export function massOf(f: PromptFrame, visit: Visit): BufferRef {
  const { block, layer } = placed(visit);
  return f.buffer('run mass', massNumber(f.c, block, layer));
}

/** The mass that a chunk's queries give to the tokens before them. */
export function promptMassOps(p: Pass, chunk: Chunk): Op[] {
  if (!weighs(p)) return [];
  const { c, block } = p;
  const kvHeads = kvHeadsOf(c);
  const binds: Bind = (f: PromptFrame, visit: Visit) => {
    const { cache, capacity } = f.kept('key', visit);
    const begins = beginsMass(c, placed(visit));
    return {
      options: { massPrefill: { ...f.queriesOf(visit), capacity, room: f.setting.rows, begins } },
      binds: {
        queries: f.projections,
        keys: cache,
        statistics: f.buffer('statistics'),
        mass: massOf(f, visit),
        ...f.branchBinds(visit),
      },
    };
  };
  const shape = {
    sequences: 1,
    kvHeads,
    rows: evictingRows(c, block),
    group: headsOf(c) / kvHeads,
    queries: chunk.tokens,
    context: cachedBefore(c, p.run) + chunk.from,
    keyWidth: c.geometry.headDim + branchWidth(c, block),
  };
  return [op('prompt-mass', 'mass_prefill', keptRowType(c, p.captures), shape, binds)];
}

/** The choice of the tokens that stay, of a run that has attended and of the cache before it, whose rows are copied. */
export function promptEvictOps(p: Pass): Op[] {
  if (!weighs(p)) return [];
  const { c, block, run } = p;
  const rows = evictingRows(c, block);
  const held = cachedBefore(c, run);
  const binds: Bind = (f: PromptFrame, visit: Visit) => {
    const caches = evictedRows(f, placed(visit));
    const runs = caches.map(({ name }) => f.runRows(name, visit));
    const { capacity, pinned, ring, heavy } = f.caches.slots;
    const own = { firstRow: f.firstEvicting(visit), room: f.setting.rows, runCapacity: runs[0]?.capacity as number };
    const options = { capacity, pinned, ring, heavy, caches, ...own };
    return {
      options: held > 0 ? { evictChunk: { ...options, position: f.run.from } } : { evictPrefill: options },
      binds: {
        runMass: massOf(f, visit),
        mass: f.evicting('mass', visit),
        positions: f.evicting('positions', visit),
        // A step's scores, which has one a slot and query head.
        ...(held > 0 ? { sources: f.scores(visit) } : {}),
        ...Object.fromEntries(
          caches.flatMap(({ name }, i) => [
            [runOf(name), (runs[i] as Rowset).cache],
            [name, f.cacheOf(visit, name)],
          ]),
        ),
      },
    };
  };
  const shape = {
    rows,
    context: held + run.tokens,
    kept: keptTokens(c.eviction, run.from + run.tokens),
    width: evictedScalars(c, block) / rows,
    groupSize: groupSizeOf(c),
  };
  const when = joiningTime(c, block);
  return held > 0
    ? [op('chunk-evict', 'evict_chunk', storageOf(c), { ...shape, held }, binds, when)]
    : [op('prompt-evict', 'evict_prefill', storageOf(c), shape, binds, when)];
}
