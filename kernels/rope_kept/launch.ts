/** Rotary embedding of rebuilt keys of pinned tokens: rope_kept.wgsl. */
import type { RopeKeptOptions } from '../cache-options.js';
import { requireShape } from '../host/errors.js';
import { oneStep, u32, type OperationPlan } from '../host/plan.js';
import { rotaryTable, type RotaryOptions } from '../host/rotary.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { rotaryOf, type Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { grid, placeUniforms, rowsOf } from '../shared/dense/rows.launch.js';

/** Buffers: positions [row][slot], turns, data. */
function planRopeKept(
  call: KernelCall,
  rotary: RotaryOptions,
  { data, pooled = 1, firstRow = 0, first = 0, capacity }: RopeKeptOptions = {},
): OperationPlan {
  const s = shapeOf<'rope_kept'>(call);
  requireEven(call, s, 'headDim');
  const slots = capacity ?? first + s.rows;
  requireShape(s.heads % pooled === 0, `rope_kept: ${s.heads} heads are not pooled evenly by ${pooled}`);
  requireShape(first + s.rows <= slots, `rope_kept: ${s.rows} tokens from slot ${first} on do not fit ${slots} slots`);
  const count = (s.rows * s.heads * s.headDim) / 2;
  const keys = rowsOf(call, 'data', 'state', s.rows, s.heads * s.headDim, data);
  return oneStep({
    buffers: [
      u32('positions', 'input', (firstRow + s.heads / pooled) * slots, { below: rotary.positions }),
      rotaryTable(s.headDim, rotary),
      keys.buffer,
    ],
    source: 'rope_kept',
    uniforms: {
      count,
      heads: s.heads,
      pairs: s.headDim / 2,
      adjacent: call.variant === 'adjacent' ? 1 : 0,
      pooled,
      first_row: firstRow,
      capacity: slots,
      first,
      ...placeUniforms('data', keys.at),
    },
    workgroups: grid(call.kernel, count, 128),
    tuning: { workgroup: 128 },
  });
}

export const launch: Launch = {
  plan: (call, o) => planRopeKept(call, rotaryOf(call, o), o.ropeKept),
};
