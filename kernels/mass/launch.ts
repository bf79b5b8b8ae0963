/** H2O: the mass of cached tokens: mass.wgsl. */
import { capacityOf } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';

const MASS_WORKGROUP = 128;

/** Buffers: scores [query head][slot], stats [query head] (m, l), mass [row][slot]. */
const plan: Launch['plan'] = (call, { mass: options = {} }) => {
  const s = shapeOf<'mass'>(call);
  const slots = capacityOf(options.capacity ?? s.context);
  requireShape(slots >= s.context, `mass: ${s.context} tokens do not fit ${slots} slots`);
  return oneStep({
    buffers: [
      f32('scores', 'input', s.rows * s.group * slots),
      f32('stats', 'input', 2 * s.rows * s.group, { positive: true }),
      f32('mass', 'state', s.rows * slots, { positive: true }),
    ],
    source: 'mass',
    uniforms: { slots, group: s.group },
    workgroups: [Math.ceil(slots / MASS_WORKGROUP), s.rows, 1],
    tuning: { workgroup: MASS_WORKGROUP },
  });
};

export const launch: Launch = { plan };
