/** The kernel calls that real decode steps of a model contain: what a calibration measures, and how much hangs on each. */
import { rooflinePrice, type Rates } from '../cost/roofline.js';
import type { CodecKind } from '../codecs/codec.js';
import { parseEviction } from '../eviction/policy.js';
import type { Geometry } from '../geometry/geometry.js';
import { listCandidates } from '../plan/candidates.js';
import { GROUP_SIZE, type KernelCall } from '../schedule/kernels.js';
import { forEachOp, schedule, type Configuration } from '../schedule/schedule.js';

/** Token budgets of the published eviction runs: scores, masses and pinned slots are operations of their own. */
const EVICTIONS = ['none', 'streaming:4+508', 'h2o:256+256'];
/** Codecs that are measured without eviction alone: every storage type with scores is a kernel that takes seconds to compile. */
const WITHOUT_EVICTION: readonly CodecKind[] = ['kv-quant'];

/** A step of a number of sequences, all of the same length, and how much it counts. */
export interface AnchorStep {
  readonly context: number;
  readonly batch: number;
  readonly weight: number;
}

export interface AnchorRange {
  readonly steps: readonly AnchorStep[];
  readonly targetWorkgroups: number;
  /** Largest binding of the device, bytes. */
  readonly bindingBytes: number;
  /** Rough rates of such a device: they tell which operations carry a step. */
  readonly rates: Rates;
}

const stepsOf = (contexts: readonly number[], batches: readonly number[], weight: number): AnchorStep[] => contexts.flatMap((context) => batches.map((batch) => ({ context, batch, weight })));

/**
 * Steps whose shapes are measured, as far as memory and budget allow, and rough rates of such a device. A software adapter serves few
 * sequences; more of them are there so that kernels whose time depends on the batch alone have points enough for a fit.
 */
export const ANCHOR_RANGES: Record<'software' | 'hardware', Pick<AnchorRange, 'steps' | 'rates'>> = {
  software: {
    steps: [...stepsOf([256, 512, 1024, 2048, 4096, 8192, 16384], [1, 2, 4, 8], 1), ...stepsOf([512, 4096], [6], 1), ...stepsOf([256], [10, 12, 16, 24, 32], 0.05)],
    rates: { bytesPerSecond: 1e10, f32FlopsPerSecond: 4e10, matrixFlopsPerSecond: null },
  },
  hardware: {
    steps: stepsOf([256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], 1),
    rates: { bytesPerSecond: 2e12, f32FlopsPerSecond: 3e13, matrixFlopsPerSecond: null },
  },
};

/** A call and how much it carries: the squared share of the step's time, summed over the steps that contain it by their weight. */
export interface Anchor extends KernelCall {
  readonly share: number;
}

/** Distinct calls of the steps of every candidate of the planner: all codecs, published ratios, paths and evictions. */
export function anchorCalls(g: Geometry, range: AnchorRange): Anchor[] {
  const calls = new Map<string, { call: KernelCall; share: number }>();
  const { candidates } = listCandidates(g, { kinds: null, ratios: null, ranks: null, paths: null, evictions: EVICTIONS.map((text) => parseEviction(text, 'eviction')) });
  for (const candidate of candidates) {
    if (candidate.eviction && WITHOUT_EVICTION.includes(candidate.codec.kind)) continue;
    const c: Configuration = {
      geometry: g, ...candidate, choice: { storage: 'f16', groupSize: GROUP_SIZE }, branch: { width: 64, perHead: false }, gpus: 1, targetWorkgroups: range.targetWorkgroups, bindingBytes: range.bindingBytes,
    };
    for (const step of range.steps) collect(calls, c, step, range.rates);
  }
  return [...calls.values()].map(({ call, share }) => ({ ...call, share }));
}

function collect(calls: Map<string, { call: KernelCall; share: number }>, c: Configuration, { batch, context, weight }: AnchorStep, rates: Rates): void {
  const own = new Map<string, { call: KernelCall; seconds: number }>();
  let total = 0;
  forEachOp(c, schedule(c, batch, context), ({ kernel, variant, shape }, times) => {
    const key = `${kernel} ${variant} ${Object.entries(shape).flat().join(' ')}`;
    const known = own.get(key) ?? { call: { kernel, variant, shape }, seconds: 0 };
    const seconds = times * rooflinePrice(known.call, rates).estimate;
    own.set(key, { call: known.call, seconds: known.seconds + seconds });
    total += seconds;
  });
  for (const [key, { call, seconds }] of own) calls.set(key, { call, share: (calls.get(key)?.share ?? 0) + weight * (seconds / total) ** 2 });
}
