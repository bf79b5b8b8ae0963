/**
 * H2O in chunks: the cached prefix is loaded before a chunk's own rows, so that attention, scores and eviction treat
 * both alike. Each pass loads it in the form that attention reads; where the run's rows are stored beside the cache,
 * one pass also loads it in stored form. Its H2O scores are loaded once. A piece is at most a chunk long.
 */
import { AXES, branchHeadsOf, kvHeadsOf, latentsOf, op, rankOf, type Op } from '../configuration.js';
import { owningTime } from '../dense.js';
import { branchKeyTime, branchWidth, evictingRows, readsLatents } from '../eviction-ops.js';
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
import { massTime, weighs } from './h2o.js';
import { keepOp, loadLatents, loadOp, loadRows, reconstructOps } from './rows.js';
import { appendOp, ropeOp } from '../rows.js';

/** Loads the cached prefix that a chunk attends to. Tokens are numbered among the rows of the run. */
export function prefixOps(p: Pass): Op[] {
  const { c, block, run, batch } = p;
  const held = cachedBefore(c, run);
  if (held === 0) return [];
  // Numbers of the ring's tokens follow those of the pinned ones.
  const { pinned, ring } = cachedRuns(p);
  const runs = [...pinned, ...ring.map(({ from, tokens }) => ({ from: from - run.from + held, tokens }))];
  // H2O scores lie as a cached row of one component does; each evicting row is a call.
  const masses = (weighs(p) ? runs : []).map(({ from, tokens }) => ({
    ...op(
      'load-mass-held',
      'load',
      'f32',
      { rows: batch * tokens, heads: 1, width: 1, groupSize: 0 },
      massTime(c, block),
      evictingRows(c, block),
    ),
    from,
  }));
  const most = pinned.reduce((sum, { tokens }) => sum + tokens, 0);
  const pieces = runs.flatMap((own) => chunksOf(own, p.chunkTokens));
  return [...masses, ...pieces.flatMap((piece) => pieceOps(p, piece, piece.from < most))];
}

function pieceOps(p: Pass, { from, tokens }: Chunk, pinned: boolean): Op[] {
  const { c, block, batch } = p;
  const rows = batch * tokens;
  const latents = readsLatents(c, block);
  const branch = branchWidth(c, block);
  const owning = owningTime(c, block);
  const store = (name: string, heads: number, width: number): Op[] =>
    weighs(p) && (setsRowsAside(c) || storesRun(c))
      ? [
          appendOp(
            c,
            `stash-${name}-held`,
            rows,
            heads,
            width,
            setsRowsAside(c) || owning === 'always' ? joiningTime(c, block) : owning,
          ),
        ]
      : [];
  const { headDim, rope } = c.geometry;
  const rotated = pinned
    ? op('rope-kept', 'rope_kept', rope.pairing, { rows, heads: kvHeadsOf(c), headDim })
    : ropeOp(c, 'rope-k-held', rows, kvHeadsOf(c));
  const ops = [
    ...AXES.flatMap((axis): Op[] =>
      latents
        ? [
            named(loadLatents(c, axis, rows)),
            ...store(axis, latentsOf(c), rankOf(c, axis)),
            ...reconstructOps(c, axis, rows).map(named),
          ]
        : [{ ...named(loadRows(c, axis, rows)), when: owning }, ...store(axis, kvHeadsOf(c), headDim)],
    ),
    ...(branch > 0
      ? [
          loadOp(c, 'load-branch-held', rows, branchHeadsOf(c), branch, branchKeyTime(c)),
          ...store('branch', branchHeadsOf(c), branch),
        ]
      : []),
    ...(latents && branch === 0 ? [rotated] : []),
    ...AXES.map((axis) => keepOp(p, `keep-${axis}-held`, rows, owning)),
  ];
  return ops.map((o) => ({ ...o, from }));
}

const named = (o: Op): Op => ({ ...o, label: `${o.label}-held` });
