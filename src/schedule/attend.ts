/** Attention of a step over rows of full width, or with an anchor (others: latents.ts, streams.ts); the merge. */
import type { Division } from '../../kernels/attention-options.js';
import { laterWindowOf } from '../codecs/registry.js';
import { segmentsOf, weighsTokens, type Segments } from '../eviction/policy.js';
import type { LayerBlock } from '../geometry/geometry.js';
import type { KernelName } from '../../kernels/registry.js';
import type { Placement } from '../../kernels/placement.js';
import { divide, splitCount } from '../../kernels/shared/attention/splits.js';
import { groupOf, type Shape, type Storage } from '../../kernels/spec.js';
import { placed, type BufferRef } from './bind/refs.js';
import type { StepFrame } from './bind/step.js';
import { readsFirstRows, type CachedTokens } from './buffers.js';
import { anchoredIn, type Configuration, type Part, type Visit } from './configuration.js';
import { alone, norm, normedRows, normOf, product } from './dense.js';
import { anchoredRow, meanRow } from './facts.js';
import { inEachPart, op, perHead, project, withMore, type Bind, type Op } from './op.js';
import { accumulate } from './rows.js';

/** One layer of a block, with the heads of one GPU. */
export interface Layer {
  readonly c: Configuration;
  readonly block: LayerBlock;
  readonly batch: number;
  readonly context: number;
  /** Sequences whose caches one binding holds, and how often. */
  readonly parts: readonly Part[];
  readonly heads: number;
  readonly kvHeads: number;
  /** Query heads that share a KV head. */
  readonly group: number;
  readonly storage: Storage;
  /** Attention reads latents, or K and V rebuilt from them. */
  readonly latent: boolean;
  readonly absorbed: boolean;
  /** Which cached tokens attention reads, unless it reads a window alone. */
  readonly reads: CachedTokens;
  /** StreamingLLM scores sinks by a second query, where keys are cached rotated. */
  readonly second: boolean;
  /** Each row joins the cache before the next one attends. */
  readonly inTurn: boolean;
}

/** Tokens that one kernel attends to, in units of `unit`; those of one row write splits of the same partials. */
export interface Segment {
  readonly label: string;
  readonly kernel: KernelName;
  /** That of the rows, with `+scores` where they are kept, unless given. */
  readonly variant?: string;
  readonly tokens: Segments;
  readonly unit?: number;
  readonly shape: Shape;
  readonly binds: Bind;
}

/** How segments are merged. */
export interface Merge {
  readonly label?: string;
  /** Rows of a sequence that are divided among workgroups, and width of the value rows. */
  readonly rowsEach: number;
  readonly width: number;
  /** Operations of block-absorbed attention before each part. */
  readonly setUp?: ((sequences: number) => readonly Op[]) | undefined;
  /** The current token's exact key and value are folded in. */
  readonly current?: true;
  readonly reads: CachedTokens;
  readonly output: string;
  readonly stats: string;
}

/** Attention and its merge, part by part. */
export function attendAndMerge(l: Layer, type: Storage, segments: readonly Segment[], of: Merge): Op[] {
  const { c, heads } = l;
  const usual = weighsTokens(c.eviction) ? `${type}+scores` : type;
  const keyWidth = of.current ? c.geometry.headDim : 0;
  const groupSize = groupOf(type, c.choice.groupSize);
  const binds = mergeBinds(l, of);
  return inEachPart(l.parts, (size) => {
    const divisions = segments.map(({ tokens, unit }) =>
      divide(tokens, splitCount(tokens.pinned + tokens.ring, size * of.rowsEach, c.targetWorkgroups), unit),
    );
    const all = divisions.reduce((sum, own) => sum + own.splits, 0);
    let first = 0;
    const attends = segments.map(({ label, kernel, variant = usual, tokens, shape: own, binds }, i): Op => {
      const division = withMore(divisions[i] as Division, { first, all });
      const { splits } = division;
      first += splits;
      const shape = withMore(own, { sequences: size, context: tokens.pinned + tokens.ring, groupSize, splits });
      return { label, kernel, variant, shape, when: 'always', repeat: 1, binds, division };
    });
    const shape = { rows: size * heads, splits: all, width: of.width, keyWidth };
    return [
      ...(of.setUp?.(size) ?? []),
      ...attends,
      op(of.label ?? 'merge', 'attend_merge', of.current ? 'current' : 'f32', shape, binds),
    ];
  });
}

/** The merge of an attention's splits, with the current token's key and value where they are of full width. */
const mergeBinds =
  ({ c, block, heads, group }: Layer, { current, reads, output, stats }: Merge): Bind =>
  (f: StepFrame, visit: Visit) => {
    const { first } = f.partOf(visit);
    const own = ({ offset, stride }: Placement): Placement => ({ offset: offset + first * stride, stride });
    const { layer, loop } = placed(visit);
    // The current token's rows: of the first loop where attention reads its rows.
    const before = loop > 0 && readsFirstRows(c, block) && reads === 'all';
    const rows: BufferRef = before ? f.buffer('first rows', layer) : f.buffer('query key value');
    const stride = meanRow(c);
    const { keys, values } = before
      ? { keys: { offset: 0, stride }, values: { offset: stride / 2, stride } }
      : f.packed;
    const vectors = { queries: own({ offset: 0, stride: f.headWords }), keys: own(keys), values: own(values) };
    return {
      options: { current: { heads, group, ...(current ? vectors : {}), firstRow: first * heads } },
      binds: {
        partials: f.partials,
        output: f.buffer(output),
        stats: f.buffer(stats),
        queries: f.buffer('queries'),
        newKeys: rows,
        newValues: rows,
      },
    };
  };

/** What calls over rows of full width are shaped by. */
const fullShape = ({ c, kvHeads, group }: Layer): Shape => {
  const { headDim } = c.geometry;
  return { kvHeads, group, keyWidth: headDim, valueWidth: headDim, branchWidth: 0, branchHeads: 0 };
};

/** Attention over rows of full width (cached, rebuilt, or exact ones of the last tokens) and the current token. */
export function fullWidth(
  l: Layer,
  type: Storage,
  of: Partial<Pick<Merge, 'label' | 'reads' | 'output' | 'stats'>> & { readonly attend?: string } = {},
  tokens = segmentsOf(l.c.eviction, l.context),
): Op[] {
  const { attend = 'attend', label = 'merge', reads = l.reads, output = 'attention', stats = 'stats' } = of;
  const rebuilt = l.latent && reads !== 'recent';
  const binds: Bind = (f: StepFrame, visit: Visit) => ({
    options: { run: f.run(visit, reads, l.second) },
    binds: {
      queries: f.queries(visit),
      ...f.attends(visit, reads, 'key', 'value'),
      ...(rebuilt ? { keys: f.rebuiltRows('key', visit), values: f.rebuiltRows('value', visit) } : {}),
    },
  });
  const segment = { label: attend, kernel: 'attend', tokens, shape: fullShape(l), binds } as const;
  const width = l.c.geometry.headDim;
  return attendAndMerge(l, type, [segment], { label, rowsEach: l.kvHeads, width, current: true, reads, output, stats });
}

/** Attention over rows that are rebuilt from those of the anchor's loop: their own, or a loop's before it. */
export function anchoredLoops(l: Layer): Op[] {
  const { c, block, kvHeads, group, reads } = l;
  const together = anchoredIn(c, block);
  const binds: Bind = (f: StepFrame, visit: Visit) => ({
    options: { residual: { loop: placed(visit).loop % together }, run: f.run(visit, reads) },
    binds: { queries: f.queries(visit), ...f.attends(visit, reads, 'key', 'value') },
  });
  const tokens = segmentsOf(c.eviction, l.context);
  const shape = { kvHeads, group, ...anchoredRow(c) };
  const segment = { label: 'attend', kernel: 'attend_residual', tokens, shape, binds } as const;
  const width = c.geometry.headDim;
  const merge = { rowsEach: kvHeads, width, current: true, reads, output: 'attention', stats: 'stats' } as const;
  return attendAndMerge(l, 'f16', [segment], merge).flatMap((o): Op[] => {
    if (o.label !== 'attend') return [o];
    return [
      { ...o, variant: 'residual', when: 'residual-loops' },
      { ...o, variant: 'anchor', when: 'anchor-loop' },
    ];
  });
}

/** The first loop's key and value of the current token, which later loops attend to as well. */
export function firstRows({ c, block, batch }: Layer): Op[] {
  if (block.name !== 'core' || laterWindowOf(c.geometry, c.codec) === undefined) return [];
  const width = meanRow(c);
  const binds: Bind = (f, visit) =>
    accumulate(f.projected('key'), {
      rows: f.buffer('first rows', placed(visit).layer),
      at: { offset: 0, stride: width },
    });
  return [op('first-rows', 'accumulate', 'begin', { rows: batch, width }, binds, 'first-loop')];
}

/** Later loops' window: attention over it, a gate of each head (of its query, or the normed input), the mixture. */
export function laterWindow(l: Layer): Op[] {
  const { c, block, batch, heads, group, storage } = l;
  const window = laterWindowOf(c.geometry, c.codec);
  if (window === undefined || block.name !== 'core') return [];
  const { headDim: d, hidden, loopGateOfInput } = c.geometry;
  const gate: Bind = (f, visit) => ({
    options: { matmul: { x: { row: heads * d, group: d }, y: { row: heads, group: 1 } } },
    binds: {
      x: f.buffer('queries'),
      weights: { weights: 'loop-gate', stored: placed(visit).stored },
      y: f.buffer('loop gates'),
    },
  });
  const mix: Bind = (f, visit) => ({
    options: { current: { heads, group } },
    binds: {
      gates: f.buffer('loop gates'),
      bias: { weights: 'loop-gate-bias', stored: placed(visit).stored },
      other: f.buffer('window attention'),
      target: f.buffer('attention'),
    },
  });
  const tokens = { pinned: 0, ring: Math.min(Math.max(1, window - 1), l.context) };
  const into = { label: 'merge-window', output: 'window attention', stats: 'window stats' };
  const ofInput = product('loop-gate', normedRows, alone('loop gates', heads));
  return [
    ...fullWidth(l, storage, { attend: 'attend-window', reads: 'recent', ...into }, tokens),
    ...(loopGateOfInput
      ? [
          norm(c, 'loop-gate-norm', batch, normOf('loop_gate_norm')),
          ...project(c, 'loop-gate', batch, hidden, heads, ofInput),
        ]
      : [perHead('loop-gate', heads, batch, d, 1, gate)]),
    op('loop-mix', 'gate', 'mix', { rows: batch * heads, width: d }, mix),
  ].map((o) => ({ ...o, when: 'later-loops' }));
}
