/** H2O: the exchange of a pinned token for the one that leaves the ring: evict.wgsl, evict_copy.wgsl. */
import type { EvictOptions } from '../cache-options.js';
import { cached } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, read, u32, write, type BufferPlan, type OperationPlan, type Step } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { capacityOfRow, layoutsOf } from '../shared/cache/evict.launch.js';
import { storeConstants, storeUniforms } from '../shared/cache/store.launch.js';

const EVICT_WORKGROUP = 64;

/**
 * Buffers: spans, mass, positions, moves (scratch), and the caches by name. `context` is the number of tokens pinned at
 * most.
 */
function planEvict(call: KernelCall, options: EvictOptions = {}): OperationPlan {
  const s = shapeOf<'evict'>(call, 'groupSize');
  const heavy = s.context;
  const { heads = 1, pinned = heavy, ring = pinned } = options;
  requireShape(s.rows % heads === 0, `evict: ${s.rows} rows are not whole sequences of ${heads}`);
  const capacity = capacityOfRow(call, { heavy, pinned, ring, capacity: options.capacity });
  const caches = layoutsOf(call, s, options.caches);
  const sequences = s.rows / heads;
  const buffers: BufferPlan[] = [
    // A full cache unless the spans are given: then every row may exchange a token.
    u32('spans', 'table', 4 * sequences, {
      data: () => Uint32Array.from({ length: sequences * 4 }, (_, i) => [heavy, 0, ring, 0][i % 4] as number),
    }),
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
}

export const launch: Launch = {
  plan: (call, o) => planEvict(call, o.evict),
};
