/** The gate of attention's output: gate.wgsl. */
import { read, write, type OperationPlan } from '../../src/gpu/plan.js';
import { dimensions, requirePositive, requireVariant } from '../../src/gpu/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { grid, placeUniforms, rowsOf, type PlacementOptions } from '../shared/rows.launch.js';

const WORKGROUP = 256;

/** Buffers: input (gates before their sigmoid), target. */
function planGate(call: KernelCall, { input, output }: PlacementOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  const count = s.rows * s.width;
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', 'state', s.rows, s.width, output);
  return {
    buffers: [from.buffer, to.buffer],
    steps: [
      {
        source: 'gate',
        element: 'f32',
        constants: {},
        uniforms: { count, width: s.width, ...placeUniforms('input', from.at), ...placeUniforms('target', to.at) },
        buffers: [...read('input'), ...write('target')],
        workgroups: grid(call.kernel, count, WORKGROUP),
      },
    ],
    tuning: { workgroup: WORKGROUP },
  };
}

export const launch: Launch = { plan: (call, o) => planGate(call, o.placement) };
