/** What a step's attention binds: over rows of full width, over latents, and H2O's exchange of tokens. */
import { pathSpec } from '../../codecs/paths.js';
import type { EvictedCache } from '../../../kernels/cache-options.js';
import type { Placement } from '../../../kernels/placement.js';
import { readsFirstRows } from '../buffers.js';
import { anchoredIn } from '../configuration.js';
import { branchWidth, evictingRows, readsLatents } from '../eviction-ops.js';
import type { Place, Visit } from '../expand.js';
import { meanRow } from '../rows.js';
import { loopGateOfInput, type Bind, type Binds } from './dense.js';
import type { Frame } from './frame.js';
import {
  loopOf,
  placed,
  type BufferRef,
  type Bound,
  type CacheRole,
  type Placed,
  type Ref,
  type RowAxis,
} from './refs.js';
import { copy, rotate } from './rows.js';
import type { StepFrame } from './step.js';
import {
  valueUp,
  queryAbsorb,
  attendJoin,
  attendCurrent,
  attendAbsorbed,
  ropeLatentQuery,
  attendRotated,
  attendRebuild,
  rebuild,
  blockVectors,
  blockBasis,
  attendBlocks,
} from './latents.js';
import { attendStreams, chooseKeys, joinChosen } from './streams.js';

type StepBind = Bind<StepFrame>;

/** True where attention scores latents, and a rotary branch beside them. */
const scoresLatents = (f: Frame, { place }: Visit): boolean =>
  place !== undefined && readsLatents(f.c, place.block) && pathSpec(f.c.path).branch === true;

/** Attention over rows of full width: the cache's, or rebuilt ones. */
const attendFullWidth: StepBind = (f, visit) => {
  const place = placed(visit);
  const part = f.partOf(visit);
  const rebuilt = readsLatents(f.c, place.block) && f.tokensOf(visit) === 'all';
  const rows = (axis: RowAxis): Ref => (rebuilt ? f.rebuiltRows(axis, part.index) : f.cached(visit, axis));
  return {
    options: { run: f.run(visit, f.secondQuery(place)) },
    binds: { queries: f.queries(part, f.headWords), keys: rows('key'), values: rows('value'), ...f.attends(visit) },
  };
};

/** Attention over rows that are rebuilt from those of the anchor's loop. */
const attendAnchored: StepBind = (f, visit) => {
  const { block, loop } = placed(visit);
  return {
    options: { residual: { loop: loop % anchoredIn(f.c, block) }, run: f.run(visit) },
    binds: {
      queries: f.queries(f.partOf(visit), f.headWords),
      keys: f.cached(visit, 'key'),
      values: f.cached(visit, 'value'),
      ...f.attends(visit),
    },
  };
};

/** The current token's keys and values: of the first loop where attention reads its rows. */
function currentRows(f: StepFrame, visit: Visit): { rows: BufferRef; keys: Placement; values: Placement } {
  const { block, layer, loop } = placed(visit);
  if (loop === 0 || !readsFirstRows(f.c, block) || f.tokensOf(visit) !== 'all')
    return { rows: f.buffer('query key value'), keys: f.packed.keys, values: f.packed.values };
  const stride = meanRow(f.c);
  return {
    rows: f.buffer('first rows', layer),
    keys: { offset: 0, stride },
    values: { offset: stride / 2, stride },
  };
}

/** The merge of an attention's splits, with the current token's key and value where they are of full width. */
function mergeInto(f: StepFrame, visit: Visit, output: string, stats: string): Bound {
  const { heads } = f.c.geometry;
  const { first } = f.partOf(visit);
  const own = ({ offset, stride }: Placement): Placement => ({ offset: offset + first * stride, stride });
  const { rows, keys, values } = currentRows(f, visit);
  const queries = own({ offset: 0, stride: f.headWords });
  const vectors = visit.op.variant === 'current' ? { queries, keys: own(keys), values: own(values) } : {};
  return {
    options: { current: { heads, group: f.group, ...vectors, firstRow: first * heads } },
    binds: {
      partials: f.partials,
      output: f.buffer(output),
      stats: f.buffer(stats),
      queries: f.buffer('queries'),
      newKeys: rows,
      newValues: rows,
    },
  };
}

const merge: StepBind = (f, visit) => {
  const current = visit.op.variant === 'current';
  const stats = current || f.tokensOf(visit) === 'all' ? 'stats' : 'older stats';
  return mergeInto(f, visit, current ? 'attention' : 'merged', stats);
};

/** A gate of each head, of its rotated query or of the layer's input. */
const loopGate: StepBind = (f, visit) => {
  if (f.c.geometry.loopGateOfInput) return loopGateOfInput(f, visit);
  const { heads, headDim } = f.c.geometry;
  return {
    options: { matmul: { x: { row: heads * headDim, group: headDim }, y: { row: heads, group: 1 } } },
    binds: {
      x: f.buffer('queries'),
      weights: { weights: 'loop-gate', stored: placed(visit).stored },
      y: f.buffer('loop gates'),
    },
  };
};

/** Attention over the first loop's rows and that over the window, mixed by the gate. */
const loopMix: StepBind = (f, visit) => ({
  options: { current: { heads: f.c.geometry.heads, group: f.group } },
  binds: {
    gates: f.buffer('loop gates'),
    bias: { weights: 'loop-gate-bias', stored: placed(visit).stored },
    other: f.buffer('window attention'),
    target: f.buffer('attention'),
  },
});

/**
 * Rotates queries to where attention reads them, and new keys in place. `set` 1 is that of the sinks, at the place of
 * the current token inside the cache.
 */
function ropeQueries(f: StepFrame, visit: Visit, set: 0 | 1): Bound {
  const { heads, headDim } = f.c.geometry;
  const target = { offset: set * f.batch * heads * headDim, stride: heads * headDim };
  return rotate(f, visit, f.inPacked('queries'), headDim, { target, targetHeads: heads }, f.positionsOf(set));
}

/** The rotary branch's queries go beside the absorbed content queries; `set` 1 is that of the sinks. */
function ropeBranch(f: StepFrame, visit: Visit, set: 0 | 1): Bound {
  const { heads } = f.c.geometry;
  const width = f.queryWidth(placed(visit));
  const target = { offset: set * f.batch * heads * width + f.rankOf('key'), stride: heads * width, head: width };
  return rotate(f, visit, f.inPacked('branch'), f.c.branch.width, { target, targetHeads: heads }, f.positionsOf(set));
}

const attend: StepBind = (f, visit) => {
  const { op, place } = visit;
  if (op.kernel === 'attend_residual') return attendAnchored(f, visit);
  if (op.kernel === 'attend_streams') return attendStreams(f, visit);
  if (op.kernel === 'attend_rebuild') return attendRebuild()(f, visit);
  if (op.kernel === 'attend_block_absorbed') return attendBlocks(f, visit);
  if (pathSpec(f.c.path).rotated && place && readsLatents(f.c, place.block)) return attendRotated(f, visit);
  return scoresLatents(f, visit) ? attendAbsorbed(f, visit) : attendFullWidth(f, visit);
};

const mass: StepBind = (f, visit) => {
  const part = f.partOf(visit);
  return {
    options: { mass: { capacity: f.caches.slots.capacity } },
    binds: {
      scores: f.scores(part),
      stats: f.own('stats', part, 2 * f.c.geometry.heads),
      mass: f.evicting('mass', placed(visit), part),
    },
  };
};

/** The rows that are evicted together. */
export function evictedRows(f: Frame, place: Place): (EvictedCache & { name: CacheRole })[] {
  const { block } = place;
  const branch = branchWidth(f.c, block) > 0 ? (['rotary-key'] as const) : [];
  const roles = readsLatents(f.c, block)
    ? (['key-latent', 'value-latent', ...branch] as const)
    : (['key', 'value'] as const);
  return roles.map((name) => {
    const { width, heads } = f.caches.tensor(name, place);
    return { name, width, rows: heads / evictingRows(f.c, block) };
  });
}

const evict: StepBind = (f, visit) => {
  const place = placed(visit);
  const { capacity, pinned, ring } = f.caches.slots;
  const part = f.partOf(visit);
  const loop = loopOf(visit);
  const caches = evictedRows(f, place);
  return {
    options: { evict: { heads: evictingRows(f.c, place.block), pinned, ring, capacity, caches } },
    binds: {
      spans: f.spans(part, visit),
      mass: f.evicting('mass', place, part, loop),
      positions: f.evicting('positions', place, part, loop),
      moves: f.buffer('moves'),
      ...Object.fromEntries(caches.map(({ name }) => [name, f.cacheOf(visit, name, loop)])),
    },
  };
};

/** The first loop's keys and values of the current token, which later loops attend to as well. */
const firstRows: StepBind = (f, visit) => {
  const rows: Placed = { rows: f.buffer('first rows', placed(visit).layer), at: { offset: 0, stride: meanRow(f.c) } };
  return copy(f.projected('key'), rows);
};

export const ATTENTION: Binds<StepFrame> = {
  attend,
  merge,
  rope: (f, visit) => ropeQueries(f, visit, 0),
  'rope-sinks': (f, visit) => (scoresLatents(f, visit) ? ropeBranch : ropeQueries)(f, visit, 1),
  'attend-chosen': attendStreams,
  'merge-chosen': (f, visit) => mergeInto(f, visit, 'chosen attention', 'chosen stats'),
  'choose-keys': chooseKeys,
  'join-chosen': joinChosen,
  'attend-recent': attendFullWidth,
  'first-rows': firstRows,
  'attend-window': attendFullWidth,
  'merge-window': (f, visit) => mergeInto(f, visit, 'window attention', 'window stats'),
  'loop-gate': loopGate,
  'loop-mix': loopMix,
  'rope-branch': (f, visit) => ropeBranch(f, visit, 0),
  'query-absorb': queryAbsorb(0),
  'query-absorb-sinks': queryAbsorb(1),
  'rebuild-k': rebuild('key'),
  'rebuild-v': rebuild('value'),
  'block-vectors': blockVectors,
  'block-basis': blockBasis,
  'rope-latent-query': ropeLatentQuery,
  'value-up': valueUp,
  'attend-current': attendCurrent,
  'attend-join': attendJoin,
  'attend-pinned': attendRebuild('pinned'),
  mass,
  evict,
};
