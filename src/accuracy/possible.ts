/**
 * Whether a row can be what it says without prompts that were found in a prefix cache. Users of a closed loop wait for
 * a first token, then for the others: so the source itself says how many prompts a second passed the GPUs. Kernels of a
 * GPU run one after another, and none is faster than here.
 */
import { findDevice } from '../devices/find.js';
import type { Geometry } from '../geometry/geometry.js';
import type { Row } from '../schema/ledger-file.js';
import { meanOf } from './question.js';

/**
 * Shares of the datasheet's rate of the fastest product in calibrations/stacks: vLLM on B300, and on H200 in 8 bits.
 */
const FASTEST_PRODUCT = { bf16: 0.97, fp8: 0.85 } as const;

/**
 * Share of their time that the GPUs of a row need at least for what the source says they did, all prompts being
 * computed: above 1 some were not. Null where the source does not say enough.
 */
export function needOf(row: Row, geometry: () => Geometry): number | null {
  const { workload: w, figures, device, precision, gpus } = row;
  if (w.kind !== 'closed-loop' || device === undefined || row.parallel?.replicas !== undefined) return null;
  const [prompt, output] = [meanOf(w.inputTokens), meanOf(w.outputTokens)];
  const [first, each] = [figures.ttftSeconds?.mean, figures.tpotSeconds?.mean];
  if (prompt === null || output === null || first === undefined || each === undefined) return null;
  const [spec, g] = [findDevice(device), geometry()];
  const fp8 = precision.weights === 'fp8';
  const peak = spec.matrixFlopsPerSecond * gpus * (spec.matrixHalved ? 2 : 1);
  const products = FASTEST_PRODUCT[fp8 ? 'fp8' : 'bf16'] * peak * (fp8 ? 2 : 1);
  const calls = g.layers * g.loops + g.preludeLayers + g.codaLayers;
  // Attention's matrices and those of its MLP; norms, adapters and the head are left out, so that this stays the least.
  const weights =
    g.hidden * g.headDim * 2 * (g.heads + g.kvHeads) + (g.mlp === 'gated' ? 3 : 2) * g.hidden * g.mlpHidden;
  const tokenSeconds = (2 * calls * weights) / products;
  // Causal: half of all pairs, two products of a head each.
  const attending = (2 * calls * g.heads * g.headDim * prompt ** 2) / peak;
  const cachedBytes = 2 * calls * g.kvHeads * g.headDim;
  const reading = ((output - 1) * (prompt + output / 2) * cachedBytes) / (gpus * spec.memoryBytesPerSecond);
  const cycle = first + (output - 1) * each;
  const request = (prompt + output) * tokenSeconds + attending + reading;
  return Math.max((w.concurrency * request) / cycle, (prompt * tokenSeconds + attending) / first);
}

/** A server's prefix cache is on or off for all that a campaign asks of it. */
export const campaignOf = (file: string, row: Row): string => JSON.stringify([file, row.campaign]);
