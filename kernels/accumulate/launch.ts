/** Sums over loops, element by element: accumulate.wgsl. */
import { oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, type Launch } from '../launch.js';
import { rowsOf, strided } from '../shared/dense/rows.launch.js';

/** Buffers: input, target. `factor`: of each loop's rows, 1/T for a mean. */
const plan: Launch['plan'] = (call, { factor = DEFAULTS.factor, placement: { input, output } = {} }) => {
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
      ...from.uniforms,
      ...to.uniforms,
    },
    ...strided(call, count, 256),
  });
};

export const launch: Launch = { plan };
