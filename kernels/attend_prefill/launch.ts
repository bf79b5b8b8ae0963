/** Causal attention of a chunk: attend_prefill.wgsl. */
import type { PrefillOptions } from '../attention-options.js';
import type { Tuning } from '../options.js';
import { requireShape } from '../host/errors.js';
import type { OperationPlan } from '../host/plan.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { planChunk } from '../shared/attention/prefill.launch.js';

/**
 * Buffers: queries, keys, values, output, spans; branchQueries and branchKeys with a branch. The scale is (key
 * width)^-½.
 */
function planAttendPrefill(call: KernelCall, options: PrefillOptions = {}, tuning?: Tuning): OperationPlan {
  requireShape(
    options.first === undefined && options.carried === undefined,
    'attend_prefill: rows begin at slot 0, and nothing is carried',
  );
  return planChunk(call, options, tuning, { own: true, carries: false, carried: false });
}

export const launch: Launch = {
  plan: (call, o) => planAttendPrefill(call, o.prefill, o.tuning),
};
