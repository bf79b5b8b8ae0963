/** Host side of the split-KV attention kernels: see attend_rows.wgsl. */
import type { RunOptions, Span } from '../../attention-options.js';
import type { Tuning } from '../../options.js';
import { capacityOf, rowLayout, streamed, type RowLayout } from '../../host/cache-layout.js';
import { requireShape } from '../../host/errors.js';
import { f32, u32, type BufferPlan, type Uniforms } from '../../host/plan.js';
import { divide } from './splits.js';
import { tuned, type Tunable } from '../../launch.js';
import type { KernelCall } from '../../registry.js';
import { storageOfVariant, type Storage, TILE_TOKENS } from '../../spec.js';
import { DEFAULT_WORKGROUP, lanesOf, readUnit, unitsOf, wideOf } from './fold.terms.js';

/**
 * Positions of pinned tokens, [sequence, or sequence and KV head][slot], as eviction keeps them; 16 bytes that are not
 * read where none are pinned.
 */
export const pinnedPositions = (rows: number, slots: number, pinned: number, below: number): BufferPlan =>
  u32('positions', 'input', pinned === 0 ? 4 : rows * slots, { below });

interface FoldShape {
  readonly sequences: number;
  readonly kvHeads: number;
  readonly group: number;
  readonly context: number;
  readonly splits: number;
  readonly groupSize: number;
  readonly keyWidth: number;
  readonly valueWidth: number;
  /** Rotary key scalars beside the key, and whether the heads of a sequence share them. */
  readonly branchWidth?: number;
  readonly branchShared?: boolean;
  /** Rows of a sequence's cache where that is not one a KV head: 1 if all heads share. */
  readonly latentHeads?: number;
}

/** The struct `CachedRow` of cache_layout.wgsl. */
export function rowUniforms(layout: RowLayout): Uniforms {
  const words = layout.units * layout.planes;
  return {
    quads: layout.quadWords / 4,
    rest: words - layout.quadWords,
    tail: layout.tail,
    tile_words: layout.tileWords,
    units: unitsOf(layout),
    tails_at: layout.tailsAt,
    scales_at: layout.scalesAt,
    group_size: layout.groupSize,
  };
}

/** How a kernel's threads are laid out; see the `override` constants of attend_rows.wgsl. */
export interface Launch {
  readonly workgroup: number;
  readonly lanes: number;
  readonly wide: number;
  readonly stream: number;
}

/** What kernels of rows that are read as they are stored try. */
export const FOLD_TUNABLES: readonly Tunable[] = [
  { name: 'workgroup', values: [64, 128, 256] },
  { name: 'wide', values: [2, 4, 8] },
  { name: 'stream', values: [8, 32] },
];

interface Fold {
  readonly storage: Storage;
  readonly keys: RowLayout;
  readonly values: RowLayout;
  readonly branch: RowLayout | null;
  /** Cached rows, and slots of each. */
  readonly rows: number;
  readonly capacity: number;
  readonly laneGroups: number;
  readonly launch: Launch;
  readonly buffers: Record<'keys' | 'values' | 'partials' | 'spans' | 'scores', BufferPlan>;
  constants(more?: Readonly<Record<string, number>>): Record<string, number>;
  /**
   * The uniform block `Params`. `scale` multiplies q · k; softmax is computed in base 2. `own`: of one kernel alone.
   */
  uniforms(scale: number, own?: Partial<typeof OF_SOME_KERNELS>): Uniforms;
  readonly workgroups: readonly [number, number, number];
}

/** Members of `Params` that only some of the kernels read. */
const OF_SOME_KERNELS = { blocks: 0, head_pairs: 0, adjacent_pairs: 0, positions_by_head: 0 };

/** The cached tokens of each sequence: a run's own spans, or `context` tokens as a ring. */
export const spansOf = (
  { spans, firstPosition = 0 }: RunOptions,
  sequences: number,
  context: number,
): readonly Span[] => spans ?? Array.from({ length: sequences }, () => ({ pinned: 0, firstPosition, ring: context }));

/** The table of spans, 16 bytes a sequence. */
export const spansBuffer = (spans: readonly Span[]): BufferPlan =>
  u32('spans', 'table', 4 * spans.length, {
    data: () => Uint32Array.from(spans.flatMap((s) => [s.pinned, s.firstPosition, s.ring, 0])),
  });

/**
 * The slots of each row: pinned ones, and a ring.
 * @throws GpuError for spans that do not fit
 */
export function slotsOf(
  { kernel }: KernelCall,
  run: RunOptions,
  { sequences, context }: Pick<FoldShape, 'sequences' | 'context'>,
): { spans: readonly Span[]; pinned: number; ring: number; capacity: number } {
  const { pinned = 0 } = run;
  const spans = spansOf(run, sequences, context);
  requireShape(spans.length === sequences, `${kernel}: ${spans.length} spans for ${sequences} sequences`);
  const capacity = capacityOf(run.capacity ?? pinned + spans.reduce((most, s) => Math.max(most, s.ring), 1));
  const ring = capacity - pinned;
  for (const s of spans)
    requireShape(
      s.pinned <= pinned && s.ring <= ring,
      `${kernel}: ${s.pinned} pinned and ${s.ring} further tokens do not fit ${pinned} and ${ring} slots`,
    );
  return { spans, pinned, ring, capacity };
}

/** Latents are those of each KV head, or one that all of them share. */
export const requireLatentHeads = (
  { kernel }: KernelCall,
  { latentHeads, kvHeads }: Readonly<Record<'latentHeads' | 'kvHeads', number>>,
): void =>
  requireShape(
    latentHeads === 1 || latentHeads === kvHeads,
    `${kernel}: latentHeads must be 1 or kvHeads (${kvHeads}), not ${latentHeads}`,
  );

/** Threads that read neighbouring rows: a subgroup of a software adapter; wider subgroups read several such runs. */
const DEFAULT_STREAM = 8;

/** Size of the kernels' arrays of sums. */
const MOST_SUMS = 192;

/**
 * Lays out an attention call over cached rows.
 * @param unit tokens that a split is a multiple of
 * @throws GpuError for spans that do not fit
 */
export function foldOf(
  call: KernelCall,
  shape: FoldShape,
  run: RunOptions,
  tuning: Tuning | undefined,
  fixed: { unit?: number; launch?: Partial<Launch> } = {},
): Fold {
  const storage = storageOfVariant(call.variant);
  const scores = call.variant.endsWith('+scores');
  const keys = rowLayout(storage, shape.keyWidth, shape.groupSize || undefined);
  const values = rowLayout(storage, shape.valueWidth, shape.groupSize || undefined);
  const branch = shape.branchWidth ? rowLayout(storage, shape.branchWidth, shape.groupSize || undefined) : null;
  const { spans, pinned, ring, capacity } = slotsOf(call, run, shape);
  const unit = fixed.unit ?? TILE_TOKENS;
  const latentRows = shape.latentHeads === 1 && shape.kvHeads > 1 ? shape.sequences : shape.sequences * shape.kvHeads;
  const queries = shape.sequences * shape.kvHeads * shape.group;

  const mostPinned = run.only === 'ring' ? 0 : spans.reduce((most, s) => Math.max(most, s.pinned), 0);
  const mostRing = run.only === 'pinned' ? 0 : spans.reduce((most, s) => Math.max(most, s.ring), 0);
  const division = run.division ?? divide({ pinned: mostPinned, ring: mostRing }, shape.splits, unit);
  const { tokens: length, pinnedSplits, splits: ownSplits, first: firstSplit, all: splits } = division;
  requireShape(
    firstSplit + ownSplits <= splits,
    `${call.kernel}: splits ${firstSplit} to ${firstSplit + ownSplits} of ${splits}`,
  );
  requireShape(
    pinnedSplits * length >= mostPinned && (ownSplits - pinnedSplits) * length >= mostRing && length % unit === 0,
    `${call.kernel}: ${pinnedSplits} and ${ownSplits - pinnedSplits} splits of ${length} tokens do not hold ` +
      `${mostPinned} and ${mostRing}`,
  );

  const perUnit = readUnit(values) / 4;
  const lanes = fixed.launch?.lanes ?? tuned(tuning, 'lanes', lanesOf(storage, shape));
  const wide = fixed.launch?.wide ?? tuned(tuning, 'wide', wideOf(storage, shape, lanes));
  const stream = Math.max(wide, fixed.launch?.stream ?? tuned(tuning, 'stream', DEFAULT_STREAM));
  const workgroup = Math.max(stream, fixed.launch?.workgroup ?? tuned(tuning, 'workgroup', DEFAULT_WORKGROUP));
  const valueEach = Math.ceil(unitsOf(values) / wide);
  const laneGroups = Math.ceil(shape.group / lanes);
  requireShape(
    lanes * valueEach * perUnit <= MOST_SUMS,
    `${call.kernel}: ${lanes} lanes of ${valueEach} units want more than ${MOST_SUMS} registers`,
  );
  const rowsRead = [keys, values, ...(branch ? [branch] : [])];
  const whole = (l: RowLayout): boolean => l.width % readUnit(l) === 0 && unitsOf(l) % wide === 0;
  const edges = rowsRead.every(whole) ? 0 : 1;
  return {
    storage,
    keys,
    values,
    branch,
    rows: latentRows,
    capacity,
    laneGroups,
    launch: { workgroup, lanes, wide, stream },
    buffers: {
      keys: streamed('keys', keys, capacity, latentRows),
      values: streamed('values', values, capacity, latentRows),
      partials: f32('partials', 'output', queries * splits * (shape.valueWidth + 2)),
      spans: spansBuffer(spans),
      scores: f32('scores', 'output', scores ? queries * capacity : 4),
    },
    constants: (more = {}) => ({
      WG: workgroup,
      LANES: lanes,
      WIDE: wide,
      STREAM: stream,
      VALUE_EACH: valueEach,
      SCRATCH: workgroup * readUnit(values),
      SCORES: scores ? 1 : 0,
      EDGES: edges,
      ...more,
    }),
    uniforms: (scale, own = {}) => ({
      pinned,
      ring,
      split_tokens: length,
      pinned_splits: pinnedSplits,
      first_split: firstSplit,
      splits,
      scale: scale * Math.LOG2E,
      once: 1,
      row_shared: shape.latentHeads === 1 && shape.kvHeads > 1 ? 1 : 0,
      group: shape.group,
      lane_groups: laneGroups,
      value_width: shape.valueWidth,
      branch_shared: shape.branchShared ? 1 : 0,
      query_sets: run.pinnedQuery ? (run.queriesApart ?? queries) : 0,
      key_width: shape.keyWidth,
      branch_width: shape.branchWidth ?? 0,
      ...OF_SOME_KERNELS,
      keys: rowUniforms(keys),
      values: rowUniforms(values),
      branch: rowUniforms(branch ?? keys),
      ...own,
    }),
    workgroups: [ownSplits, shape.kvHeads * laneGroups, shape.sequences],
  };
}
