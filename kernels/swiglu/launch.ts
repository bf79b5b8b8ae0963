/** The activation of a gated MLP: swiglu.wgsl. */
import { oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { rowsOf, strided } from '../shared/dense/rows.launch.js';

/** Buffers: input (gates and ups side by side in a row), output. */
const plan: Launch['plan'] = (call, { placement: { input, output } = {} }) => {
  const s = shapeOf<'swiglu'>(call);
  const count = s.rows * s.width;
  const from = rowsOf(call, 'input', 'input', s.rows, 2 * s.width, input);
  const to = rowsOf(call, 'output', 'output', s.rows, s.width, output);
  return oneStep({
    buffers: [from.buffer, to.buffer],
    source: 'swiglu',
    uniforms: { count, width: s.width, ...from.uniforms, ...to.uniforms },
    ...strided(call, count, 256),
  });
};

export const launch: Launch = { plan };
