/**
 * H2O in chunks: the cached prefix is loaded before a chunk's own rows, so that attention, scores and eviction treat
 * both alike. Each pass loads it in the form that attention reads; where the run's rows are stored beside the cache,
 * one pass also loads it in stored form. Its H2O scores are loaded once. A piece is at most a chunk long.
 */
import { countOf, fromOf, into, type PromptFrame } from '../bind/prompt.js';
import { AXES, kvHeadsOf, NAME, type Visit } from '../configuration.js';
import { branchKeyTime, branchWidth, evictingRows, owningTime, readsLatents } from '../facts.js';
import { op, withMore, type Bind, type Op } from '../op.js';
import { append, appendOp, ropeOp } from '../rows.js';
import { massOf, massTime, weighs } from './h2o.js';
import {
  chunksOf,
  cachedBefore,
  cachedRuns,
  joiningTime,
  setsRowsAside,
  storesRun,
  type Chunk,
  type Pass,
} from './pass.js';
import { cachedShape, keepOp, loadedTo, loadOp, reconstructOps, roleOf, slotHeld, type Cached } from './rows.js';

/** Loads the cached prefix that a chunk attends to. Tokens are numbered among the rows of the run. */
export function prefixOps(p: Pass): Op[] {
  const { c, block, run } = p;
  const held = cachedBefore(c, run);
  if (held === 0) return [];
  // Numbers of the ring's tokens follow those of the pinned ones.
  const { pinned, ring } = cachedRuns(p);
  const runs = [...pinned, ...ring.map(({ from, tokens }) => ({ from: from - run.from + held, tokens }))];
  // H2O scores lie as a cached row of one 32-bit component does; each evicting row is a call.
  const loadMass: Bind = (f: PromptFrame, visit: Visit) => ({
    options: {
      load: {
        capacity: f.caches.slots.capacity,
        chunk: countOf(visit),
        first: slotHeld(f, fromOf(visit)),
        firstSequence: f.firstEvicting(visit) + visit.part,
        output: { offset: visit.part * f.setting.rows + fromOf(visit), stride: 1 },
      },
    },
    binds: { cache: f.evicting('mass', visit), rows: massOf(f, visit) },
  });
  const [time, each] = [massTime(c, block), evictingRows(c, block)];
  const masses = (weighs(p) ? runs : []).map(({ from, tokens }) => {
    const shape = { rows: tokens, heads: 1, width: 1, groupSize: 0 };
    return { ...op('load-mass-held', 'load', 'f32', shape, loadMass, time), repeat: each, from };
  });
  const most = pinned.reduce((sum, { tokens }) => sum + tokens, 0);
  const pieces = runs.flatMap((own) => chunksOf(own, p.chunkTokens));
  return [...masses, ...pieces.flatMap((piece) => pieceOps(p, piece, piece.from < most))];
}

function pieceOps(p: Pass, { from, tokens: rows }: Chunk, pinned: boolean): Op[] {
  const { c, block } = p;
  const latents = readsLatents(c, block);
  const branch = branchWidth(c, block);
  const owning = owningTime(c, block);
  const stored = weighs(p) && (setsRowsAside(c) || storesRun(c));
  const storing = setsRowsAside(c) || owning === 'always' ? joiningTime(c, block) : owning;
  /** After the rows of earlier pieces, where the run's are stored beside the cache. */
  const store = (what: Cached): Op[] => {
    const binds: Bind = (f: PromptFrame, visit: Visit) => {
      const to = into(visit, { ...f.ownRows(roleOf(c, block, what), visit), first: 0 });
      return append(f, to, loadedTo(f, visit, what, 'held'));
    };
    const { heads, width } = cachedShape(c, block, what);
    return stored ? [appendOp(c, `stash-${NAME[what]}-held`, rows, heads, width, binds, storing)] : [];
  };
  const { headDim } = c.geometry;
  const turn: Bind = (f: PromptFrame, visit: Visit) =>
    f.rotate(visit, f.inPacked('keys'), headDim, { positionOffset: f.run.from - f.held + fromOf(visit) });
  const ops = [
    ...AXES.flatMap((axis): Op[] => [
      loadOp(p, axis, rows, latents ? 'always' : owning, 'held'),
      ...store(axis),
      ...(latents ? reconstructOps(c, axis, rows, 'held') : []),
    ]),
    ...(branch > 0
      ? [loadOp(p, 'rotary-key', rows, branchKeyTime(c), 'held'), ...store('rotary-key')]
      : latents
        ? [pinned ? ropePinned(p, rows) : ropeOp(c, 'rope-k-held', rows, kvHeadsOf(c), turn)]
        : []),
    ...AXES.map((axis) => keepOp(p, axis, rows, owning, 'held')),
  ];
  return ops.map((o) => withMore(o, { from }));
}

/** Rotation of pinned keys by the positions that their tokens have. */
function ropePinned({ c, block }: Pass, rows: number): Op {
  const { headDim, rope } = c.geometry;
  const [heads, pooled] = [kvHeadsOf(c), kvHeadsOf(c) / evictingRows(c, block)];
  const binds: Bind = (f: PromptFrame, visit: Visit) => {
    const { rows: data, at } = f.projected('key');
    const own = { firstRow: f.firstEvicting(visit), first: fromOf(visit), capacity: f.caches.slots.capacity };
    return {
      options: { ...f.rotary, ropeKept: { data: at, pooled, ...own } },
      binds: {
        positions: f.evicting('positions', visit),
        turns: f.buffer(`rotary table ${headDim}`),
        data,
      },
    };
  };
  return op('rope-kept', 'rope_kept', rope.pairing, { rows, heads, headDim }, binds);
}
