/** Norms and residuals: rmsnorm.wgsl, add.wgsl. */
import type { PlacementOptions } from '../placement.js';
import type { Tuning } from '../options.js';
import { f32, oneStep, type OperationPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, tuned, type Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { grid, placeUniforms, rowGrid, rowsOf } from '../shared/dense/rows.launch.js';

/** Threads of a kernel that has one workgroup a row. */
const ROW_WORKGROUP = 256;

/** Buffers: input, weight (not for `add`), target. `eps` as in the model's configuration. */
function planRmsnorm(
  call: KernelCall,
  eps: number,
  { input, output }: PlacementOptions = {},
  tuning?: Tuning,
): OperationPlan {
  const s = shapeOf<'rmsnorm'>(call);
  const added = call.variant !== 'norm';
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', added ? 'state' : 'output', s.rows, s.width, output);
  const places = { ...placeUniforms('input', from.at), ...placeUniforms('target', to.at) };
  if (call.variant === 'add') {
    const count = s.rows * s.width;
    return oneStep({
      buffers: [from.buffer, to.buffer],
      source: 'add',
      uniforms: { count, width: s.width, ...places },
      workgroups: grid(call.kernel, count, 256),
      tuning: { workgroup: 256 },
    });
  }
  const workgroup = tuned(tuning, 'workgroup', ROW_WORKGROUP);
  return oneStep({
    buffers: [from.buffer, f32('weight', 'input', s.width), to.buffer],
    source: 'rmsnorm',
    constants: { WG: workgroup },
    uniforms: { eps, rows: s.rows, width: s.width, added: added ? 1 : 0, ...places },
    workgroups: rowGrid(s.rows),
    tuning: { workgroup },
  });
}

export const launch: Launch = {
  plan: (call, o) => planRmsnorm(call, o.eps ?? DEFAULTS.eps, o.placement, o.tuning),
  tunables: [{ name: 'workgroup', values: [64, 128, 256] }],
};
