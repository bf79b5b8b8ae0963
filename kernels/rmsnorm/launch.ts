/** Norms and residuals: rmsnorm.wgsl, add.wgsl. */
import type { PlacementOptions } from '../placement.js';
import type { Tuning } from '../options.js';
import { read, write, type OperationPlan, type Step } from '../host/plan.js';
import { dimensions, requirePositive, requireVariant } from '../host/shape.js';
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
  requireVariant(call);
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  const added = call.variant !== 'norm';
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', added ? 'state' : 'output', s.rows, s.width, output);
  const places = { ...placeUniforms('input', from.at), ...placeUniforms('target', to.at) };
  const buffers = [from.buffer, to.buffer];
  if (call.variant === 'add') {
    const count = s.rows * s.width;
    const uniforms = { count, width: s.width, ...places };
    const step: Step = {
      source: 'add',
      element: 'f32',
      constants: {},
      uniforms,
      buffers: [...read('input'), ...write('target')],
      workgroups: grid(call.kernel, count, 256),
    };
    return { buffers, steps: [step], tuning: { workgroup: 256 } };
  }
  const workgroup = tuned(tuning, 'workgroup', ROW_WORKGROUP);
  return {
    buffers: [...buffers, { name: 'weight', role: 'input', content: 'f32', bytes: s.width * 4 }],
    steps: [
      {
        source: 'rmsnorm',
        element: 'f32',
        constants: { WG: workgroup },
        uniforms: { eps, rows: s.rows, width: s.width, added: added ? 1 : 0, ...places },
        buffers: [...read('input', 'weight'), ...write('target')],
        workgroups: rowGrid(s.rows),
      },
    ],
    tuning: { workgroup },
  };
}

export const launch: Launch = {
  plan: (call, o) => planRmsnorm(call, o.eps ?? DEFAULTS.eps, o.placement, o.tuning),
  tunables: [{ name: 'workgroup', values: [64, 128, 256] }],
};
