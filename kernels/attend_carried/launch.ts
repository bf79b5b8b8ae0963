/** Attention of a chunk in several calls: attend_carried.wgsl. */
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { planChunk } from '../shared/attention/prefill.launch.js';

/** True where rows of the chunk itself are among those attended to. */
export const attendsToItself = ({ variant }: KernelCall): boolean => variant.endsWith('+own');

/**
 * Buffers: those of attend_prefill, of which `output` is also read where attention continues an earlier call, and
 * statistics.
 */
const plan: Launch['plan'] = (call, { prefill: options = {}, tuning }) => {
  const own = attendsToItself(call);
  return planChunk(call, options, tuning, { own, carries: true, carried: options.carried ?? !own });
};

export const launch: Launch = { plan };
