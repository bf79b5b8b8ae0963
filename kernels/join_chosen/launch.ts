/** Attention over chosen tokens beside that of the last dense loop: join_chosen.wgsl. */
import type { CurrentOptions } from '../attention-options.js';
import { oneStep, type BufferPlan, type OperationPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { ALONE, currentOperands, rowGrid, WORKGROUP } from '../shared/attention/current.launch.js';

/** Buffers: output, stats, part, partStats, queries, newRows, chosen, base. Values lie behind the keys unless given. */
function planJoinChosen(call: KernelCall, options: CurrentOptions = ALONE): OperationPlan {
  const s = shapeOf<'join_chosen'>(call);
  const { heads, group, listWords = 1 } = options;
  const kvWidth = (heads / group) * s.width;
  const current = currentOperands(call.kernel, {
    keys: { offset: 0, stride: 2 * kvWidth },
    values: { offset: kvWidth, stride: 2 * kvWidth },
    ...options,
    rows: s.rows,
    keyWidth: s.width,
    valueWidth: s.width,
  });
  const [queries, keys, values] = current.buffers as [BufferPlan, BufferPlan, BufferPlan];
  const bytes = s.rows * s.width * 4;
  return oneStep({
    buffers: [
      { name: 'output', role: 'state', content: 'f32', bytes },
      { name: 'stats', role: 'input', content: 'f32', positive: true, bytes: s.rows * 8 },
      { name: 'part', role: 'input', content: 'f32', bytes },
      { name: 'partStats', role: 'input', content: 'f32', positive: true, bytes: s.rows * 8 },
      queries,
      { name: 'newRows', role: 'input', content: 'f32', bytes: Math.max(keys.bytes, values.bytes) },
      { name: 'chosen', role: 'input', content: 'u32', bytes: s.rows * listWords * 4, below: 2 ** 32 - 1 },
      { name: 'base', role: 'state', content: 'f32', bytes: bytes + s.rows * 4 },
    ],
    source: 'join_chosen',
    constants: { WG: WORKGROUP, BEGIN: call.variant === 'begin' ? 1 : 0 },
    uniforms: { current: current.uniforms, list_words: listWords },
    workgroups: rowGrid(s.rows),
    tuning: { workgroup: WORKGROUP },
  });
}

export const launch: Launch = { plan: (call, o) => planJoinChosen(call, o.current) };
