/** Rotary embedding of new tokens: rope.wgsl. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep, u32 } from '../host/plan.js';
import { rotaryTable } from '../host/rotary.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { rotaryOf, type Launch } from '../launch.js';
import { rowsOf, strided } from '../shared/dense/rows.launch.js';

/** Buffers: positions, turns, data, target (16 bytes that are not used, in place), bias (only with a bias). */
const plan: Launch['plan'] = (call, o) => {
  const { data, target, targetHeads, positionOffset = 0, bias = false } = o.rope ?? {};
  const rotary = rotaryOf(call, o);
  const s = shapeOf<'rope'>(call);
  requireEven(call, s, 'headDim');
  requireShape(Number.isSafeInteger(positionOffset), `rope: the position offset must be whole, not ${positionOffset}`);
  const width = s.heads * s.headDim;
  const count = (s.rows * width) / 2;
  const moved = target ? (targetHeads ?? s.heads) : 0;
  requireShape(
    Number.isSafeInteger(moved) && moved >= 0 && moved <= s.heads,
    `rope: ${moved} of ${s.heads} heads cannot go elsewhere`,
  );
  // Bound to be written also where all heads go elsewhere.
  const from = rowsOf(call, 'data', 'state', s.rows, width, data);
  const head = target?.head ?? s.headDim;
  requireShape(
    Number.isSafeInteger(head) && head >= s.headDim,
    `rope: heads of ${s.headDim} floats overlap at a stride of ${head}`,
  );
  const to =
    moved > 0
      ? rowsOf(call, 'target', 'output', s.rows, (moved - 1) * head + s.headDim, target)
      : {
          buffer: f32('target', 'scratch', 4),
          uniforms: { target_offset: 0, target_stride: 0 },
        };
  return oneStep({
    buffers: [
      u32('positions', 'input', s.rows, { below: rotary.positions - Math.max(0, positionOffset) }),
      rotaryTable(s.headDim, rotary),
      from.buffer,
      to.buffer,
      ...(bias ? [f32('bias', 'input', width)] : []),
    ],
    source: 'rope',
    uniforms: {
      count,
      heads: s.heads,
      pairs: s.headDim / 2,
      adjacent: call.variant === 'adjacent' ? 1 : 0,
      position_offset: positionOffset >>> 0,
      biased: bias ? 1 : 0,
      elsewhere: moved,
      ...from.uniforms,
      ...to.uniforms,
      target_head: head,
    },
    binds: ['positions', 'turns', 'data', bias ? 'bias' : 'turns', 'target'],
    ...strided(call, count, 128),
  });
};

export const launch: Launch = { plan };
