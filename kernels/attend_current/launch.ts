/** The current token's exact key and value: attend_current.wgsl. */
import type { Placement as Vectors } from '../placement.js';
import { f32, oneStep, type BufferPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { tuned, type Launch } from '../launch.js';
import { ALONE, WORKGROUP, currentOperands, rowGrid } from '../shared/attention/current.launch.js';
import { contentWidth } from '../shared/attention/prefill.launch.js';

/**
 * Buffers: output (o in, y out), stats (m, l; in and out), valueMeans, queries, newKeys, newValues; keyMeans for
 * `absorbed`; branchQueries, branchKeys with a branch, which is part of the shape's key width.
 */
const plan: Launch['plan'] = (call, { current: options = ALONE, tuning }) => {
  const s = shapeOf<'attend_current'>(call);
  const absorbed = call.variant === 'absorbed';
  const { branch } = options;
  const kvHeads = options.heads / options.group;
  const content = contentWidth(call, s.keyWidth, kvHeads, branch);
  const workgroup = tuned(tuning, 'workgroup', WORKGROUP);
  const current = currentOperands(call.kernel, {
    ...options,
    scale: options.scale ?? s.keyWidth ** -0.5,
    rows: s.rows,
    keyWidth: content,
    valueWidth: s.valueWidth,
  });
  const sequences = s.rows / options.heads;
  const keyMeans: BufferPlan[] = absorbed ? [f32('keyMeans', 'input', kvHeads * content)] : [];
  const reach = (name: string, at: Vectors, width: number): BufferPlan =>
    f32(name, 'input', at.offset + (sequences - 1) * at.stride + width);
  const branches = branch
    ? [
        reach('branchQueries', branch.queries, (options.heads - 1) * branch.queries.head + branch.width),
        reach('branchKeys', branch.keys, branch.heads * branch.width),
      ]
    : [];
  return oneStep({
    buffers: [
      f32('output', 'state', s.rows * s.valueWidth),
      f32('stats', 'state', 2 * s.rows, { positive: true }),
      f32('valueMeans', 'input', kvHeads * s.valueWidth),
      ...current.buffers,
      ...keyMeans,
      ...branches,
    ],
    source: 'attend_current',
    constants: { WG: workgroup, ABSORBED: absorbed ? 1 : 0 },
    uniforms: {
      current: current.uniforms,
      branch_width: branch?.width ?? 0,
      branch_heads: branch?.heads ?? 1,
      branch_query: branch?.queries.offset ?? 0,
      branch_query_stride: branch?.queries.stride ?? 0,
      branch_query_head: branch?.queries.head ?? 0,
      branch_key: branch?.keys.offset ?? 0,
      branch_key_stride: branch?.keys.stride ?? 0,
    },
    binds: [
      'output',
      'stats',
      'valueMeans',
      'queries',
      'newKeys',
      'newValues',
      absorbed ? 'keyMeans' : 'valueMeans',
      branch ? 'branchQueries' : 'queries',
      branch ? 'branchKeys' : 'newKeys',
    ],
    workgroups: rowGrid(s.rows),
    tuning: { workgroup },
  });
};

export const launch: Launch = { plan };
