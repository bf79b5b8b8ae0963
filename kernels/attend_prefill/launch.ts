/** Causal attention of a chunk: attend_prefill.wgsl. */
import { requireShape } from '../host/errors.js';
import type { Launch } from '../launch.js';
import { planChunk } from '../shared/attention/prefill.launch.js';

/**
 * Buffers: queries, keys, values, output, spans; branchQueries and branchKeys with a branch. The scale is (key
 * width)^-½.
 */
const plan: Launch['plan'] = (call, { prefill: options = {}, tuning }) => {
  requireShape(
    options.first === undefined && options.carried === undefined,
    'attend_prefill: rows begin at slot 0, and nothing is carried',
  );
  return planChunk(call, options, tuning, { own: true, carries: false, carried: false });
};

export const launch: Launch = { plan };
