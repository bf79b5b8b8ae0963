/** H2O: the mass of cached tokens, and the exchange of a pinned token for the one that leaves the ring. */
import type { KernelCall } from '../../kernels/registry.js';
import { isQuantised, storageOfVariant } from '../../kernels/spec.js';
import { cacheBytes, capacityOf, rowLayout, type RowLayout } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { read, u32, write, type BufferPlan, type OperationPlan, type Step } from '../plan.js';
import { dimensions, requirePositive, requireVariant } from '../shape.js';
import { storeConstants, storeUniforms } from './append.js';

const MASS_WORKGROUP = 128;
const EVICT_WORKGROUP = 64;

export interface MassOptions {
  /** Slots of a row: the context, rounded up to whole tiles, unless given. */
  readonly capacity?: number;
}

/** Buffers: scores [query head][slot], stats [query head] (m, l), mass [row][slot]. */
export function planMass(call: KernelCall, options: MassOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'group', 'context');
  requirePositive(call, s);
  const slots = capacityOf(options.capacity ?? s.context);
  requireShape(slots >= s.context, `mass: ${s.context} tokens do not fit ${slots} slots`);
  return {
    buffers: [
      { name: 'scores', role: 'input', content: 'f32', bytes: s.rows * s.group * slots * 4 },
      { name: 'stats', role: 'input', content: 'f32', positive: true, bytes: s.rows * s.group * 8 },
      { name: 'mass', role: 'state', content: 'f32', positive: true, bytes: s.rows * slots * 4 },
    ],
    steps: [
      {
        source: 'mass',
        element: 'f32',
        constants: {},
        uniforms: [u32(slots), u32(s.group)],
        buffers: [...read('scores', 'stats'), ...write('mass')],
        workgroups: [Math.ceil(slots / MASS_WORKGROUP), s.rows, 1],
      },
    ],
    tuning: { workgroup: MASS_WORKGROUP },
  };
}

/** A cache that loses and gains what a row evicts. */
export interface EvictedCache {
  /** Name of its buffer. */
  readonly name: string;
  readonly width: number;
  /** Cached rows that one evicting row decides for, one after the other: 1 unless given. */
  readonly rows?: number;
}

export interface EvictOptions {
  /** Evicting rows of a sequence: 1 unless given. */
  readonly heads?: number;
  /** Slots before the ring, of which `context` are filled at most: the context unless given. */
  readonly pinned?: number;
  /** Slots of the ring: as many as are pinned unless given. */
  readonly ring?: number;
  /** Slots of a cached row: pinned and ring unless given. */
  readonly capacity?: number;
  /** A key cache and a value cache of half the width each unless given. */
  readonly caches?: readonly EvictedCache[];
}

/** An evicted cache as a call's buffers hold it. */
interface CacheLayout extends Required<EvictedCache> {
  readonly layout: RowLayout;
  readonly content: 'f16' | 'f32';
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
  const content = isQuantised(storage) || storage === 'f16' ? 'f16' : 'f32';
  return caches.map((c) => ({ ...c, layout: rowLayout(storage, c.width, s.groupSize), content }));
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
 * Buffers: spans, mass, positions, moves (scratch), and the caches by name. `context` is the number of tokens pinned at
 * most.
 */
export function planEvict(call: KernelCall, options: EvictOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'context', 'width', 'groupSize');
  requirePositive(call, s, 'groupSize');
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
    uniforms: [heads, capacity, pinned, ring, heavy].map(u32),
    buffers: [...read('spans'), ...write('mass', 'positions', 'moves')],
    workgroups: [s.rows, 1, 1],
  };
  const copies = caches.map((c): Step => ({
    source: 'evict_copy',
    element: 'f32',
    constants: storeConstants(c.layout),
    uniforms: [...storeUniforms(c.layout), u32(capacity)],
    buffers: [...read('moves'), ...write(c.name)],
    workgroups: [c.rows, s.rows, 1],
  }));
  return { buffers, steps: [choose, ...copies], tuning: { workgroup: EVICT_WORKGROUP } };
}
