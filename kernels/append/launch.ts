/** Writing new rows to a cache in its storage type: append.wgsl. */
import type { AppendOptions } from '../cache-options.js';
import { cached, capacityOf, rowLayout } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep, u32, type BufferPlan } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { DEFAULTS, type Launch } from '../launch.js';
import { storeConstants, storeUniforms } from '../shared/cache/store.launch.js';
import { storageOfVariant, TILE_TOKENS } from '../spec.js';

/** Components of a workgroup where no scale joins them. */
const BLOCK = 64;

/** Buffers: tokens (position of each sequence's first new token), rows, bias (only with one), cache. */
const plan: Launch['plan'] = (call, { append: options = DEFAULTS.append as AppendOptions }) => {
  const s = shapeOf<'append'>(call, 'groupSize');
  const floats = s.heads * s.width;
  const {
    chunk = 1,
    pinned = 0,
    sinks = 0,
    rowOffset = 0,
    rowStride = floats,
    first = 0,
    firstSequence = 0,
    firstStart = 0,
  } = options;
  const capacity = capacityOf(options.capacity);
  const ring = options.ring ?? capacity - pinned;
  requireShape(s.rows % chunk === 0, `append: ${s.rows} rows are not whole chunks of ${chunk} tokens`);
  requireShape(
    ring >= 1 && pinned + ring <= capacity,
    `append: ${pinned} pinned slots and a ring of ${ring} do not fit ${capacity}`,
  );
  requireShape(sinks <= pinned, `append: ${sinks} sinks exceed ${pinned} pinned slots`);
  requireShape(
    rowStride >= floats,
    `append: a row stride of ${rowStride} is less than the ${floats} floats of a token`,
  );
  const layout = rowLayout(storageOfVariant(call.variant), s.width, s.groupSize);
  const block = layout.groups > 0 ? layout.groupSize : BLOCK;
  const sequences = s.rows / chunk;
  const bias: BufferPlan[] = options.bias ? [f32('bias', 'input', floats)] : [];
  return oneStep({
    buffers: [
      u32('tokens', 'input', firstStart + sequences, { below: capacity }),
      f32('rows', 'input', rowOffset + (s.rows - 1) * rowStride + floats),
      ...bias,
      cached('cache', 'state', layout, capacity, (firstSequence + sequences) * s.heads),
    ],
    source: 'append',
    constants: { ...storeConstants(layout), BIAS: options.bias ? 1 : 0 },
    uniforms: {
      shape: storeUniforms(layout),
      chunk,
      capacity,
      pinned,
      ring,
      sinks,
      block,
      row_offset: rowOffset,
      row_stride: rowStride,
      first,
      first_row: firstSequence * s.heads,
      first_start: firstStart,
    },
    binds: ['tokens', 'rows', options.bias ? 'bias' : 'rows', 'cache'],
    workgroups: [Math.ceil(layout.width / block) * Math.ceil(chunk / TILE_TOKENS), s.heads, sequences],
    tuning: { workgroup: 64, block },
  });
};

export const launch: Launch = { plan };
