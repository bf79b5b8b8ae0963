/** H2O: which tokens of a chunk and of the cache before it stay: evict_chunk.wgsl, evict_gather.wgsl. */
import { requireShape } from '../host/errors.js';
import { read, u32, write, type BufferPlan, type Step } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { EVICT_WORKGROUP } from '../evict_prefill/launch.js';
import type { Launch } from '../launch.js';
import { choiceOf } from '../shared/cache/evict.launch.js';

/** Buffers: those of evict_prefill, and sources [row][slot] (scratch). */
const plan: Launch['plan'] = (call, { evictChunk: options = {} }) => {
  const s = shapeOf<'evict_chunk'>(call, 'groupSize');
  const choice = choiceOf(call, s, options);
  const { room, capacity, pinned, ring, heavy, firstRow } = choice;
  const { position = s.held } = options;
  const pinnedHeld = Math.max(0, s.held - ring);
  requireShape(
    s.held < s.context && s.held <= position,
    `evict_chunk: ${s.held} of ${s.context} tokens cannot be held before position ${position}`,
  );
  requireShape(
    pinnedHeld <= heavy,
    `evict_chunk: ${s.held} held tokens are more than ${heavy} pinned ones and a ring of ${ring}`,
  );
  const choose: Step = {
    source: 'evict_chunk',
    element: 'f32',
    constants: { WG: EVICT_WORKGROUP },
    uniforms: {
      held: s.held,
      pinned_held: pinnedHeld,
      tokens: s.context,
      position,
      room,
      capacity,
      pinned,
      ring,
      heavy,
      first_row: firstRow,
    },
    buffers: [...read('runMass'), ...write('mass', 'positions', 'sources')],
    workgroups: [s.rows, 1, 1],
  };
  const sources: BufferPlan = u32('sources', 'scratch', (firstRow + s.rows) * capacity);
  return {
    buffers: [...choice.buffers, sources],
    steps: [choose, ...choice.copies('sources')],
    tuning: { workgroup: EVICT_WORKGROUP },
  };
};

export const launch: Launch = { plan };
