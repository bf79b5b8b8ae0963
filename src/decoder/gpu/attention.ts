/** Execution of a step's attention over rows of full width, and rotation of its queries. */
import type { RunOptions } from '../../../kernels/options.js';
import type { Buffer } from '../../gpu/index.js';
import { reindexes } from '../../eviction/policy.js';
import { anchoredIn } from '../../schedule/configuration.js';
import { branchWidth, readsLatents } from '../../schedule/eviction-ops.js';
import type { Place, Visit } from '../../schedule/expand.js';
import { meanRow } from '../../schedule/rows.js';
import { loopGateTensor, type CodecAxis } from '../tensors.js';
import { plan, type Executor, type Executors } from './dense.js';
import { placed, type Dispatch, type Machine, type Vectors } from './machine.js';
import { rotate } from './rows.js';
import { readsFirstRows, RECENT, rebuiltRows, type DecodeStep } from './step.js';

/** Where an operation's tokens are. `second`: pinned tokens are scored by a second set of queries. */
export function runOf(m: DecodeStep, visit: Visit, second = false): RunOptions {
  const { op } = visit;
  const { capacity, pinned } = m.tokensOf(visit) === 'recent' ? m.caches.recentSlots : m.caches.slots;
  return {
    capacity,
    pinned,
    ...(op.division ? { division: op.division } : {}),
    spans: Array.from({ length: m.partOf(visit).count }, () => m.longestOf(visit)),
    ...(second && pinned > 0 ? { pinnedQuery: true, queriesApart: m.batch * m.c.geometry.heads } : {}),
  };
}

/** StreamingLLM scores sinks by a second query where keys are cached rotated. */
export const secondQuery = (m: Machine, place: Place): boolean =>
  reindexes(m.c.eviction) && (!readsLatents(m.c, place.block) || branchWidth(m.c, place.block) > 0);

/** Attention over rows of full width: the cache's, or rebuilt ones. */
export const attendFullWidth: Executor<DecodeStep> = (m, visit) => {
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const part = m.partOf(visit);
  const rebuilt = readsLatents(m.c, place.block) && m.tokensOf(visit) === 'all';
  const rows = (axis: CodecAxis): Buffer => (rebuilt ? m.buffer(rebuiltRows(axis, part.index)) : m.cached(visit, axis));
  const planned = plan(m, visit, { run: runOf(m, visit, secondQuery(m, place)) });
  const buffers = {
    queries: m.queries(part, heads * headDim),
    keys: rows('key'),
    values: rows('value'),
    ...m.attends(visit, planned),
  };
  return { plan: planned, buffers };
};

/** Attention over rows that are rebuilt from those of the anchor's loop. */
export const attendAnchored: Executor<DecodeStep> = (m, visit) => {
  const { block, loop } = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const own = { residual: { loop: loop % anchoredIn(m.c, block) } };
  const planned = plan(m, visit, { ...own, run: runOf(m, visit) });
  const buffers = {
    queries: m.queries(m.partOf(visit), heads * headDim),
    keys: m.cached(visit, 'key'),
    values: m.cached(visit, 'value'),
    ...m.attends(visit, planned),
  };
  return { plan: planned, buffers };
};

/** The current token's keys and values: of the first loop where attention reads its rows. */
function currentRows(m: DecodeStep, visit: Visit): { rows: Buffer; keys: Vectors; values: Vectors } {
  const { block, layer, loop } = placed(visit);
  if (loop === 0 || !readsFirstRows(m.c, block) || m.tokensOf(visit) !== 'all')
    return { rows: m.buffer('query key value'), keys: m.packed.keys, values: m.packed.values };
  const stride = meanRow(m.c);
  return {
    rows: m.buffer(`first rows ${layer}`),
    keys: { offset: 0, stride },
    values: { offset: stride / 2, stride },
  };
}

/** The merge of an attention's splits, with the current token's key and value where they are of full width. */
const mergeInto =
  (output: string, stats: string): Executor<DecodeStep> =>
  (m, visit) => {
    const { heads, headDim } = m.c.geometry;
    const { first } = m.partOf(visit);
    const own = ({ offset, stride }: Vectors): Vectors => ({ offset: offset + first * stride, stride });
    const { rows, keys, values } = currentRows(m, visit);
    const queries: Vectors = { offset: 0, stride: heads * headDim };
    const vectors =
      visit.op.variant === 'current' ? { queries: own(queries), keys: own(keys), values: own(values) } : {};
    const planned = plan(m, visit, { current: { heads, group: m.group, ...vectors, firstRow: first * heads } });
    return {
      plan: planned,
      buffers: {
        partials: m.partials(planned),
        output: m.buffer(output),
        stats: m.buffer(stats),
        queries: m.buffer('queries'),
        newKeys: rows,
        newValues: rows,
      },
    };
  };

const merge: Executor<DecodeStep> = (m, visit) => {
  const current = visit.op.variant === 'current';
  const stats = current || m.tokensOf(visit) === 'all' ? 'stats' : 'older stats';
  return mergeInto(current ? 'attention' : 'merged', stats)(m, visit);
};

/** The first loop's keys and values of the current token, which later loops attend to as well. */
const firstRows: Executor<DecodeStep> = (m, visit) => {
  const { rows: input, at } = m.projected('key');
  const output = { offset: 0, stride: meanRow(m.c) };
  const target = m.buffer(`first rows ${placed(visit).layer}`);
  return { plan: plan(m, visit, { factor: 1, placement: { input: at, output } }), buffers: { input, target } };
};

/** A gate of each head, of its rotated query. */
const loopGate: Executor<DecodeStep> = async (m, visit) => {
  const { heads, headDim } = m.c.geometry;
  const matmul = { x: { row: heads * headDim, group: headDim }, y: { row: heads, group: 1 } };
  const weights = await m.weights.loopGate(placed(visit).stored);
  return {
    plan: plan(m, visit, { matmul }),
    buffers: { x: m.buffer('queries'), weights, y: m.buffer('loop gates') },
  };
};

/** Attention over the first loop's rows and that over the window, mixed by the gate. */
const loopMix: Executor<DecodeStep> = async (m, visit) => {
  const { heads } = m.c.geometry;
  const name = loopGateTensor(placed(visit).stored, 'bias');
  return {
    plan: plan(m, visit, { current: { heads, group: m.group } }),
    buffers: {
      gates: m.buffer('loop gates'),
      bias: await m.weights.vector(name, 'weights', () => m.weights.read(name)),
      other: m.buffer('window attention'),
      target: m.buffer('attention'),
    },
  };
};

/** Rotates queries (to where attention reads them) and new keys (in place). */
const rope: Executor<DecodeStep> = (m, visit) => ropeQueries(m, visit, 0);

/** The second set of queries: at the place of the current token inside the cache. */
export const ropeSinks: Executor<DecodeStep> = (m, visit) => ropeQueries(m, visit, 1);

function ropeQueries(m: DecodeStep, visit: Visit, set: 0 | 1): Dispatch {
  const { heads, headDim } = m.c.geometry;
  const data = { rows: m.buffer('query key value'), at: m.packed.queries };
  const target = { offset: set * m.batch * heads * headDim, stride: heads * headDim };
  return rotate(m, visit, data, headDim, { target, targetHeads: heads }, m.positionsOf(set));
}

export const ATTENTION_EXECUTORS: Executors<DecodeStep> = {
  merge,
  rope,
  [RECENT]: attendFullWidth,
  'first-rows': firstRows,
  'attend-window': attendFullWidth,
  'merge-window': mergeInto('window attention', 'window stats'),
  'loop-gate': loopGate,
  'loop-mix': loopMix,
};
