/** Attention over chosen tokens beside that of the last dense loop: join_chosen.wgsl. */
import { f32, oneStep, u32, type BufferPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { ALONE, currentOperands, rowGrid, WORKGROUP } from '../shared/attention/current.launch.js';

/** Buffers: output, stats, part, partStats, queries, newRows, chosen, base. Values lie behind the keys unless given. */
const plan: Launch['plan'] = (call, { current: options = ALONE }) => {
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
  const floats = s.rows * s.width;
  return oneStep({
    buffers: [
      f32('output', 'state', floats),
      f32('stats', 'input', 2 * s.rows, { positive: true }),
      f32('part', 'input', floats),
      f32('partStats', 'input', 2 * s.rows, { positive: true }),
      queries,
      f32('newRows', 'input', Math.max(keys.bytes, values.bytes) / 4),
      u32('chosen', 'input', s.rows * listWords, { below: 2 ** 32 - 1 }),
      f32('base', 'state', floats + s.rows),
    ],
    source: 'join_chosen',
    constants: { WG: WORKGROUP, BEGIN: call.variant === 'begin' ? 1 : 0 },
    uniforms: { current: current.uniforms, list_words: listWords },
    workgroups: rowGrid(s.rows),
    tuning: { workgroup: WORKGROUP },
  });
};

export const launch: Launch = { plan };
