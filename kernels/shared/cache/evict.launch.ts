/** Launch parts that evicting kernels share: the caches that a row decides for, and its slots. */
import { runOf } from './evict.terms.js';
import type { EvictPrefillOptions, EvictedCache } from '../../cache-options.js';
import { cached, capacityOf, rowLayout, type RowLayout } from '../../host/cache-layout.js';
import { requireShape } from '../../host/errors.js';
import { f32, read, u32, write, type BufferPlan, type Step } from '../../host/plan.js';
import type { KernelCall } from '../../registry.js';
import { storageOfVariant, TILE_TOKENS } from '../../spec.js';
import { storeConstants, storeUniforms } from './store.launch.js';

/** An evicted cache as a call's buffers hold it. */
interface CacheLayout extends Required<EvictedCache> {
  readonly layout: RowLayout;
}

/**
 * The caches that an evicting row decides for: a key cache and a value cache of half the width each unless given.
 * @throws GpuError where they do not hold the call's `width` scalars of a token together
 */
export function layoutsOf(
  call: KernelCall,
  s: Readonly<Record<'width' | 'groupSize', number>>,
  given?: readonly EvictedCache[],
): readonly CacheLayout[] {
  const halves: readonly EvictedCache[] = [
    { name: 'keys', width: Math.ceil(s.width / 2) },
    { name: 'values', width: Math.floor(s.width / 2) },
  ];
  const caches = (given ?? halves.filter((c) => c.width > 0)).map((c) => ({ ...c, rows: c.rows ?? 1 }));
  const scalars = caches.reduce((sum, c) => sum + c.width * c.rows, 0);
  requireShape(scalars === s.width, `${call.kernel}: the caches hold ${scalars} scalars of a token, not ${s.width}`);
  const storage = storageOfVariant(call.variant);
  return caches.map((c) => ({ ...c, layout: rowLayout(storage, c.width, s.groupSize) }));
}

/**
 * Slots of a cached row, in whole tiles: pinned and ring unless given. Of the pinned ones `heavy` are filled at most.
 * @throws GpuError where they do not fit
 */
export function capacityOfRow(
  call: KernelCall,
  slots: {
    readonly heavy: number;
    readonly pinned: number;
    readonly ring: number;
    readonly capacity?: number | undefined;
  },
): number {
  const { heavy, pinned, ring } = slots;
  const capacity = capacityOf(slots.capacity ?? pinned + ring);
  requireShape(heavy <= pinned, `${call.kernel}: ${heavy} tokens do not fit ${pinned} pinned slots`);
  requireShape(
    ring >= 1 && pinned + ring <= capacity,
    `${call.kernel}: ${pinned} pinned slots and a ring of ${ring} do not fit ${capacity}`,
  );
  return capacity;
}

/**
 * Slots of a cache whose tokens are chosen again, its buffers with those of the run, and the copies of the rows that a
 * table of tokens [row][slot] names.
 */
export function choiceOf(
  call: KernelCall,
  s: Readonly<Record<'rows' | 'context' | 'kept' | 'width' | 'groupSize', number>>,
  options: EvictPrefillOptions,
) {
  const { kernel } = call;
  const { pinned = Math.floor(s.kept / 2), firstRow = 0, room = s.context } = options;
  const { heavy = pinned, ring = s.kept - pinned } = options;
  const capacity = capacityOfRow(call, { heavy, pinned, ring, capacity: options.capacity });
  const runCapacity = capacityOf(options.runCapacity ?? s.context);
  requireShape(
    s.context <= room && s.context <= runCapacity,
    `${kernel}: ${s.context} tokens do not fit ${room} masses and ${runCapacity} slots`,
  );
  const ringTokens = Math.min(ring, s.context);
  const pinnedTokens = Math.min(heavy, s.context - ringTokens);
  requireShape(
    pinnedTokens + ringTokens === s.kept,
    `${kernel}: of ${s.context} tokens ${pinnedTokens + ringTokens} stay, not ${s.kept}`,
  );
  const caches = layoutsOf(call, s, options.caches);
  const rows = firstRow + s.rows;
  const buffers: BufferPlan[] = [
    f32('runMass', 'input', s.rows * room, { positive: true }),
    f32('mass', 'state', rows * capacity, { positive: true }),
    u32('positions', 'state', rows * capacity, { below: 2 ** 31 }),
    ...caches.flatMap((c): BufferPlan[] => [
      cached(runOf(c.name), 'stream', c.layout, runCapacity, s.rows * c.rows),
      cached(c.name, 'state', c.layout, capacity, rows * c.rows),
    ]),
  ];
  const copies = (table: string): Step[] =>
    caches.map((c) => ({
      source: 'evict_gather',
      element: 'f32',
      constants: storeConstants(c.layout),
      uniforms: {
        shape: storeUniforms(c.layout),
        rows: c.rows,
        run_capacity: runCapacity,
        capacity,
        pinned,
        pinned_tokens: pinnedTokens,
        ring_tokens: ringTokens,
        first_row: firstRow,
      },
      buffers: [...read(table, runOf(c.name)), ...write(c.name)],
      workgroups: [capacity / TILE_TOKENS, s.rows * c.rows, 1],
    }));
  return { room, capacity, pinned, ring, heavy, firstRow, buffers, copies };
}
