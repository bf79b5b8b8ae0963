/** The merge of split partials: attend_merge.wgsl. */
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { tuned, type Launch } from '../launch.js';
import { ALONE, WORKGROUP, currentOperands, rowGrid } from '../shared/attention/current.launch.js';

/** Buffers: partials, output, stats; for `current` also queries, newKeys, newValues. */
const plan: Launch['plan'] = (call, { current: options = ALONE, tuning }) => {
  const withCurrent = call.variant === 'current';
  const s = shapeOf<'attend_merge'>(call, ...(withCurrent ? [] : (['keyWidth'] as const)));
  const { firstRow = 0 } = options;
  const workgroup = tuned(tuning, 'workgroup', WORKGROUP);
  const current = currentOperands(call.kernel, {
    ...(withCurrent ? options : ALONE),
    rows: s.rows,
    keyWidth: s.keyWidth,
    valueWidth: s.width,
  });
  return oneStep({
    buffers: [
      f32('partials', 'stream', s.rows * s.splits * (s.width + 2), { positive: true }),
      f32('output', 'output', (firstRow + s.rows) * s.width),
      f32('stats', 'output', 2 * (firstRow + s.rows)),
      ...(withCurrent ? current.buffers : []),
    ],
    source: 'attend_merge',
    constants: { WG: workgroup, CURRENT: withCurrent ? 1 : 0 },
    uniforms: { current: current.uniforms, splits: s.splits, width: s.width, first_row: firstRow },
    binds: [
      'partials',
      'output',
      'stats',
      ...(withCurrent ? ['queries', 'newKeys', 'newValues'] : ['partials', 'partials', 'partials']),
    ],
    workgroups: rowGrid(s.rows),
    tuning: { workgroup },
  });
};

export const launch: Launch = {
  plan,
  tunables: [{ name: 'workgroup', values: [32, 64, 128] }],
};
