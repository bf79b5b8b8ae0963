/** The choice of the tokens that later loops read: choose_order.wgsl, choose_keys.wgsl. */
import { capacityOf } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, read, u32, write } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';

const WORKGROUP = 64;

/** Buffers: scores (in and out), queries, newKeys, spans, chosen. Without options a sequence has one query head. */
const plan: Launch['plan'] = (call, { chooseKeys: options = {} }) => {
  const s = shapeOf<'choose_keys'>(call);
  const { heads = 1, group = 1, listWords = 1 + s.kept, firstList = 0 } = options;
  const capacity = capacityOf(options.capacity ?? s.context + 1);
  const kvWidth = (heads / group) * s.width;
  const { offset, stride } = options.keys ?? { offset: 0, stride: kvWidth };
  requireShape(
    s.rows % heads === 0 && heads % group === 0 && s.kept <= s.context + 1 && s.kept < listWords,
    `choose_keys: ${s.kept} of ${s.context + 1} tokens do not go with ${s.rows} rows of ${heads} heads`,
  );
  const sequences = s.rows / heads;
  return {
    buffers: [
      f32('scores', 'state', s.rows * capacity),
      f32('queries', 'input', s.rows * s.width),
      f32('newKeys', 'input', offset + (sequences - 1) * stride + kvWidth),
      u32('spans', 'table', 4 * sequences, {
        data: () => Uint32Array.from({ length: 4 * sequences }, (_, i) => [0, 0, s.context, s.kept][i % 4] as number),
      }),
      u32('chosen', 'output', (firstList + s.rows) * listWords),
    ],
    steps: [
      {
        source: 'choose_order',
        element: 'f32',
        constants: { WG: WORKGROUP },
        uniforms: {
          heads,
          group,
          width: s.width,
          capacity,
          key_offset: offset,
          key_stride: stride,
          scale: s.width ** -0.5 * Math.LOG2E,
        },
        buffers: [...write('scores'), ...read('queries', 'newKeys', 'spans')],
        workgroups: [s.rows, 1, 1],
      },
      {
        source: 'choose_keys',
        element: 'f32',
        constants: { WG: WORKGROUP },
        uniforms: { heads, capacity, list_words: listWords, first_list: firstList },
        buffers: [...read('scores', 'spans'), ...write('chosen')],
        workgroups: [s.rows, 1, 1],
      },
    ],
    tuning: { workgroup: WORKGROUP },
  };
};

export const launch: Launch = { plan };
