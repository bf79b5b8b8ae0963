/**
 * The kernel calls that real decode steps and prompts of a model contain: what a calibration measures, and the share of
 * a step's time that each has.
 */
import { rooflinePrice, type Rates } from '../../cost/roofline.js';
import type { CodecKind } from '../../codecs/codec.js';
import { parseEviction } from '../../eviction/policy.js';
import type { Geometry } from '../../geometry/geometry.js';
import { listCandidates } from '../../plan/ask/candidates.js';
import type { KernelCall } from '../../../kernels/registry.js';
import { GROUP_SIZE } from '../../../kernels/spec.js';
import type { Candidate } from '../../plan/types.js';
import { promptKey } from '../../plan/evaluate/prompt-time.js';
import { forEachPrefillCall, type PromptPlan } from '../../schedule/prefill/calls.js';
import { forEachOp } from '../../schedule/expand.js';
import { schedule, type Configuration } from '../../schedule/schedule.js';

/** Token budgets of the published eviction runs: H2O's scores and pinned slots are operations of their own. */
const EVICTIONS = ['none', 'streaming:4+508', 'h2o:256+256'];
/**
 * Codecs that are measured only without eviction: a variant with scores for every storage type would take seconds to
 * compile each.
 */
const WITHOUT_EVICTION: readonly CodecKind[] = ['kv-quant'];

/** A step of a number of sequences, all of the same length, and how much it counts. */
interface AnchorStep {
  readonly context: number;
  readonly batch: number;
  readonly weight: number;
}

/** A prompt, and how much its prefill counts. */
interface AnchorPrompt extends PromptPlan {
  readonly weight: number;
}

export interface AnchorRange {
  readonly steps: readonly AnchorStep[];
  readonly prompts: readonly AnchorPrompt[];
  readonly targetWorkgroups: number;
  /** Largest binding of the device, bytes. */
  readonly bindingBytes: number;
  /** Rough rates of such a device. They decide which operations take most of a step. */
  readonly rates: Rates;
}

const stepsOf = (contexts: readonly number[], batches: readonly number[], weight: number): AnchorStep[] =>
  contexts.flatMap((context) => batches.map((batch) => ({ context, batch, weight })));

/** Prompts count for at most this share of everything: plans are chosen by decoding. */
const PROMPT_SHARE = 0.2;
/**
 * Candidates with eviction likewise. Each keeps the same tokens at every context, so that without this the kernels of
 * latents would be measured at that length alone.
 */
const EVICTION_SHARE = 0.2;

const beside = (
  steps: readonly AnchorStep[],
  prompts: readonly PromptPlan[],
): Pick<AnchorRange, 'steps' | 'prompts'> => {
  const all = steps.reduce((sum, { weight }) => sum + weight, 0) / (1 - PROMPT_SHARE);
  return { steps, prompts: prompts.map((prompt) => ({ ...prompt, weight: (PROMPT_SHARE * all) / prompts.length })) };
};

const prompt = (method: PromptPlan['method'], promptTokens: number, chunkTokens?: number): PromptPlan => ({
  method,
  promptTokens,
  ...(chunkTokens === undefined ? {} : { chunkTokens }),
});

/**
 * Steps whose shapes are measured, as far as memory and budget allow, and rough rates of such a device. A software
 * adapter serves few sequences; more of them are there so that kernels whose time depends on the batch alone have
 * points enough for a fit. Products of a chunk of 2048 tokens take seconds there, so prompts are short, and long
 * prompts in small chunks cover attention's contexts.
 */
export const ANCHOR_RANGES: Record<'software' | 'hardware', Pick<AnchorRange, 'steps' | 'prompts' | 'rates'>> = {
  software: {
    ...beside(
      [
        ...stepsOf([256, 512, 1024, 2048, 4096, 8192, 16384], [1, 2, 4, 8], 1),
        ...stepsOf([512, 4096], [6], 1),
        ...stepsOf([256], [10, 12, 16, 24, 32], 0.05),
      ],
      [
        ...[32, 64, 128, 256, 512].map((tokens) => prompt('accumulated', tokens)),
        prompt('accumulated', 2048, 128),
        prompt('chunked', 256, 32),
        prompt('chunked', 512, 64),
        prompt('chunked', 2048, 128),
      ],
    ),
    rates: { bytesPerSecond: 1e10, f32FlopsPerSecond: 4e10, matrixFlopsPerSecond: null },
  },
  hardware: {
    ...beside(
      stepsOf(
        [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144],
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        1,
      ),
      [
        ...[256, 512, 1024, 2048, 8192, 32768, 131072].map((tokens) => prompt('accumulated', tokens)),
        prompt('chunked', 2048, 512),
        prompt('chunked', 8192, 2048),
        prompt('chunked', 65536, 2048),
      ],
    ),
    rates: { bytesPerSecond: 2e12, f32FlopsPerSecond: 3e13, matrixFlopsPerSecond: null },
  },
};

/**
 * A call and its weight: the squared share of a step's or prompt's time, summed by weight over the steps and prompts
 * that contain it.
 */
export interface Anchor extends KernelCall {
  readonly share: number;
}

/**
 * Distinct calls of the steps and prompts of every candidate of the planner: all codecs, published ratios, paths and
 * evictions. They are 9,000 for Ouro-1.4B, which takes seconds.
 */
export const anchorCalls = (g: Geometry, range: AnchorRange): Anchor[] =>
  callsOf(g, range, {
    kinds: null,
    ratios: null,
    ranks: null,
    paths: null,
    evictions: EVICTIONS.map((text) => parseEviction(text, 'eviction')),
  });

/** Calls of the steps of the full cache and of LLA at its most usual ratio: listed in a moment. */
export const firstCalls = (g: Geometry, range: AnchorRange): Anchor[] =>
  callsOf(
    g,
    { ...range, prompts: [] },
    { kinds: ['full', 'lla'], ratios: [4], ranks: null, paths: null, evictions: [parseEviction('none', 'eviction')] },
  );

/** A candidate with caches in f16. */
export const configurationOf = (
  geometry: Geometry,
  candidate: Candidate,
  { targetWorkgroups, bindingBytes }: Pick<Configuration, 'targetWorkgroups' | 'bindingBytes'>,
): Configuration => ({
  geometry,
  ...candidate,
  choice: { storage: 'f16', groupSize: GROUP_SIZE },
  branch: { width: 64, perHead: false },
  ...{ gpus: 1, targetWorkgroups, bindingBytes },
});

/** Weight of a candidate with eviction beside one without: all of the former together have EVICTION_SHARE of all. */
const evictionWeight = (without: number, evicted: number): number =>
  evicted === 0 || without === 0 ? 1 : (EVICTION_SHARE * without) / ((1 - EVICTION_SHARE) * evicted);

function callsOf(g: Geometry, range: AnchorRange, filter: Parameters<typeof listCandidates>[1]): Anchor[] {
  const shares = new Shares(range.rates);
  const prompts = new Map<string, { c: Configuration; candidates: number }>();
  const { candidates: all } = listCandidates(g, filter);
  const listed = all.filter(({ codec, eviction }) => !eviction || !WITHOUT_EVICTION.includes(codec.kind));
  const evicted = listed.filter(({ eviction }) => eviction).length;
  const evictedWeight = evictionWeight(listed.length - evicted, evicted);
  for (const candidate of listed) {
    const own = candidate.eviction ? evictedWeight : 1;
    const c = configurationOf(g, candidate, range);
    for (const { context, batch, weight } of range.steps)
      shares.collect(weight * own, batch, (visit) => forEachOp(c, schedule(c, batch, context), visit));
    const key = promptKey(c);
    const alike = prompts.get(key) ?? { c, candidates: 0 };
    prompts.set(key, { ...alike, candidates: alike.candidates + own });
  }
  for (const { c, candidates } of prompts.values())
    for (const { weight, ...prompt } of range.prompts)
      shares.collect(weight * candidates, `prompt ${prompt.promptTokens}`, (visit) =>
        forEachPrefillCall(c, prompt, visit),
      );
  return shares.anchors();
}

/** A call, the roofline's seconds of one run, and its seconds in the step or prompt that is collected. */
interface Tallied {
  readonly call: KernelCall;
  readonly each: number;
  seconds: number;
  share: number;
}

/** Distinct calls of steps and prompts, each priced once, and their shares so far. */
class Shares {
  private readonly known = new Map<string, Tallied>();
  private readonly lists = new Map<string | number, Tallied[]>();

  constructor(private readonly rates: Rates) {}

  /**
   * Adds the calls of one step or prompt.
   * @param like steps or prompts of one name have many calls in common at the same places, which are found there first
   */
  collect(
    weight: number,
    like: string | number,
    forEach: (visit: (call: KernelCall, times: number) => void) => void,
  ): void {
    const list = this.lists.get(like) ?? [];
    this.lists.set(like, list);
    const own = new Set<Tallied>();
    let place = 0;
    let total = 0;
    forEach((call, times) => {
      const before = list[place];
      const tallied = before && areEqual(before.call, call) ? before : this.of(call);
      list[place++] = tallied;
      const seconds = times * tallied.each;
      if (!own.has(tallied)) tallied.seconds = 0;
      own.add(tallied);
      tallied.seconds += seconds;
      total += seconds;
    });
    for (const tallied of own) {
      tallied.share += weight * (tallied.seconds / total) ** 2;
    }
  }

  anchors(): Anchor[] {
    return [...this.known.values()].map(({ call, share }) => ({ ...call, share }));
  }

  private of({ kernel, variant, shape }: KernelCall): Tallied {
    let key = `${kernel} ${variant}`;
    for (const field in shape) key += ` ${shape[field]}`;
    const known = this.known.get(key);
    if (known) return known;
    const call = { kernel, variant, shape };
    const added = { call, each: rooflinePrice(call, this.rates).estimate, seconds: 0, share: 0 };
    this.known.set(key, added);
    return added;
  }
}

/** Calls of one kernel have the same fields. */
function areEqual(a: KernelCall, b: KernelCall): boolean {
  if (a.kernel !== b.kernel || a.variant !== b.variant) return false;
  for (const field in a.shape) if (a.shape[field] !== b.shape[field]) return false;
  return true;
}
