/** H2O where a prompt is taken in whole: the mass that its tokens gather, and which of them stay. */
import type { KernelCall } from '../../kernels/registry.js';
import { storageOfVariant } from '../../kernels/spec.js';
import { cacheBytes, capacityOf, rowLayout, TILE_TOKENS } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { f32, read, u32, write, type BufferPlan, type OperationPlan, type Step } from '../plan.js';
import { dimensions, requirePositive, requireVariant } from '../shape.js';
import { storeConstants, storeUniforms } from './append.js';
import { capacityOfRow, layoutsOf, type EvictedCache } from './evict.js';
import { readUnit, rowUniforms, threadsOfRow, unitsEach } from './fold.js';
import {
  LANES,
  MOST_BRANCH,
  MOST_VECS,
  MOST_WIDE,
  MOST_WORKGROUPS,
  rowsAt,
  wholeQuads,
  WORKGROUP,
  type PrefillOptions,
} from './prefill.js';
import { tuned, type Tuning } from './tuning.js';

/** Vec4 registers that a thread may spend on its keys before they are shared by more threads. */
const HELD = 16;
const EVICT_WORKGROUP = 256;

export interface MassPrefillOptions extends Pick<PrefillOptions, 'capacity' | 'firstSequence' | 'queries' | 'branch'> {
  /** Floats of a row of masses: the call's tokens unless given. */
  readonly room?: number;
  /** Tokens of the chunk have no mass yet; so it is unless given. */
  readonly begins?: boolean;
}

/**
 * Buffers: queries, keys, statistics, mass; branchQueries and branchKeys with a branch. The scale is (key width)^-½.
 */
export function planMassPrefill(call: KernelCall, options: MassPrefillOptions = {}, tuning?: Tuning): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'sequences', 'kvHeads', 'rows', 'group', 'queries', 'context', 'keyWidth');
  requirePositive(call, s, 'context');
  const { branch, firstSequence = 0, begins = true } = options;
  const keyWidth = s.keyWidth - (branch?.width ?? 0);
  const tokens = s.context + s.queries;
  const capacity = capacityOf(options.capacity ?? tokens);
  const room = options.room ?? tokens;
  requireShape(
    keyWidth > 0,
    `mass_prefill: a branch of ${branch?.width ?? 0} leaves nothing of a key of ${s.keyWidth}`,
  );
  requireShape(
    branch === undefined || branch.heads === 1 || branch.heads === s.kvHeads,
    `mass_prefill: a branch has 1 key or one a KV head (${s.kvHeads}), not ${branch?.heads ?? 0}`,
  );
  requireShape(
    s.kvHeads % s.rows === 0,
    `mass_prefill: ${s.kvHeads} KV heads are not pooled evenly into ${s.rows} rows`,
  );
  requireShape(
    tokens <= capacity && tokens <= room,
    `mass_prefill: ${tokens} tokens do not fit ${capacity} slots and ${room} masses`,
  );
  const storage = storageOfVariant(call.variant);
  const keys = rowLayout(storage, keyWidth);
  const unitVecs = readUnit(keys) / 4;
  const wide = tuned(
    tuning,
    'wide',
    Math.min(MOST_WIDE, threadsOfRow(unitsEach(keys, 1), Math.max(1, Math.floor(HELD / (LANES * unitVecs))))),
  );
  const workgroup = Math.max(wide, tuned(tuning, 'workgroup', WORKGROUP));
  const branchEach = branch ? Math.ceil(branch.width / wide) : 0;
  requireShape(
    LANES * unitsEach(keys, wide) * unitVecs <= MOST_VECS && branchEach <= MOST_BRANCH,
    `mass_prefill: ${LANES} rows of ${keyWidth} want more than ${MOST_VECS} registers`,
  );
  const groups = Math.ceil(tokens / (LANES * (workgroup / wide)));
  requireShape(groups <= MOST_WORKGROUPS, `mass_prefill: ${tokens} tokens are more than ${MOST_WORKGROUPS} workgroups`);
  const heads = s.kvHeads * s.group;
  const queries = s.sequences * s.queries;
  const queriesAt = options.queries ?? { offset: 0, stride: heads * keyWidth };
  const branchTokens = branch?.tokens ?? tokens;
  const vectors = [queriesAt.offset, queriesAt.stride, keyWidth].every((floats) => floats % 4 === 0);
  return {
    buffers: [
      rowsAt('queries', 'input', queries, heads * keyWidth, queriesAt),
      {
        name: 'keys',
        role: 'stream',
        content: storage === 'f32' ? 'f32' : 'f16',
        bytes: wholeQuads(cacheBytes(keys, capacity, (firstSequence + s.sequences) * s.kvHeads)),
      },
      { name: 'statistics', role: 'input', content: 'f32', positive: true, bytes: queries * heads * 8 },
      { name: 'mass', role: 'state', content: 'f32', positive: true, bytes: s.sequences * s.rows * room * 4 },
      ...(branch
        ? [
            rowsAt('branchQueries', 'input', queries, (heads - 1) * branch.queries.head + branch.width, branch.queries),
            {
              name: 'branchKeys',
              role: 'input',
              content: 'f32',
              bytes: s.sequences * branchTokens * branch.heads * branch.width * 4,
            } as const,
          ]
        : []),
    ],
    steps: [
      {
        source: 'mass_prefill',
        element: storage,
        constants: {
          WG: workgroup,
          WIDE: wide,
          KEY_EACH: unitsEach(keys, wide),
          BRANCH_EACH: branchEach,
          VECTORS: vectors ? 1 : 0,
          EDGES: keyWidth % readUnit(keys) === 0 ? 0 : 1,
        },
        uniforms: [
          ...rowUniforms(keys),
          ...[
            capacity / TILE_TOKENS,
            firstSequence * s.kvHeads,
            s.kvHeads,
            s.group,
            s.kvHeads / s.rows,
            s.queries,
            s.context,
            keyWidth,
          ].map(u32),
          f32(s.keyWidth ** -0.5 * Math.LOG2E),
          ...[queriesAt.offset, queriesAt.stride].map(u32),
          ...[
            branch?.width ?? 0,
            branch?.heads ?? 1,
            branch?.queries.offset ?? 0,
            branch?.queries.stride ?? 0,
            branch?.queries.head ?? 0,
            branchTokens,
            room,
            begins ? 1 : 0,
            1,
          ].map(u32),
        ],
        buffers: [
          ...read('queries', 'keys', 'statistics'),
          ...write('mass'),
          ...read(branch ? 'branchQueries' : 'queries', branch ? 'branchKeys' : 'queries', 'queries'),
        ],
        workgroups: [groups, s.rows, s.sequences],
      },
    ],
    tuning: { workgroup, wide },
  };
}

export interface EvictPrefillOptions {
  /**
   * Slots before the ring, of which `heavy` are filled at most: half of those that stay, and all of them, unless given.
   */
  readonly pinned?: number;
  readonly heavy?: number;
  /** Slots of the ring: as many as stay beside the heavy ones unless given. */
  readonly ring?: number;
  /** Slots of a cached row: pinned and ring unless given. */
  readonly capacity?: number;
  /** Evicting rows before the first in mass, positions and caches; 0 unless given. */
  readonly firstRow?: number;
  /** Floats of a row of the run's masses, and slots of a row of the run; its tokens unless given. */
  readonly room?: number;
  readonly runCapacity?: number;
  /** A key cache and a value cache of half the width each unless given. */
  readonly caches?: readonly EvictedCache[];
}

/**
 * Buffers: runMass [row][token], mass and positions [row][slot], the caches by name, and the run's rows as `run` and
 * that name.
 */
export function planEvictPrefill(call: KernelCall, options: EvictPrefillOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'context', 'kept', 'width', 'groupSize');
  requirePositive(call, s, 'groupSize');
  const choice = choiceOf(call, s, options);
  const { room, capacity, pinned, ring, heavy, firstRow } = choice;
  const choose: Step = {
    source: 'evict_prefill',
    element: 'f32',
    constants: { WG: EVICT_WORKGROUP },
    uniforms: [s.context, room, capacity, pinned, ring, heavy, firstRow].map(u32),
    buffers: [...read('runMass'), ...write('mass', 'positions')],
    workgroups: [s.rows, 1, 1],
  };
  return {
    buffers: choice.buffers,
    steps: [choose, ...choice.copies('positions')],
    tuning: { workgroup: EVICT_WORKGROUP },
  };
}

export interface EvictChunkOptions extends EvictPrefillOptions {
  /** Position of the chunk's first token: as many as are held unless given. */
  readonly position?: number;
}

/** Buffers: those of evict_prefill, and sources [row][slot] (scratch). */
export function planEvictChunk(call: KernelCall, options: EvictChunkOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'held', 'context', 'kept', 'width', 'groupSize');
  requirePositive(call, s, 'groupSize');
  const choice = choiceOf(call, s, options);
  const { room, capacity, pinned, ring, heavy, firstRow } = choice;
  const { position = s.held } = options;
  const pinnedHeld = Math.max(0, s.held - ring);
  requireShape(
    s.held < s.context && s.held <= position,
    `evict_chunk: ${s.held} of ${s.context} tokens cannot be held before position ${position}`,
  );
  requireShape(
    pinnedHeld <= heavy,
    `evict_chunk: ${s.held} held tokens are more than ${heavy} pinned ones and a ring of ${ring}`,
  );
  const choose: Step = {
    source: 'evict_chunk',
    element: 'f32',
    constants: { WG: EVICT_WORKGROUP },
    uniforms: [s.held, pinnedHeld, s.context, position, room, capacity, pinned, ring, heavy, firstRow].map(u32),
    buffers: [...read('runMass'), ...write('mass', 'positions', 'sources')],
    workgroups: [s.rows, 1, 1],
  };
  const sources: BufferPlan = {
    name: 'sources',
    role: 'scratch',
    content: 'u32',
    bytes: (firstRow + s.rows) * capacity * 4,
  };
  return {
    buffers: [...choice.buffers, sources],
    steps: [choose, ...choice.copies('sources')],
    tuning: { workgroup: EVICT_WORKGROUP },
  };
}

/**
 * Slots of a cache whose tokens are chosen anew, its buffers with those of the run, and the copies of the rows that a
 * table of tokens [row][slot] names.
 */
function choiceOf(
  call: KernelCall,
  s: Readonly<Record<'rows' | 'context' | 'kept' | 'width' | 'groupSize', number>>,
  options: EvictPrefillOptions,
) {
  const { kernel } = call;
  const { pinned = Math.floor(s.kept / 2), firstRow = 0, room = s.context } = options;
  const { heavy = pinned, ring = s.kept - pinned } = options;
  const capacity = capacityOfRow(call, { heavy, pinned, ring, capacity: options.capacity });
  const runCapacity = capacityOf(options.runCapacity ?? s.context);
  requireShape(
    s.context <= room && s.context <= runCapacity,
    `${kernel}: ${s.context} tokens do not fit ${room} masses and ${runCapacity} slots`,
  );
  const ringTokens = Math.min(ring, s.context);
  const pinnedTokens = Math.min(heavy, s.context - ringTokens);
  requireShape(
    pinnedTokens + ringTokens === s.kept,
    `${kernel}: of ${s.context} tokens ${pinnedTokens + ringTokens} stay, not ${s.kept}`,
  );
  const caches = layoutsOf(call, s, options.caches);
  const rows = firstRow + s.rows;
  const buffers: BufferPlan[] = [
    { name: 'runMass', role: 'input', content: 'f32', positive: true, bytes: s.rows * room * 4 },
    { name: 'mass', role: 'state', content: 'f32', positive: true, bytes: rows * capacity * 4 },
    { name: 'positions', role: 'state', content: 'u32', bytes: rows * capacity * 4, below: 2 ** 31 },
    ...caches.flatMap((c): BufferPlan[] => [
      {
        name: runOf(c.name),
        role: 'stream',
        content: c.content,
        bytes: cacheBytes(c.layout, runCapacity, s.rows * c.rows),
      },
      { name: c.name, role: 'state', content: c.content, bytes: cacheBytes(c.layout, capacity, rows * c.rows) },
    ]),
  ];
  const copies = (table: string): Step[] =>
    caches.map((c) => ({
      source: 'evict_gather',
      element: 'f32',
      constants: storeConstants(c.layout),
      uniforms: [
        ...storeUniforms(c.layout),
        ...[c.rows, runCapacity, capacity, pinned, pinnedTokens, ringTokens, firstRow, 0].map(u32),
      ],
      buffers: [...read(table, runOf(c.name)), ...write(c.name)],
      workgroups: [capacity / TILE_TOKENS, s.rows * c.rows, 1],
    }));
  return { room, capacity, pinned, ring, heavy, firstRow, buffers, copies };
}

/** The buffer of the run's rows that a cache takes its own from. */
export const runOf = (cache: string): string => `run ${cache}`;
