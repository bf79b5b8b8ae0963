/** H2O: which tokens of a prompt stay: evict_prefill.wgsl, evict_gather.wgsl. */
import { read, write, type OperationPlan, type Step } from '../../src/gpu/plan.js';
import { dimensions, requirePositive, requireVariant } from '../../src/gpu/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { choiceOf, type EvictedCache } from '../shared/evict.launch.js';

export const EVICT_WORKGROUP = 256;

export interface EvictPrefillOptions {
  /**
   * Slots before the ring, of which `heavy` are filled at most: half of those that stay, and all of them, unless given.
   */
  readonly pinned?: number;
  readonly heavy?: number;
  /** Slots of the ring: as many as stay beside the heavy ones unless given. */
  readonly ring?: number;
  /** Slots of a cached row: pinned and ring unless given. */
  readonly capacity?: number;
  /** Evicting rows before the first in mass, positions and caches; 0 unless given. */
  readonly firstRow?: number;
  /** Floats of a row of the run's masses, and slots of a row of the run; its tokens unless given. */
  readonly room?: number;
  readonly runCapacity?: number;
  /** A key cache and a value cache of half the width each unless given. */
  readonly caches?: readonly EvictedCache[];
}

/**
 * Buffers: runMass [row][token], mass and positions [row][slot], the caches by name, and the run's rows as `run` and
 * that name.
 */
function planEvictPrefill(call: KernelCall, options: EvictPrefillOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'context', 'kept', 'width', 'groupSize');
  requirePositive(call, s, 'groupSize');
  const choice = choiceOf(call, s, options);
  const { room, capacity, pinned, ring, heavy, firstRow } = choice;
  const choose: Step = {
    source: 'evict_prefill',
    element: 'f32',
    constants: { WG: EVICT_WORKGROUP },
    uniforms: { tokens: s.context, room, capacity, pinned, ring, heavy, first_row: firstRow },
    buffers: [...read('runMass'), ...write('mass', 'positions')],
    workgroups: [s.rows, 1, 1],
  };
  return {
    buffers: choice.buffers,
    steps: [choose, ...choice.copies('positions')],
    tuning: { workgroup: EVICT_WORKGROUP },
  };
}

export const launch: Launch = {
  plan: (call, o) => planEvictPrefill(call, o.evictPrefill),
};
