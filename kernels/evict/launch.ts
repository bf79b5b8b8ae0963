/** H2O: the exchange of a pinned token for the one that leaves the ring: evict.wgsl, evict_copy.wgsl. */
import type { EvictOptions } from '../cache-options.js';
import { cacheBytes } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { read, write, type BufferPlan, type OperationPlan, type Step } from '../host/plan.js';
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
    {
      name: 'spans',
      role: 'table',
      content: 'u32',
      bytes: sequences * 16,
      data: () => Uint32Array.from({ length: sequences * 4 }, (_, i) => [heavy, 0, ring, 0][i % 4] as number),
    },
    { name: 'mass', role: 'state', content: 'f32', positive: true, bytes: s.rows * capacity * 4 },
    { name: 'positions', role: 'state', content: 'u32', bytes: s.rows * capacity * 4, below: 2 ** 31 },
    { name: 'moves', role: 'scratch', content: 'u32', bytes: s.rows * 8 },
    ...caches.map((c): BufferPlan => ({
      name: c.name,
      role: 'state',
      content: c.content,
      bytes: cacheBytes(c.layout, capacity, s.rows * c.rows),
    })),
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
