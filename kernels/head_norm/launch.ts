/** Norms of the heads of queries and keys: head_norm.wgsl. */
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, tuned, type Launch } from '../launch.js';
import { rowGrid, rowsOf } from '../shared/dense/rows.launch.js';

/** Heads are narrow. */
const WORKGROUP = 32;

/** Buffers: weight, target. `eps` as in the model's configuration. */
const plan: Launch['plan'] = (call, { eps = DEFAULTS.eps, placement: { output } = {}, tuning }) => {
  const s = shapeOf<'head_norm'>(call);
  const count = s.rows * s.heads;
  const to = rowsOf(call, 'target', 'state', s.rows, s.heads * s.headDim, output);
  const workgroup = tuned(tuning, 'workgroup', WORKGROUP);
  return oneStep({
    buffers: [f32('weight', 'input', s.headDim), to.buffer],
    source: 'head_norm',
    constants: { WG: workgroup },
    uniforms: { eps, heads: s.heads, count, width: s.headDim, ...to.uniforms },
    workgroups: rowGrid(count),
    tuning: { workgroup },
  });
};

export const launch: Launch = {
  plan,
  tunables: [{ name: 'workgroup', values: [32, 64, 128] }],
};
