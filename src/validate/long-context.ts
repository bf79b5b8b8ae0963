/**
 * Long context: the predicted step at a million tokens, and the error of the prediction at the longest context whose
 * cache this device can hold and bind.
 */
import { priceStep } from '../cost/latency.js';
import type { Evidence, Interval } from '../cost/evidence.js';
import { memoryModel, totalBytes } from '../cost/memory.js';
import { rowBytes as bytesOfRow } from '../codecs/layout.js';
import { layoutOf } from '../codecs/registry.js';
import type { Device } from '../gpu/index.js';
import type { Configuration } from '../schedule/schedule.js';
import { checkSteps, type StepRow, type StepRules } from './latency.js';

const MILLION = 2 ** 20;

export interface LongContextReport {
  readonly id: string;
  /** The step that was measured; null where the decoder does not execute it. */
  readonly measured: StepRow | null;
  readonly reason: string | null;
  /** The limit of the measured context: memory and bindings of the device, or the time budget. */
  readonly boundedBy: 'memory' | 'time';
  readonly atMillion: {
    readonly contextTokens: number;
    /** Cache of one sequence, and all that the decoder would allocate. */
    readonly cacheBytes: number;
    readonly totalBytes: number;
    readonly secondsPerStep: Interval;
    readonly evidence: Evidence;
    readonly octavesOutside: number;
  };
}

/** The longest power of two of tokens whose rows a binding and the memory hold. */
export function longestContext(c: Configuration, memoryBytes: number): number {
  const rowBytes = Math.max(
    ...layoutOf(c.geometry, c.codec, c.path, c.choice, c.branch).map((t) => t.heads * bytesOfRow(t)),
  );
  let context = 1024;
  while (
    context < MILLION &&
    2 * context * rowBytes <= c.bindingBytes &&
    totalBytes(memoryModel(c, 2 * context, 32), 1) <= memoryBytes
  )
    context *= 2;
  return context;
}

/** A step runs about this often: to compile, and in each round whole and operation by operation. */
const RUNS = 8;

/** Measures a step of one sequence there, and prices one at a million tokens. */
export async function checkLongContext(
  device: Device,
  id: string,
  c: Configuration,
  rules: Omit<StepRules, 'openBytes'> & { readonly memoryBytes: number },
): Promise<LongContextReport> {
  const longest = longestContext(c, rules.memoryBytes);
  let contextTokens = longest;
  while (
    contextTokens > 1024 &&
    RUNS * priceStep(c, rules.calibrated.pricer, 1, contextTokens).estimate > rules.budget.seconds
  )
    contextTokens /= 2;
  const alone = { ...rules, openBytes: Infinity };
  const { steps, notRun } = await checkSteps(device, [{ id, c, batch: 1, contextTokens }], alone);
  const m = memoryModel(c, MILLION, 32);
  // Bindings do not bound an extrapolation: a calibrated GPU that holds a million tokens binds them in parts as the
  // schedule says.
  const price = priceStep(c, rules.calibrated.pricer, 1, MILLION);
  return {
    id,
    measured: steps[0] ?? null,
    reason: notRun[0]?.reason ?? null,
    boundedBy: contextTokens < longest ? 'time' : 'memory',
    atMillion: {
      contextTokens: MILLION,
      cacheBytes: m.kvBytesPerSequence,
      totalBytes: totalBytes(m, 1),
      secondsPerStep: { estimate: price.estimate, low: price.low, high: price.high },
      evidence: price.evidence,
      octavesOutside: price.octavesOutside,
    },
  };
}
