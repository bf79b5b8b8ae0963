/** The caches of a batch: one buffer for each row set of a layer and loop, and part of the sequences. */
import type { CacheTensor } from '../../codecs/layout.js';
import { blocksOf } from '../../geometry/geometry.js';
import { cacheBytes, rowLayout } from '../../../kernels/host/cache-layout.js';
import { GpuError, type Buffer } from '../../gpu/index.js';
import { residualCacheBytes } from '../../../kernels/shared/cache/residual.layout.js';
import type { CacheRole } from '../../schedule/bind/refs.js';
import { CacheMap } from '../../schedule/cache-map.js';
import { sequenceBytes } from '../../schedule/cache-parts.js';
import type { Configuration, Place } from '../../schedule/configuration.js';
import { padded, type AllocationKind, type Allocations } from './allocations.js';

/** @throws GpuError `unsupported` for what no binding holds, however the sequences are divided */
function requireBindable(c: Configuration, caches: CacheMap): void {
  const { capacity } = caches.slots;
  const limit = `${c.bindingBytes} bytes that the device binds at once (maxStorageBufferBindingSize)`;
  for (const block of blocksOf(c.geometry)) {
    const bytes = sequenceBytes(c, block, capacity);
    const size = caches.parts(block.name)[0]?.count ?? 1;
    if (bytes > c.bindingBytes)
      throw new GpuError(
        'unsupported',
        `one layer and loop of one sequence takes ${bytes} bytes at ${capacity} tokens, more than the ${limit}: ` +
          'take a shorter context or a smaller cache',
      );
    if (bytes * size > c.bindingBytes)
      throw new GpuError(
        'unsupported',
        `parts of ${size} sequences, each of which begins where a binding may, take more than the ${limit}: ` +
          'take a smaller batch or a shorter context',
      );
  }
}

export class Caches extends CacheMap {
  /** @param ahead @param name as CacheMap has them */
  constructor(
    private readonly c: Configuration,
    batch: number,
    contextTokens: number,
    pageTokens: number,
    private readonly allocations: Allocations,
    ahead = 0,
    name = 'cache',
  ) {
    super(c, batch, contextTokens, pageTokens, ahead, name);
  }

  /** @throws GpuError `unsupported` for what no part holds */
  async allocate(kind: AllocationKind = 'cache'): Promise<void> {
    requireBindable(this.c, this);
    for (const t of this.layout) {
      for (const { index, count } of this.parts(t.block)) {
        const shares = padded(kind, this.bytesOf(t, count));
        for (let layer = 0; layer < t.layers; layer++) {
          for (let loop = 0; loop < t.loops; loop++)
            await this.allocations.make(this.label(t, layer, loop, index), shares);
        }
      }
    }
  }

  /** Rows [sequence][head] of a part of the sequences; layers and loops that share rows have one buffer. */
  buffer(role: CacheRole, place: Place, loop = place.loop, part = 0): Buffer {
    return this.allocations.get(this.labelAt(role, place, loop, part));
  }

  /** Bytes of a sequence's rows of one role in a layer and loop. */
  bytesEach(role: CacheRole, place: Place): number {
    return this.bytesOf(this.tensor(role, place), 1);
  }

  private bytesOf(t: CacheTensor, sequences: number): number {
    const rows = sequences * t.heads;
    if (t.packed) return Math.ceil(rows * this.rowSlots(t) * t.packed.bytes * t.packed.share);
    return t.residual
      ? residualCacheBytes(t.residual, this.rowSlots(t), rows)
      : cacheBytes(rowLayout(t.storage, t.width, t.groupSize), this.rowSlots(t), rows);
  }

  *buffers(): Generator<{ tensor: CacheTensor; buffer: Buffer }> {
    for (const tensor of this.layout) {
      for (let layer = 0; layer < tensor.layers; layer++) {
        for (let loop = 0; loop < tensor.loops; loop++) {
          for (const { index } of this.parts(tensor.block))
            yield { tensor, buffer: this.allocations.get(this.label(tensor, layer, loop, index)) };
        }
      }
    }
  }
}
