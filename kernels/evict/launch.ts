/** H2O: the exchange of a pinned token for the one that leaves the ring: evict.wgsl, evict_copy.wgsl. */
import { cached } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, read, u32, write, type BufferPlan, type Step } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { spansBuffer } from '../shared/attention/fold.launch.js';
import { capacityOfRow, layoutsOf } from '../shared/cache/evict.launch.js';
import { storeConstants, storeUniforms } from '../shared/cache/store.launch.js';

const EVICT_WORKGROUP = 64;

/**
 * Buffers: spans, mass, positions, moves (scratch), and the caches by name. `context` is the number of tokens pinned at
 * most.
 */
const plan: Launch['plan'] = (call, { evict: options = {} }) => {
  const s = shapeOf<'evict'>(call, 'groupSize');
  const heavy = s.context;
  const { heads = 1, pinned = heavy, ring = pinned } = options;
  requireShape(s.rows % heads === 0, `evict: ${s.rows} rows are not whole sequences of ${heads}`);
  const capacity = capacityOfRow(call, { heavy, pinned, ring, capacity: options.capacity });
  const caches = layoutsOf(call, s, options.caches);
  const buffers: BufferPlan[] = [
    // A full cache unless the spans are given: then every row may exchange a token.
    spansBuffer(Array.from({ length: s.rows / heads }, () => ({ pinned: heavy, firstPosition: 0, ring }))),
    f32('mass', 'state', s.rows * capacity, { positive: true }),
    u32('positions', 'state', s.rows * capacity, { below: 2 ** 31 }),
    u32('moves', 'scratch', 2 * s.rows),
    ...caches.map((c) => cached(c.name, 'state', c.layout, capacity, s.rows * c.rows)),
  ];
  const choose: Step = {
    source: 'evict',
    element: 'f32',
    constants: { WG: EVICT_WORKGROUP },
    uniforms: { heads, capacity, pinned, ring, heavy },
    buffers: [...read('spans'), ...write('mass', 'positions', 'moves')],
    workgroups: [s.rows, 1, 1],
  };
  const copies = caches.map((c): Step => ({
    source: 'evict_copy',
    element: 'f32',
    constants: storeConstants(c.layout),
    uniforms: { shape: storeUniforms(c.layout), capacity },
    buffers: [...read('moves'), ...write(c.name)],
    workgroups: [c.rows, s.rows, 1],
  }));
  return { buffers, steps: [choose, ...copies], tuning: { workgroup: EVICT_WORKGROUP } };
};

export const launch: Launch = { plan };
