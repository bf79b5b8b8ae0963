/** Rotary embedding of rebuilt keys of pinned tokens: rope_kept.wgsl. */
import { requireShape } from '../host/errors.js';
import { oneStep, u32 } from '../host/plan.js';
import { rotaryTable } from '../host/rotary.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { rotaryOf, type Launch } from '../launch.js';
import { rowsOf, strided } from '../shared/dense/rows.launch.js';

/** Buffers: positions [row][slot], turns, data. */
const plan: Launch['plan'] = (call, o) => {
  const { data, pooled = 1, firstRow = 0, first = 0, capacity } = o.ropeKept ?? {};
  const rotary = rotaryOf(call, o);
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
      ...keys.uniforms,
    },
    ...strided(call, count, 128),
  });
};

export const launch: Launch = { plan };
