/** How new rows are laid out for kernels that write caches: cache_store.wgsl. */
import type { RowLayout } from '../../gpu/cache-layout.js';
import { u32, type Uniform } from '../../gpu/plan.js';

/** Constants of cache_store.wgsl. */
export const storeConstants = (layout: RowLayout): Record<string, number> => ({
  BITS: layout.bits,
  UNIT: layout.unitComponents,
  PLANES: layout.planes,
});

/** The struct `RowLayout` of cache_store.wgsl. */
export const storeUniforms = (layout: RowLayout): Uniform[] =>
  [
    layout.width,
    layout.units,
    layout.tail,
    layout.tailsAt,
    layout.scalesAt,
    layout.tileWords,
    layout.groupSize,
    layout.groups,
  ].map(u32);
