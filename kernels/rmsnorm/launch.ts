/** Norms and residuals: rmsnorm.wgsl, add.wgsl. */
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, tuned, type Launch } from '../launch.js';
import { rowGrid, rowsOf, strided } from '../shared/dense/rows.launch.js';

/** Threads of a kernel that has one workgroup a row. */
const ROW_WORKGROUP = 256;

/** Buffers: input, weight (not for `add`), target. `eps` as in the model's configuration. */
const plan: Launch['plan'] = (call, { eps = DEFAULTS.eps, placement: { input, output } = {}, tuning }) => {
  const s = shapeOf<'rmsnorm'>(call);
  const added = call.variant !== 'norm';
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', added ? 'state' : 'output', s.rows, s.width, output);
  if (call.variant === 'add') {
    const count = s.rows * s.width;
    return oneStep({
      buffers: [from.buffer, to.buffer],
      source: 'add',
      uniforms: { count, width: s.width, ...from.uniforms, ...to.uniforms },
      ...strided(call, count, 256),
    });
  }
  const workgroup = tuned(tuning, 'workgroup', ROW_WORKGROUP);
  return oneStep({
    buffers: [from.buffer, f32('weight', 'input', s.width), to.buffer],
    source: 'rmsnorm',
    constants: { WG: workgroup },
    uniforms: { eps, rows: s.rows, width: s.width, added: added ? 1 : 0, ...from.uniforms, ...to.uniforms },
    workgroups: rowGrid(s.rows),
    tuning: { workgroup },
  });
};

export const launch: Launch = {
  plan,
  tunables: [{ name: 'workgroup', values: [64, 128, 256] }],
};
