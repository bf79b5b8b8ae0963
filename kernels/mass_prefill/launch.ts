/** H2O: the mass of a prompt's tokens: mass_prefill.wgsl. */
import { capacityOf, rowLayout, streamed } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { tuned, type Launch } from '../launch.js';
import { rowUniforms } from '../shared/attention/fold.launch.js';
import { readUnit, unitsEach } from '../shared/attention/fold.terms.js';
import {
  branchUniforms,
  contentWidth,
  LANES,
  MOST_BRANCH,
  MOST_VECS,
  MOST_WORKGROUPS,
  WORKGROUP,
  rowsAt,
  wideOf,
} from '../shared/attention/prefill.launch.js';
import { storageOfVariant, TILE_TOKENS } from '../spec.js';

/**
 * Buffers: queries, keys, statistics, mass; branchQueries and branchKeys with a branch. The scale is (key width)^-½.
 */
const plan: Launch['plan'] = (call, { massPrefill: options = {}, tuning }) => {
  const s = shapeOf<'mass_prefill'>(call, 'context');
  const { branch, firstSequence = 0, begins = true } = options;
  const keyWidth = contentWidth(call, s.keyWidth, s.kvHeads, branch);
  const tokens = s.context + s.queries;
  const capacity = capacityOf(options.capacity ?? tokens);
  const room = options.room ?? tokens;
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
  const wide = tuned(tuning, 'wide', wideOf(keys));
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
  return oneStep({
    buffers: [
      rowsAt('queries', 'input', queries, heads * keyWidth, queriesAt),
      streamed('keys', keys, capacity, (firstSequence + s.sequences) * s.kvHeads),
      f32('statistics', 'input', 2 * queries * heads, { positive: true }),
      f32('mass', 'state', s.sequences * s.rows * room, { positive: true }),
      ...(branch
        ? [
            rowsAt('branchQueries', 'input', queries, (heads - 1) * branch.queries.head + branch.width, branch.queries),
            f32('branchKeys', 'input', s.sequences * branchTokens * branch.heads * branch.width),
          ]
        : []),
    ],
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
    uniforms: {
      keys: rowUniforms(keys),
      tiles: capacity / TILE_TOKENS,
      first_row: firstSequence * s.kvHeads,
      kv_heads: s.kvHeads,
      group: s.group,
      pooled: s.kvHeads / s.rows,
      queries: s.queries,
      context: s.context,
      key_width: keyWidth,
      scale: s.keyWidth ** -0.5 * Math.LOG2E,
      query_offset: queriesAt.offset,
      query_row: queriesAt.stride,
      ...branchUniforms(branch, branchTokens),
      mass_row: room,
      begins: begins ? 1 : 0,
      once: 1,
    },
    binds: [
      'queries',
      'keys',
      'statistics',
      'mass',
      branch ? 'branchQueries' : 'queries',
      branch ? 'branchKeys' : 'queries',
      'queries',
    ],
    workgroups: [groups, s.rows, s.sequences],
    tuning: { workgroup, wide },
  });
};

export const launch: Launch = { plan };
