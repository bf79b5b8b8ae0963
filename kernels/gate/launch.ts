/** The gate of attention's output, the mixture of two attentions, a loop's change: gate{,_mix,_change}.wgsl. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { ALONE } from '../shared/attention/current.launch.js';
import { rowsOf, strided } from '../shared/dense/rows.launch.js';

const WORKGROUP = 256;

/** Buffers: input (gates before their sigmoid), target. */
const planGate: Launch['plan'] = (call, { placement: { input, output } = {} }) => {
  const s = shapeOf<'gate'>(call);
  const count = s.rows * s.width;
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', 'state', s.rows, s.width, output);
  return oneStep({
    buffers: [from.buffer, to.buffer],
    source: 'gate',
    uniforms: { count, width: s.width, ...from.uniforms, ...to.uniforms },
    ...strided(call, count, WORKGROUP),
  });
};

/** Buffers: gates, bias, other, target. */
const planMix: Launch['plan'] = (call, { current: { heads } = ALONE }) => {
  const s = shapeOf<'gate'>(call);
  requireShape(s.rows % heads === 0, `gate: ${s.rows} rows are no whole number of sequences of ${heads} heads`);
  const count = s.rows * s.width;
  return oneStep({
    buffers: [
      f32('gates', 'input', s.rows),
      f32('bias', 'input', heads),
      f32('other', 'input', count),
      f32('target', 'state', count),
    ],
    source: 'gate_mix',
    uniforms: { count, width: s.width, heads },
    ...strided(call, count, WORKGROUP),
  });
};

/** Buffers: gates, rates, before, target; rows of the last three follow each other from the output's offset on. */
const planChange: Launch['plan'] = (call, { placement: { output } = {} }) => {
  const s = shapeOf<'gate'>(call);
  const count = s.rows * s.width;
  const at = { offset: output?.offset ?? 0, stride: s.width };
  const rows = (name: string, role: 'input' | 'state') => rowsOf(call, name, role, s.rows, s.width, at).buffer;
  return oneStep({
    buffers: [
      rows('gates', 'input'),
      f32('rates', 'input', 2 * s.width),
      rows('before', 'input'),
      rows('target', 'state'),
    ],
    source: 'gate_change',
    uniforms: { count, width: s.width, first: at.offset },
    ...strided(call, count, WORKGROUP),
  });
};

export const launch: Launch = {
  plan: (call, o) => {
    if (call.variant === 'change') return planChange(call, o);
    return call.variant === 'mix' ? planMix(call, o) : planGate(call, o);
  },
};
