/** Sums over loops, element by element: accumulate.wgsl. */
import type { PlacementOptions } from '../placement.js';
import { oneStep, type OperationPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, type Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { grid, placeUniforms, rowsOf } from '../shared/dense/rows.launch.js';

const WORKGROUP = 256;

/** Buffers: input, target. `factor`: of each loop's rows, 1/T for a mean. */
function planAccumulate(call: KernelCall, factor: number, { input, output }: PlacementOptions = {}): OperationPlan {
  const s = shapeOf<'accumulate'>(call);
  const count = s.rows * s.width;
  const begins = call.variant === 'begin';
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', begins ? 'output' : 'state', s.rows, s.width, output);
  return oneStep({
    buffers: [from.buffer, to.buffer],
    source: 'accumulate',
    constants: { BEGIN: begins ? 1 : 0 },
    uniforms: {
      factor,
      count,
      width: s.width,
      ...placeUniforms('input', from.at),
      ...placeUniforms('target', to.at),
    },
    workgroups: grid(call.kernel, count, WORKGROUP),
    tuning: { workgroup: WORKGROUP },
  });
}

export const launch: Launch = {
  plan: (call, o) => planAccumulate(call, o.factor ?? DEFAULTS.factor, o.placement),
};
