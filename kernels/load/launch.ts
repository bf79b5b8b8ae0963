/** Cached rows back to f32: load.wgsl. */
import { capacityOf, rowLayout, streamed } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { rowUniforms } from '../shared/attention/fold.launch.js';
import { readUnit, unitsEach } from '../shared/attention/fold.terms.js';
import { MOST_WORKGROUPS, WORKGROUP, rowsAt } from '../shared/attention/prefill.launch.js';
import { storageOfVariant, TILE_TOKENS } from '../spec.js';

/** Buffers: cache, rows. */
const plan: Launch['plan'] = (call, { load: options = {} }) => {
  const s = shapeOf<'load'>(call, 'groupSize');
  const { chunk = s.rows, first = 0, firstSequence = 0 } = options;
  requireShape(s.rows % chunk === 0, `load: ${s.rows} rows are not whole chunks of ${chunk} tokens`);
  const sequences = s.rows / chunk;
  const capacity = capacityOf(options.capacity ?? first + chunk);
  requireShape(first + chunk <= capacity, `load: ${first + chunk} tokens do not fit ${capacity} slots`);
  const layout = rowLayout(storageOfVariant(call.variant), s.width, s.groupSize || undefined);
  const output = options.output ?? { offset: 0, stride: s.heads * s.width };
  const units = unitsEach(layout, 1);
  const groups = Math.ceil((chunk * units) / WORKGROUP);
  requireShape(
    groups <= MOST_WORKGROUPS,
    `load: ${chunk} tokens of ${s.width} are more than ${MOST_WORKGROUPS} workgroups`,
  );
  return oneStep({
    buffers: [
      streamed('cache', layout, capacity, (firstSequence + sequences) * s.heads),
      rowsAt('rows', 'output', s.rows, s.heads * s.width, output),
    ],
    source: 'load',
    element: layout.storage,
    constants: { EDGES: s.width % readUnit(layout) === 0 ? 0 : 1 },
    uniforms: {
      shape: rowUniforms(layout),
      width: s.width,
      tiles: capacity / TILE_TOKENS,
      first_row: firstSequence * s.heads,
      first,
      chunk,
      row_offset: output.offset,
      row_stride: output.stride,
    },
    workgroups: [groups, s.heads, sequences],
    tuning: { workgroup: WORKGROUP },
  });
};

export const launch: Launch = { plan };
