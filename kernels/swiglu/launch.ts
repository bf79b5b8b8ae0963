/** The activation of a gated MLP: swiglu.wgsl. */
import type { PlacementOptions } from '../placement.js';
import { oneStep, type OperationPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { grid, placeUniforms, rowsOf } from '../shared/dense/rows.launch.js';

/** Buffers: input (gates and ups side by side in a row), output. */
function planSwiglu(call: KernelCall, { input, output }: PlacementOptions = {}): OperationPlan {
  const s = shapeOf<'swiglu'>(call);
  const count = s.rows * s.width;
  const from = rowsOf(call, 'input', 'input', s.rows, 2 * s.width, input);
  const to = rowsOf(call, 'output', 'output', s.rows, s.width, output);
  return oneStep({
    buffers: [from.buffer, to.buffer],
    source: 'swiglu',
    uniforms: { count, width: s.width, ...placeUniforms('input', from.at), ...placeUniforms('output', to.at) },
    workgroups: grid(call.kernel, count, 256),
    tuning: { workgroup: 256 },
  });
}

export const launch: Launch = {
  plan: (call, o) => planSwiglu(call, o.placement),
};
