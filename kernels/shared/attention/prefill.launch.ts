/** Attention of a chunk of prompt tokens, in one call or carried from call to call. */
import type { Placement } from '../../placement.js';
import type { PrefillBranch, PrefillOptions } from '../../attention-options.js';
import type { Tuning } from '../../options.js';
import { capacityOf, rowLayout, streamed, type RowLayout } from '../../host/cache-layout.js';
import { requireShape } from '../../host/errors.js';
import { f32, oneStep, u32, type BufferPlan, type OperationPlan, type Uniforms } from '../../host/plan.js';
import { shapeOf } from '../../host/shape.js';
import { tuned } from '../../launch.js';
import type { KernelCall } from '../../registry.js';
import { storageOfVariant, TILE_TOKENS } from '../../spec.js';
import { rowUniforms } from './fold.launch.js';
import { MOST_WIDE, readUnit, threadsOfRow, unitsEach } from './fold.terms.js';

export const WORKGROUP = 64;

/**
 * Query rows of a thread (LANES of the kernel), vec4 registers for each kind of their parts, and components of a
 * branch.
 */
export const LANES = 4;

export const MOST_VECS = 192;

export const MOST_BRANCH = 64;

/** Vec4 registers that a thread may spend on its sums, or on its keys, before a row is shared by more threads. */
const HELD = 16;

/** Threads that share such a row unless tuned. */
export const wideOf = (row: RowLayout): number =>
  Math.min(MOST_WIDE, threadsOfRow(unitsEach(row, 1), Math.max(1, Math.floor((4 * HELD) / (LANES * readUnit(row))))));

export const MOST_WORKGROUPS = 65535;

export const rowsAt = (
  name: string,
  role: BufferPlan['role'],
  rows: number,
  width: number,
  at: Placement,
): BufferPlan => {
  requireShape(at.stride >= width || rows === 1, `${name} of ${width} floats overlap at a stride of ${at.stride}`);
  return f32(name, role, at.offset + (rows - 1) * at.stride + width);
};

/**
 * Width of a key without the branch that is part of it.
 * @throws GpuError for a branch that leaves nothing, or does not go with the heads
 */
export function contentWidth(
  { kernel }: KernelCall,
  keyWidth: number,
  kvHeads: number,
  branch: { readonly width: number; readonly heads: number } | undefined,
): number {
  const { width, heads } = branch ?? { width: 0, heads: 1 };
  requireShape(keyWidth > width, `${kernel}: a branch of ${width} leaves nothing of a key of ${keyWidth}`);
  requireShape(
    heads === 1 || heads === kvHeads,
    `${kernel}: a branch has 1 key or one a KV head (${kvHeads}), not ${heads}`,
  );
  return keyWidth - width;
}

/** Where a rotary branch lies; without one it has no width. `tokens`: branch keys of a sequence. */
export const branchUniforms = (branch: PrefillBranch | undefined, tokens: number): Uniforms => ({
  branch_width: branch?.width ?? 0,
  branch_heads: branch?.heads ?? 1,
  branch_offset: branch?.queries.offset ?? 0,
  branch_row: branch?.queries.stride ?? 0,
  branch_head: branch?.queries.head ?? 0,
  branch_tokens: tokens,
});

/**
 * @param of whether rows of the chunk itself are among those attended to, and whether statistics are written for the
 * next call and read
 */
export function planChunk(
  call: KernelCall,
  options: PrefillOptions,
  tuning: Tuning | undefined,
  of: { own: boolean; carries: boolean; carried: boolean },
): OperationPlan {
  const { kernel } = call;
  // Attention in one call reads exact rows: its shape has no group size.
  const s = shapeOf<'attend_carried'>(call, 'groupSize', ...(of.own ? (['context'] as const) : []));
  const { branch, firstSequence = 0, first = 0 } = options;
  const keyWidth = contentWidth(call, s.keyWidth, s.kvHeads, branch);
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
  const keys = rowLayout(storage, keyWidth, s.groupSize || undefined);
  const values = rowLayout(storage, s.valueWidth, s.groupSize || undefined);
  const vecs = (layout: RowLayout, wide: number): number => (LANES * unitsEach(layout, wide) * readUnit(layout)) / 4;
  const wide = tuned(tuning, 'wide', wideOf(keys.width > values.width ? keys : values));
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
  const cachedRows = (firstSequence + s.sequences) * s.kvHeads;
  const branchTokens = branch?.tokens ?? reach;
  const edges = whole(keys) && whole(values) ? 0 : 1;
  return oneStep({
    buffers: [
      rowsAt('queries', 'input', tokens, heads * keyWidth, queriesAt),
      streamed('keys', keys, capacity, cachedRows),
      streamed('values', values, capacity, cachedRows),
      rowsAt('output', of.carried ? 'state' : 'output', tokens, heads * s.valueWidth, outputAt),
      u32('spans', 'table', 2 * s.sequences, {
        data: () => Uint32Array.from(spans.flatMap((span) => [span.before, span.tokens])),
      }),
      ...(branch
        ? [
            rowsAt('branchQueries', 'input', tokens, (heads - 1) * branch.queries.head + branch.width, branch.queries),
            f32('branchKeys', 'input', s.sequences * branchTokens * branch.heads * branch.width),
          ]
        : []),
      ...(of.carries
        ? [f32('statistics', of.carried ? 'state' : 'output', 2 * tokens * heads, { positive: true })]
        : []),
    ],
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
    uniforms: {
      keys: rowUniforms(keys),
      values: rowUniforms(values),
      tiles: capacity / TILE_TOKENS,
      first_row: firstSequence * s.kvHeads,
      kv_heads: s.kvHeads,
      group: s.group,
      queries: s.queries,
      key_width: keyWidth,
      value_width: s.valueWidth,
      scale: s.keyWidth ** -0.5 * Math.LOG2E,
      query_offset: queriesAt.offset,
      query_row: queriesAt.stride,
      output_offset: outputAt.offset,
      output_row: outputAt.stride,
      ...branchUniforms(branch, branchTokens),
      once: 1,
      ...(of.carries ? { first } : {}),
    },
    binds: [
      'queries',
      'keys',
      'values',
      'output',
      'spans',
      branch ? 'branchQueries' : 'queries',
      branch ? 'branchKeys' : 'queries',
      ...(of.carries ? ['statistics'] : []),
    ],
    workgroups: [groups, s.kvHeads, s.sequences],
    tuning: { workgroup, wide },
  });
}
