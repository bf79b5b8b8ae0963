/** What only prefill does: attention of a chunk of tokens, causal or in several calls, and reading cached rows back. */
import type { KernelCall } from '../../kernels/registry.js';
import { isQuantised, storageOfVariant } from '../../kernels/spec.js';
import { cacheBytes, capacityOf, rowLayout, type RowLayout } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { f32, read, u32, write, type BufferPlan, type OperationPlan } from '../plan.js';
import { dimensions, requirePositive, requireVariant } from '../shape.js';
import { readUnit, rowUniforms, threadsOfRow, unitsEach } from './fold.js';
import { tuned, type Tuning } from './tuning.js';
import type { Placement } from './elementwise.js';

/** Tokens of a sequence before the chunk, and of the chunk. */
export interface ChunkSpan {
  readonly before: number;
  readonly tokens: number;
}

/** A rotary branch beside the keys: part of the shape's key width. */
export interface PrefillBranch {
  readonly width: number;
  /** Keys of a token: one a KV head, or 1 for all. */
  readonly heads: number;
  /** Where the queries of a token lie; `head`: floats from one to the next. */
  readonly queries: Placement & { readonly head: number };
  /** Tokens of a sequence that the buffer of keys has room for; those of the call unless given. */
  readonly tokens?: number;
}

export interface PrefillOptions {
  /**
   * One for each sequence; the shape's context and queries unless given. Where attention is carried on, all its rows
   * are `before`.
   */
  readonly spans?: readonly ChunkSpan[];
  /** Slot of the first row; 0 unless given. For attention that is carried on. */
  readonly first?: number;
  /** What calls before have attended to is carried on; unless given it is, but where a chunk attends to itself. */
  readonly carried?: boolean;
  /** Slots of a row, rounded up to whole tiles; those of the call unless given. */
  readonly capacity?: number;
  /** Sequences that lie before the call's first in the rows. */
  readonly firstSequence?: number;
  /** Side by side unless given. */
  readonly queries?: Placement;
  readonly output?: Placement;
  readonly branch?: PrefillBranch;
}

export const WORKGROUP = 64;
/**
 * Query rows of a thread (LANES of the kernel), vec4 registers for each kind of their parts, and components of a
 * branch.
 */
export const LANES = 4;
export const MOST_VECS = 192;
export const MOST_BRANCH = 64;
/** Vec4 registers that a thread may spend on its sums before a row is shared by more threads. */
const SUMS = 16;
export const MOST_WIDE = 8;
export const MOST_WORKGROUPS = 65535;

export const rowsAt = (
  name: string,
  role: BufferPlan['role'],
  rows: number,
  width: number,
  at: Placement,
): BufferPlan => {
  requireShape(at.stride >= width || rows === 1, `${name} of ${width} floats overlap at a stride of ${at.stride}`);
  return { name, role, content: 'f32', bytes: (at.offset + (rows - 1) * at.stride + width) * 4 };
};
export const wholeQuads = (bytes: number): number => Math.ceil(bytes / 16) * 16;

/**
 * Buffers: queries, keys, values, output, spans; branchQueries and branchKeys with a branch. The scale is (key
 * width)^-½.
 */
export function planAttendPrefill(call: KernelCall, options: PrefillOptions = {}, tuning?: Tuning): OperationPlan {
  requireShape(
    options.first === undefined && options.carried === undefined,
    'attend_prefill: rows begin at slot 0, and nothing is carried',
  );
  return planChunk(call, options, tuning, { own: true, carries: false, carried: false });
}

/** True where rows of the chunk itself are among those attended to. */
export const attendsToItself = ({ variant }: KernelCall): boolean => variant.endsWith('+own');

/**
 * Buffers: those of attend_prefill, of which `output` is read as well where attention is carried on, and statistics.
 */
export function planAttendCarried(call: KernelCall, options: PrefillOptions = {}, tuning?: Tuning): OperationPlan {
  const own = attendsToItself(call);
  return planChunk(call, options, tuning, { own, carries: true, carried: options.carried ?? !own });
}

/**
 * @param of whether rows of the chunk itself are among those attended to, and whether statistics are written for the
 * next call and read
 */
function planChunk(
  call: KernelCall,
  options: PrefillOptions,
  tuning: Tuning | undefined,
  of: { own: boolean; carries: boolean; carried: boolean },
): OperationPlan {
  const { kernel } = call;
  requireVariant(call);
  const s = dimensions(call, 'sequences', 'kvHeads', 'group', 'queries', 'context', 'keyWidth', 'valueWidth');
  const { groupSize } = of.carries ? dimensions(call, 'groupSize') : { groupSize: 0 };
  requirePositive(call, s, ...(of.own ? ['context'] : []));
  const { branch, firstSequence = 0, first = 0 } = options;
  const keyWidth = s.keyWidth - (branch?.width ?? 0);
  requireShape(keyWidth > 0, `${kernel}: a branch of ${branch?.width ?? 0} leaves nothing of a key of ${s.keyWidth}`);
  requireShape(
    branch === undefined || branch.heads === 1 || branch.heads === s.kvHeads,
    `${kernel}: a branch has 1 key or one a KV head (${s.kvHeads}), not ${branch?.heads ?? 0}`,
  );
  const spans = options.spans ?? Array.from({ length: s.sequences }, () => ({ before: s.context, tokens: s.queries }));
  requireShape(spans.length === s.sequences, `${kernel}: ${spans.length} spans for ${s.sequences} sequences`);
  for (const { before, tokens } of spans)
    requireShape(
      before <= s.context && tokens <= s.queries,
      `${kernel}: a span of ${before} and ${tokens} tokens exceeds ${s.context} and ${s.queries}`,
    );
  const reach = s.context + (of.own ? s.queries : 0);
  const capacity = capacityOf(options.capacity ?? first + reach);
  requireShape(
    first + reach <= capacity,
    `${kernel}: ${reach} tokens from slot ${first} on do not fit ${capacity} slots`,
  );
  const storage = storageOfVariant(call.variant);
  const [keys, values] = [
    rowLayout(storage, keyWidth, groupSize || undefined),
    rowLayout(storage, s.valueWidth, groupSize || undefined),
  ];
  const vecs = (layout: RowLayout, wide: number): number => (LANES * unitsEach(layout, wide) * readUnit(layout)) / 4;
  const widest = keys.width > values.width ? keys : values;
  const wide = tuned(
    tuning,
    'wide',
    Math.min(
      MOST_WIDE,
      threadsOfRow(unitsEach(widest, 1), Math.max(1, Math.floor((4 * SUMS) / (LANES * readUnit(widest))))),
    ),
  );
  const workgroup = Math.max(wide, tuned(tuning, 'workgroup', WORKGROUP));
  const branchEach = branch ? Math.ceil(branch.width / wide) : 0;
  requireShape(
    Math.max(vecs(keys, wide), vecs(values, wide)) <= MOST_VECS && branchEach <= MOST_BRANCH,
    `${kernel}: ${LANES} rows of ${keyWidth} and ${s.valueWidth} want more than ${MOST_VECS} registers`,
  );
  const rowsEach = LANES * (workgroup / wide);
  const groups = Math.ceil((s.queries * s.group) / rowsEach);
  requireShape(
    groups <= MOST_WORKGROUPS,
    `${kernel}: ${s.queries} tokens of ${s.group} heads are more than ${MOST_WORKGROUPS} workgroups`,
  );
  const heads = s.kvHeads * s.group;
  const tokens = s.sequences * s.queries;
  const queriesAt = options.queries ?? { offset: 0, stride: heads * keyWidth };
  const outputAt = options.output ?? { offset: 0, stride: heads * s.valueWidth };
  const whole = (layout: RowLayout): boolean => layout.width % readUnit(layout) === 0;
  const content = storage === 'f32' ? 'f32' : 'f16';
  const stored = (layout: RowLayout): number =>
    wholeQuads(cacheBytes(layout, capacity, (firstSequence + s.sequences) * s.kvHeads));
  const branchTokens = branch?.tokens ?? reach;
  const edges = whole(keys) && whole(values) ? 0 : 1;
  return {
    buffers: [
      rowsAt('queries', 'input', tokens, heads * keyWidth, queriesAt),
      { name: 'keys', role: 'stream', content, bytes: stored(keys) },
      { name: 'values', role: 'stream', content, bytes: stored(values) },
      rowsAt('output', of.carried ? 'state' : 'output', tokens, heads * s.valueWidth, outputAt),
      {
        name: 'spans',
        role: 'table',
        content: 'u32',
        bytes: s.sequences * 8,
        data: () => Uint32Array.from(spans.flatMap((span) => [span.before, span.tokens])),
      },
      ...(branch
        ? [
            rowsAt('branchQueries', 'input', tokens, (heads - 1) * branch.queries.head + branch.width, branch.queries),
            {
              name: 'branchKeys',
              role: 'input',
              content: 'f32',
              bytes: s.sequences * branchTokens * branch.heads * branch.width * 4,
            } as const,
          ]
        : []),
      ...(of.carries
        ? [
            {
              name: 'statistics',
              role: of.carried ? 'state' : 'output',
              content: 'f32',
              positive: true,
              bytes: tokens * heads * 8,
            } as const,
          ]
        : []),
    ],
    steps: [
      {
        source: kernel,
        element: storage,
        constants: {
          WG: workgroup,
          WIDE: wide,
          KEY_EACH: unitsEach(keys, wide),
          VALUE_EACH: unitsEach(values, wide),
          BRANCH_EACH: branchEach,
          EDGES: edges,
          ...(of.carries ? { OWN: of.own ? 1 : 0, CARRIED: of.carried ? 1 : 0 } : {}),
        },
        uniforms: [
          ...rowUniforms(keys),
          ...rowUniforms(values),
          ...[capacity / 32, firstSequence * s.kvHeads, s.kvHeads, s.group, s.queries, keyWidth, s.valueWidth].map(u32),
          f32(s.keyWidth ** -0.5 * Math.LOG2E),
          ...[queriesAt.offset, queriesAt.stride, outputAt.offset, outputAt.stride].map(u32),
          ...[
            branch?.width ?? 0,
            branch?.heads ?? 1,
            branch?.queries.offset ?? 0,
            branch?.queries.stride ?? 0,
            branch?.queries.head ?? 0,
            branchTokens,
            1,
            first,
          ].map(u32),
        ],
        buffers: [
          ...read('queries', 'keys', 'values'),
          ...write('output'),
          ...read('spans', branch ? 'branchQueries' : 'queries', branch ? 'branchKeys' : 'queries'),
          ...(of.carries ? write('statistics') : []),
        ],
        workgroups: [groups, s.kvHeads, s.sequences],
      },
    ],
    tuning: { workgroup, wide },
  };
}

export interface LoadOptions {
  /** Slots of a row, rounded up to whole tiles; those of the call unless given. */
  readonly capacity?: number;
  /** Tokens of each sequence: `rows` is sequences × chunk. All rows are of one sequence unless given. */
  readonly chunk?: number;
  /** Slot of the first token, and sequences before the first in the cache; 0 unless given. */
  readonly first?: number;
  readonly firstSequence?: number;
  /** Where the rows go; side by side unless given. */
  readonly output?: Placement;
}

/** Buffers: cache, rows. */
export function planLoad(call: KernelCall, options: LoadOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'heads', 'width', 'groupSize');
  requirePositive(call, s, 'groupSize');
  const { chunk = s.rows, first = 0, firstSequence = 0 } = options;
  requireShape(s.rows % chunk === 0, `load: ${s.rows} rows are not whole chunks of ${chunk} tokens`);
  const sequences = s.rows / chunk;
  const capacity = capacityOf(options.capacity ?? first + chunk);
  requireShape(first + chunk <= capacity, `load: ${first + chunk} tokens do not fit ${capacity} slots`);
  const layout = rowLayout(storageOfVariant(call.variant), s.width, s.groupSize || undefined);
  const output = options.output ?? { offset: 0, stride: s.heads * s.width };
  const units = unitsEach(layout, 1);
  const groups = Math.ceil((chunk * units) / WORKGROUP);
  requireShape(
    groups <= MOST_WORKGROUPS,
    `load: ${chunk} tokens of ${s.width} are more than ${MOST_WORKGROUPS} workgroups`,
  );
  return {
    buffers: [
      {
        name: 'cache',
        role: 'stream',
        content: isQuantised(layout.storage) || call.variant === 'f16' ? 'f16' : 'f32',
        bytes: wholeQuads(cacheBytes(layout, capacity, (firstSequence + sequences) * s.heads)),
      },
      rowsAt('rows', 'output', s.rows, s.heads * s.width, output),
    ],
    steps: [
      {
        source: 'load',
        element: layout.storage,
        constants: { EDGES: s.width % readUnit(layout) === 0 ? 0 : 1 },
        uniforms: [
          ...rowUniforms(layout),
          ...[s.width, capacity / 32, firstSequence * s.heads, first, chunk, output.offset, output.stride, 0].map(u32),
        ],
        buffers: [...read('cache'), ...write('rows')],
        workgroups: [groups, s.heads, sequences],
      },
    ],
    tuning: { workgroup: WORKGROUP },
  };
}
