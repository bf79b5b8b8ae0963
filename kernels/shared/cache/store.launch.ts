/** How new rows are laid out for kernels that write caches: cache_store.wgsl. */
import type { RowLayout } from '../../host/cache-layout.js';
import type { Uniforms } from '../../host/plan.js';

/** Constants of cache_store.wgsl. */
export const storeConstants = (layout: RowLayout): Record<string, number> => ({
  BITS: layout.bits,
  UNIT: layout.unitComponents,
  PLANES: layout.planes,
});

/** The struct `RowLayout` of cache_store.wgsl. */
export const storeUniforms = (layout: RowLayout): Uniforms => ({
  width: layout.width,
  units: layout.units,
  tail: layout.tail,
  tails_at: layout.tailsAt,
  scales_at: layout.scalesAt,
  tile_words: layout.tileWords,
  group_size: layout.groupSize,
  groups: layout.groups,
});
