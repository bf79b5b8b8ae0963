/** The join of two parts of attention: attend_join.wgsl. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { ALONE, rowGrid, WORKGROUP } from '../shared/attention/current.launch.js';

/** Buffers: output (o in, y out), stats (m, l; in and out), latent, latentStats, valueMeans. */
const plan: Launch['plan'] = (call, { current: { heads, group } = ALONE }) => {
  const s = shapeOf<'attend_join'>(call);
  requireShape(
    s.rows % heads === 0 && heads % group === 0,
    `attend_join: ${s.rows} rows of ${heads} heads in groups of ${group} do not divide`,
  );
  return oneStep({
    buffers: [
      f32('output', 'state', s.rows * s.width),
      f32('stats', 'state', 2 * s.rows, { positive: true }),
      f32('latent', 'input', s.rows * s.width),
      f32('latentStats', 'input', 2 * s.rows, { positive: true }),
      f32('valueMeans', 'input', (heads / group) * s.width),
    ],
    source: 'attend_join',
    constants: { WG: WORKGROUP },
    uniforms: { rows: s.rows, heads, group, width: s.width },
    workgroups: rowGrid(s.rows),
    tuning: { workgroup: WORKGROUP },
  });
};

export const launch: Launch = { plan };
