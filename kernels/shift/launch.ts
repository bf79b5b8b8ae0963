/** The input of a later loop from the token before: shift.wgsl. */
import { f32, oneStep, u32 } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, type Launch } from '../launch.js';
import { strided } from '../shared/dense/rows.launch.js';

/** Positions that a benchmark draws. */
const POSITIONS = 4096;

/** Buffers: positions, embedding, states (two a row), target (states in, the loop's input out). `factor`: of states. */
const plan: Launch['plan'] = (call, { factor = DEFAULTS.factor }) => {
  const s = shapeOf<'shift'>(call);
  const count = s.rows * s.width;
  return oneStep({
    buffers: [
      u32('positions', 'input', s.rows, { below: POSITIONS }),
      f32('embedding', 'input', count),
      f32('states', 'state', 2 * count),
      f32('target', 'state', count),
    ],
    source: 'shift',
    uniforms: { factor, count, width: s.width },
    ...strided(call, count, 256),
  });
};

export const launch: Launch = { plan };
