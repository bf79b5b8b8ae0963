/**
 * Attention of a step: over rows of full width, latents, rows with an anchor and packed rows, and the merge of splits.
 */
import type { Streams } from '../codecs/codec.js';
import type { Division } from '../../kernels/attention-options.js';
import { pathSpec } from '../codecs/paths.js';
import { laterWindowOf } from '../codecs/registry.js';
import { reindexes, segmentsOf, weighsTokens, type Segments } from '../eviction/policy.js';
import type { LayerBlock } from '../geometry/geometry.js';
import { blockPlan } from '../../kernels/shared/block/block-absorbed.js';
import {
  anchoredIn,
  branchHeadsOf,
  groupSizeOf,
  latentsOf,
  op,
  perHead,
  project,
  type Configuration,
  type Op,
} from './configuration.js';
import { latentQueryRope, latentsByLoop, type LoopLatents } from './hybrid.js';
import { branchWidth, windowOf, type Parts } from './eviction-ops.js';
import { groupOf, type Shape, type Storage } from '../../kernels/spec.js';
import type { KernelName } from '../../kernels/registry.js';
import { anchoredRow, meanRow } from './rows.js';
import { divide, splitCount } from '../../kernels/shared/attention/splits.js';
import { chooseKeysOps, joinChosenOp, streamLoops, streamsIn } from './streams.js';

/** One layer of a block, with the heads of one GPU. */
export interface Layer {
  readonly c: Configuration;
  readonly block: LayerBlock;
  readonly batch: number;
  readonly context: number;
  /** Sequences whose caches one binding holds, and how often. */
  readonly parts: Parts;
  readonly heads: number;
  readonly kvHeads: number;
  /** Query heads that share a KV head. */
  readonly group: number;
  readonly storage: Storage;
  /** Attention reads latents, or K and V rebuilt from them. */
  readonly latent: boolean;
  readonly absorbed: boolean;
  /** Each row joins the cache before the next one attends. */
  readonly inTurn: boolean;
}

/**
 * A product of every query head with its KV head's matrix. Rows of several sequences do not lie at one stride: there
 * every head is a group of its own.
 */
const perQueryHead = ({ batch, heads, kvHeads, group }: Layer, label: string, k: number, n: number): Op =>
  batch === 1 ? perHead(label, kvHeads, group, k, n) : perHead(label, heads, batch, k, n);

/** Attention over the cached tokens, the merge of its splits, and the current token. */
export function attentionOps(l: Layer): Op[] {
  const { c, batch, heads, kvHeads, group, storage } = l;
  const d = c.geometry.headDim;
  if (anchoredIn(c, l.block) > 1) return anchoredLoops(l);
  const streams = streamsIn(c, l.block);
  if (streams) return packedLoops(l, streams);
  if (!l.latent) return [...fullWidth(l, storage), ...laterWindow(l)];
  const { rankK = 0, rankV = 0 } = c.codec;
  const latentHeads = latentsOf(c);
  const all = segmentsOf(c.eviction, l.context);
  const window = Math.min(windowOf(c, l.block), all.ring);
  const kept = { ...all, ring: all.ring - window };
  const n = kept.pinned + kept.ring;
  const recent = window > 0 ? recentOps(l, window) : [];
  if (n === 0) return recent;
  if (c.materialised) {
    const rebuild = (label: string, flag: string, rank: number) =>
      l.parts.map(({ size, repeat }) =>
        op(
          label,
          'rebuild',
          `${storage}+${flag}`,
          {
            sequences: size,
            kvHeads,
            latentHeads,
            context: n,
            rank,
            headDim: d,
            groupSize: groupSizeOf(c),
          },
          'always',
          repeat,
        ),
      );
    return [...rebuild('rebuild-k', 'rope', rankK), ...rebuild('rebuild-v', 'plain', rankV), ...fullWidth(l, 'f16')];
  }
  const latent = { kvHeads, latentHeads, group, rankK, rankV, headDim: d };
  const branch = branchWidth(c, l.block);
  const join = [...recent, op('attend-join', 'attend_join', 'f32', { rows: batch * heads, width: d })];
  const valueUp = perQueryHead(l, 'value-up', rankV, d);
  const current = [
    op('attend-current', 'attend_current', l.absorbed ? 'absorbed' : 'f32', {
      rows: batch * heads,
      keyWidth: d + branch,
      valueWidth: d,
    }),
  ];
  const after = [valueUp, ...(window > 0 ? join : current)];
  const over = (segments: readonly Segment[], rowsEach: number, setUp?: SetUp) =>
    attendAndMerge(l, storage, segments, { rowsEach, width: rankV, ...(setUp ? { setUp } : {}) });
  if (pathSpec(c.path).rotated)
    return [...latentsByLoop(c).flatMap((ranks) => rotatedOps(l, kept, ranks)), ...(window > 0 ? join : current)];
  if (l.absorbed) {
    const shape = {
      kvHeads: latentHeads,
      group: heads / latentHeads,
      keyWidth: rankK,
      valueWidth: rankV,
      branchWidth: branch,
      branchHeads: branchHeadsOf(c),
    };
    return [
      perQueryHead(l, 'query-absorb', d, rankK),
      ...(reindexes(c.eviction) ? [perQueryHead(l, 'query-absorb-sinks', d, rankK)] : []),
      ...over([{ label: 'attend', kernel: 'attend', tokens: kept, shape }], latentHeads),
      ...after,
    ];
  }
  if (!pathSpec(c.path).blocks)
    return [...over([{ label: 'attend', kernel: 'attend_rebuild', tokens: kept, shape: latent }], kvHeads), ...after];
  // Blocks are runs of consecutive positions: the ring is one, the pinned tokens before it are not part of it.
  const { pinned, ring } = kept;
  const { blockTokens, functions, setupPerRank } = blockPlan(c.geometry.rope.theta, d);
  const segments: Segment[] = [
    {
      label: 'attend',
      kernel: 'attend_block_absorbed',
      tokens: { pinned: 0, ring },
      unit: blockTokens,
      shape: { ...latent, blockTokens, functions },
    },
    { label: 'attend-pinned', kernel: 'attend_rebuild', tokens: { pinned, ring: 0 }, shape: latent },
  ];
  const setUp: SetUp = (sequences, repeat) => [
    op(
      'block-vectors',
      'block_vectors',
      'f16',
      { heads: sequences * heads, kvHeads, rankK, headDim: d },
      'always',
      repeat,
    ),
    ...(ring > 0
      ? [
          op(
            'block-basis',
            'block_basis',
            'f32',
            { sequences, heads, context: ring, rankK, headDim: d, blockTokens, functions, setupPerRank },
            'always',
            repeat,
          ),
        ]
      : []),
  ];
  return [
    ...over(
      segments.filter(({ tokens }) => tokens.pinned + tokens.ring > 0),
      kvHeads,
      setUp,
    ),
    ...after,
  ];
}

/** Attention of the loops that read some latents: rotated queries on rotated keys, and values brought back to heads. */
function rotatedOps(l: Layer, tokens: Segments, { rankK, rankV, read }: LoopLatents): Op[] {
  const { c, batch, heads, storage } = l;
  const d = c.geometry.headDim;
  const shape = { kvHeads: 1, group: heads, keyWidth: rankK, valueWidth: rankV, branchWidth: 0, branchHeads: 0 };
  return [
    perQueryHead(l, 'query-absorb', d, rankK),
    latentQueryRope(c, batch, heads, rankK),
    ...attendAndMerge(l, storage, [{ label: 'attend', kernel: 'attend', tokens, shape }], {
      rowsEach: 1,
      width: rankV,
    }),
    perQueryHead(l, 'value-up', rankV, d),
  ].map((o) => ({ ...o, when: read }));
}

/** Tokens that one kernel attends to, in units of `unit`; those of one row write splits of the same partials. */
interface Segment {
  readonly label: string;
  readonly kernel: KernelName;
  readonly tokens: Segments;
  readonly unit?: number;
  readonly shape: Shape;
}

/** Operations of block-absorbed attention before each part. */
type SetUp = (sequences: number, repeat: number) => readonly Op[];

/** Attention over the exact rows of the last tokens, and the current token. */
function recentOps(l: Layer, tokens: number): Op[] {
  const { c, kvHeads, group, storage } = l;
  const d = c.geometry.headDim;
  const shape = { kvHeads, group, keyWidth: d, valueWidth: d, branchWidth: 0, branchHeads: 0 };
  return attendAndMerge(
    l,
    storage,
    [{ label: 'attend-recent', kernel: 'attend', tokens: { pinned: 0, ring: tokens }, shape }],
    { rowsEach: kvHeads, width: d, currentKey: d },
  );
}

/** Attention over rows of full width, with the current token folded in by the merge. */
function fullWidth(l: Layer, type: Storage): Op[] {
  const { c, kvHeads, group } = l;
  const d = c.geometry.headDim;
  const shape = { kvHeads, group, keyWidth: d, valueWidth: d, branchWidth: 0, branchHeads: 0 };
  return attendAndMerge(
    l,
    type,
    [{ label: 'attend', kernel: 'attend', tokens: segmentsOf(c.eviction, l.context), shape }],
    { rowsEach: kvHeads, width: d, currentKey: d },
  );
}

/** Attention over rows that are rebuilt from those of the anchor's loop: their own, or a loop's before it. */
function anchoredLoops(l: Layer): Op[] {
  const { c, kvHeads, group } = l;
  const d = c.geometry.headDim;
  const shape = { kvHeads, group, ...anchoredRow(c) };
  const tokens = segmentsOf(c.eviction, l.context);
  return attendAndMerge(l, 'f16', [{ label: 'attend', kernel: 'attend_residual', tokens, shape }], {
    rowsEach: kvHeads,
    width: d,
    currentKey: d,
  }).flatMap((o): Op[] =>
    o.label === 'attend'
      ? [
          { ...o, variant: 'residual', when: 'residual-loops' },
          { ...o, variant: 'anchor', when: 'anchor-loop' },
        ]
      : [o],
  );
}

/** Attention over streams of packed rows and the exact tail, loop by loop; loops after the second read chosen keys. */
const packedLoops = (l: Layer, streams: Streams): Op[] =>
  streamLoops(l.c, l.block, l.context).flatMap(({ when, all, chosen }): Op[] => {
    const { c, batch, heads, kvHeads, group } = l;
    const width = c.geometry.headDim;
    const over = (label: string, variant: string, { tokens, shape }: NonNullable<typeof all>, rowsEach: number) => {
      const segment: Segment = {
        label,
        kernel: 'attend_streams',
        tokens: { pinned: 0, ring: tokens },
        shape: { kvHeads, group, ...shape },
      };
      const folds = label === 'attend' ? { currentKey: width } : {};
      return attendAndMerge(l, 'f16', [segment], { rowsEach, width, ...folds }).map((o): Op =>
        o.label === label ? { ...o, variant } : label === 'attend' ? o : { ...o, label: 'merge-chosen' },
      );
    };
    return [
      ...(all ? over('attend', chosen ? 'all+scores' : 'all', all, kvHeads) : []),
      ...(all && chosen ? chooseKeysOps(c, streams, l.parts, l.context) : []),
      // Each head chooses its own keys.
      ...(chosen ? [...over('attend-chosen', 'chosen', chosen, heads), joinChosenOp(c, batch, all !== undefined)] : []),
    ].map((o) => ({ ...o, when }));
  });

/** The first loop's key and value of the current token, which later loops attend to as well. */
export const firstRows = ({ c, block, batch }: Layer): Op[] =>
  block.name === 'core' && laterWindowOf(c.geometry, c.codec) !== undefined
    ? [op('first-rows', 'accumulate', 'begin', { rows: batch, width: meanRow(c) }, 'first-loop')]
    : [];

/**
 * What loops after the first add where they attend to the rows of the first and to a window of their own, the current
 * token included: attention over the window, the gate of each head (a product of its query, or of the layer's normed
 * input), and the mixture.
 */
function laterWindow(l: Layer): Op[] {
  const { c, block, batch, heads, kvHeads, group, storage } = l;
  const window = laterWindowOf(c.geometry, c.codec);
  if (window === undefined || block.name !== 'core') return [];
  const d = c.geometry.headDim;
  const shape = { kvHeads, group, keyWidth: d, valueWidth: d, branchWidth: 0, branchHeads: 0 };
  const tokens = { pinned: 0, ring: Math.min(Math.max(1, window - 1), l.context) };
  return [
    ...attendAndMerge(l, storage, [{ label: 'attend-window', kernel: 'attend', tokens, shape }], {
      rowsEach: kvHeads,
      width: d,
      currentKey: d,
    }).map((o) => (o.label === 'merge' ? { ...o, label: 'merge-window' } : o)),
    ...(c.geometry.loopGateOfInput
      ? [
          op('loop-gate-norm', 'rmsnorm', 'norm', { rows: batch, width: c.geometry.hidden }),
          ...project(c, 'loop-gate', batch, c.geometry.hidden, heads),
        ]
      : [perHead('loop-gate', heads, batch, d, 1)]),
    op('loop-mix', 'gate', 'mix', { rows: batch * heads, width: d }),
  ].map((o) => ({ ...o, when: 'later-loops' }));
}

/**
 * Attention and its merge, part by part.
 * @param of `rowsEach`: rows of a sequence that are divided among workgroups; `width`: of the value rows; `setUp`:
 *   operations before each part; `currentKey`: given where the merge folds in the current token's exact key and value
 */
function attendAndMerge(
  l: Layer,
  type: Storage,
  segments: readonly Segment[],
  of: { rowsEach: number; width: number; currentKey?: number; setUp?: SetUp },
): Op[] {
  const { c, heads } = l;
  const variant = weighsTokens(c.eviction) ? `${type}+scores` : type;
  return l.parts.flatMap(({ size, repeat }) => {
    const divisions = segments.map(({ tokens, unit }) =>
      divide(tokens, splitCount(tokens.pinned + tokens.ring, size * of.rowsEach, c.targetWorkgroups), unit),
    );
    const all = divisions.reduce((sum, own) => sum + own.splits, 0);
    let first = 0;
    const attends = segments.map(({ label, kernel, tokens, shape }, i): Op => {
      const division = { ...(divisions[i] as Division), first, all };
      first += division.splits;
      const context = tokens.pinned + tokens.ring;
      const { splits } = division;
      return {
        label,
        kernel,
        variant,
        shape: { ...shape, sequences: size, context, groupSize: groupOf(type, c.choice.groupSize), splits },
        when: 'always',
        repeat,
        division,
      };
    });
    const current = of.currentKey !== undefined;
    return [
      ...(of.setUp?.(size, repeat) ?? []),
      ...attends,
      op(
        'merge',
        'attend_merge',
        current ? 'current' : 'f32',
        { rows: size * heads, splits: all, width: of.width, keyWidth: of.currentKey ?? 0 },
        'always',
        repeat,
      ),
    ];
  });
}
