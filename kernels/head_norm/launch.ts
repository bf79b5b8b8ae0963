/** Norms of the heads of queries and keys: head_norm.wgsl. */
import type { PlacementOptions } from '../placement.js';
import type { Tuning } from '../options.js';
import { f32, oneStep, type OperationPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, tuned, type Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { placeUniforms, rowGrid, rowsOf } from '../shared/dense/rows.launch.js';

/** Heads are narrow. */
const WORKGROUP = 32;

/** Buffers: weight, target. `eps` as in the model's configuration. */
function planHeadNorm(
  call: KernelCall,
  eps: number,
  { output }: PlacementOptions = {},
  tuning?: Tuning,
): OperationPlan {
  const s = shapeOf<'head_norm'>(call);
  const count = s.rows * s.heads;
  const to = rowsOf(call, 'target', 'state', s.rows, s.heads * s.headDim, output);
  const workgroup = tuned(tuning, 'workgroup', WORKGROUP);
  return oneStep({
    buffers: [f32('weight', 'input', s.headDim), to.buffer],
    source: 'head_norm',
    constants: { WG: workgroup },
    uniforms: { eps, heads: s.heads, count, width: s.headDim, ...placeUniforms('target', to.at) },
    workgroups: rowGrid(count),
    tuning: { workgroup },
  });
}

export const launch: Launch = {
  plan: (call, o) => planHeadNorm(call, o.eps ?? DEFAULTS.eps, o.placement, o.tuning),
  tunables: [{ name: 'workgroup', values: [32, 64, 128] }],
};
