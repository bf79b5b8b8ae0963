/** H2O: which tokens of a prompt stay: evict_prefill.wgsl, evict_gather.wgsl. */
import { read, write, type Step } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { choiceOf } from '../shared/cache/evict.launch.js';

export const EVICT_WORKGROUP = 256;

/**
 * Buffers: runMass [row][token], mass and positions [row][slot], the caches by name, and the run's rows as `run` and
 * that name.
 */
const plan: Launch['plan'] = (call, { evictPrefill: options = {} }) => {
  const s = shapeOf<'evict_prefill'>(call, 'groupSize');
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
};

export const launch: Launch = { plan };
