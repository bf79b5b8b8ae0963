/** Prices of kernels under a runtime: its kernels of attention, and steps and prompts with what the host does. */
import type { Evidence, Interval, Price } from '../cost/evidence.js';
import {
  priceCalls,
  wordFor,
  type KernelShare,
  type Pricer,
  type RuntimePrices,
  type SchedulePrice,
} from '../cost/latency.js';
import { eachVariant } from '../cost/pricers.js';
import { clockOf, type DeviceSpec } from '../devices/catalogue.js';
import { takesWhole } from '../codecs/registry.js';
import { forEachPrefillCall } from '../schedule/prefill/calls.js';
import { runSchedule, type HowTaken } from '../schedule/prefill/prefill.js';
import { forEachOp } from '../schedule/expand.js';
import { schedule, type Configuration, type Stage } from '../schedule/schedule.js';
import { KERNELS, type KernelCall } from '../../kernels/registry.js';
import type { CallExplanation } from '../cost/explain.js';
import type { Shape } from '../../kernels/spec.js';
import type { TunedCall, TunedClass } from '../../kernels/tuned.js';
import type { Ends, Runtime } from './runtime.js';

/** Questions beside the runtime itself. */
export interface UnderRuntime {
  /** Share of the tokens that leave after loop 1, 2, …; null: all take all. */
  readonly shares: readonly number[] | null;
  /** Tokens of a chunk of prompts. */
  readonly chunkTokens: number;
}

/** The same kernels, called by the server that the runtime is of. */
export function underRuntime(tables: Pricer, runtime: Runtime, spec: DeviceSpec, of: UnderRuntime): Pricer {
  const { name } = runtime.source;
  const kernels = runtime.choice.attention.promptRows ? promptsAsRows(tables) : tables;
  const ruleOf = attentionRule(runtime, spec);
  return {
    ...kernels,
    price: eachVariant((kernel, variant) => (call) => {
      const price = kernels.price(call);
      const rule = ruleOf(KERNELS[kernel].tuned(call.shape, variant), call.shape as Shape);
      return rule ? slower(price, rule) : price;
    }),
    ...(kernels.explain ? { explain: explained(kernels, ruleOf, runtime.choice.attentionName) } : {}),
    stepOverhead: { estimate: 0, low: 0, high: 0, evidence: 'measured', by: name },
    source: name,
    runtime: stepsOf(runtime, of),
  };
}

const DECODES: readonly TunedClass[] = ['decode-attention'];
const PREFILLS: readonly TunedClass[] = ['prefill-attention'];

/**
 * Kernels to which each token of a prompt is a sequence of its own. What its neighbours have read comes from the GPU's
 * cache: memory does not decide, and a prompt's attention has no slowdown.
 */
function promptsAsRows(kernels: Pricer): Pricer {
  const own = (call: KernelCall): KernelCall => {
    const tuned = KERNELS[call.kernel].tuned(call.shape, call.variant);
    if (!tuned || !PREFILLS.includes(tuned.class)) return call;
    const { sequences = 1, kvHeads = 1, group = 1, context = 0, queries = 0, ...widths } = call.shape as Shape;
    const { keyWidth = 0, valueWidth = 0 } = widths;
    const rows = { sequences: sequences * queries, kvHeads, group, context: context + queries / 2 };
    const none = { branchWidth: 0, branchHeads: 1, groupSize: 0, splits: 1 };
    return { ...call, kernel: 'attend', variant: 'f16', shape: { ...rows, keyWidth, valueWidth, ...none } };
  };
  return {
    ...kernels,
    price: (call) => kernels.price(own(call)),
    ...(kernels.explain ? { explain: (call) => kernels.explain!(own(call)) } : {}),
  };
}

/** What a server's own kernel of attention takes: so many times another's, and at least what a unit walks. */
interface AttentionRule {
  readonly slowdown: number;
  /** Tokens that one unit reads alone, and the seconds of that. */
  readonly walked: number;
  readonly least: number;
}

function attentionRule({ choice }: Runtime, spec: DeviceSpec) {
  const { slowdown, unsplit } = choice.attention;
  /** Blocks that walk `tokens` each, side by side on the GPU's units: they wait for memory, or for each other. */
  const rule = (times: number, blocks: number, tokens: number): AttentionRule => {
    if (!unsplit) return { slowdown: times, walked: 0, least: 0 };
    const pace = unsplit.clockHertz / clockOf(spec);
    const each = blocks / spec.units;
    const least = tokens * pace * Math.hypot(unsplit.secondsPerToken, unsplit.secondsPerTokenOfOthers * each);
    return { slowdown: times, walked: tokens, least };
  };
  return (tuned: TunedCall | null, shape: Shape): AttentionRule | null => {
    if (!tuned) return null;
    const { sequences = 1, kvHeads = 1, group = 1, context = 0, queries = 0 } = shape;
    if (DECODES.includes(tuned.class)) return rule(slowdown, sequences * kvHeads * group, context);
    // Without kernels for prompts each of their tokens is a row.
    if (PREFILLS.includes(tuned.class)) return rule(1, sequences * queries * kvHeads * group, context + queries / 2);
    return null;
  };
}

function slower(price: Price, { slowdown, least }: AttentionRule): Price {
  const estimate = Math.max(price.estimate * slowdown, least);
  const by = estimate / price.estimate;
  return { ...price, estimate, low: price.low * by, high: price.high * by };
}

/** An explanation says what the server's own attention does to the price. */
function explained(
  kernels: Pricer,
  ruleOf: ReturnType<typeof attentionRule>,
  attention: string,
): (call: KernelCall) => CallExplanation {
  return (call) => {
    const why = kernels.explain!(call);
    const rule = ruleOf(KERNELS[call.kernel].tuned(call.shape, call.variant), call.shape as Shape);
    const price = kernels.price(call);
    const { estimate } = price;
    if (!rule || slower(price, rule).estimate === estimate) return why;
    const { slowdown, walked, least } = rule;
    const what =
      least > slowdown * estimate
        ? `${attention} attention divides no sequence, so one unit of the GPU walks ${Math.round(walked)} tokens ` +
          'alone, at a pace fitted to published steps'
        : `${attention} attention takes ${slowdown} times as long`;
    return { ...why, rule: { what, from: estimate } };
  };
}

/** Loops that tokens take on average. */
export const meanLoops = (shares: readonly number[]): number =>
  shares.reduce((sum, share, i) => sum + share * (i + 1), 0);

/**
 * The runtime of a configuration. Nobody counted in a server what a codec launches beyond the full cache: it is what
 * the schedule has more.
 */
export function runtimeFor(runtime: Runtime, c: Configuration): Runtime {
  let more = known.get(c);
  if (more === undefined) {
    const { layers, loops } = c.geometry;
    const full: Configuration = { ...c, codec: { kind: 'full' }, path: 'full', materialised: false, eviction: null };
    known.set(c, (more = Math.max(0, callsOf(c) - callsOf(full)) / (layers * loops)));
  }
  return runtime.withMore(more);
}
/** Launches by configuration: every step of a plan asks for them. */
const known = new WeakMap<Configuration, number>();

/** Calls of the looped layers in a step. */
function callsOf(c: Configuration): number {
  const core = schedule(c, 1, 1024).stages.filter((stage) => stage.kind === 'stack' && stage.block.name === 'core');
  let calls = 0;
  forEachOp(c, { stages: core, collectives: [] }, (_, times) => (calls += times));
  return calls;
}

function stepsOf(runtime: Runtime, { shares, chunkTokens }: UnderRuntime): RuntimePrices {
  const { host, hostFrom, terms } = runtime.source;
  return {
    host: { secondsPerLaunch: host, row: null, step: null, ...hostFrom },
    spread: terms.spread,
    heldOut: terms.source.heldOut,
    step: (c, kernels, batch, context) => {
      const own = runtimeFor(runtime, c);
      const { loops, preludeLayers, codaLayers } = c.geometry;
      const rows = Math.max(1, Math.round(runtime.rowsOfPass(batch)));
      const parts = partsOf(c, kernels, batch, context);
      const core = rows === batch ? parts.core : partsOf(c, kernels, rows, context).core;
      const alike = shares === null || shares.includes(1);
      const mean = shares === null ? loops : meanLoops(shares);
      const passes = (mean * batch) / rows;
      // Sequences that are in step pass their boundaries together; else in each pass some do.
      const boundaries = alike && rows === batch ? 1 : passes * (1 - (1 - 1 / mean) ** rows);
      const planes = batch * (loops - mean);
      const whole = priceCalls(kernels, c.gpus, (add) => {
        const s = schedule(c, batch, context);
        forEachOp(c, s, add);
        return { collectives: s.collectives, submissions: 1 };
      });
      // Tokens that leave early read less.
      const least = shares === null ? (whole.floor?.memory ?? 0) : 0;
      return priced(runtime, whole, least, (end, launch) => {
        const ends = (part: Interval, of = 1): Ends => ({ kernels: part[end] / of, launch });
        return (
          passes * own.pass(rows, ends(core, loops)) +
          boundaries * (own.boundary(preludeLayers, ends(parts.before)) + own.boundary(codaLayers, ends(parts.after))) +
          own.copies(planes, launch)
        );
      });
    },
    prompt: (c, kernels, { promptTokens, method }) => {
      const own = runtimeFor(runtime, c);
      const chunks = takesWhole(c.codec) ? 1 : Math.ceil(promptTokens / chunkTokens);
      const each = promptTokens / chunks;
      const taken = { method: chunks === 1 ? method : 'chunked', chunkTokens: Math.ceil(each) } as const;
      const whole = priceCalls(kernels, c.gpus, (add) => forEachPrefillCall(c, { ...taken, promptTokens }, add));
      const shares = sharesOfChunks(c, kernels, chunks, Math.round(each), taken);
      return priced(runtime, whole, 0, (end, launch) =>
        shares.reduce(
          (seconds, share) => seconds + own.chunk(each, { kernels: share * whole[end], launch }),
          own.boundary(c.geometry.codaLayers, { kernels: 0, launch }),
        ),
      );
    },
  };
}

/** What each chunk takes of its prompt's kernels: a later one attends to more. */
function sharesOfChunks(c: Configuration, kernels: Pricer, chunks: number, tokens: number, taken: HowTaken): number[] {
  if (chunks === 1) return [1];
  const at = (from: number): number =>
    priceCalls(kernels, c.gpus, (add) => {
      const run = runSchedule(c, { from, tokens }, { ...taken, ends: false });
      forEachOp(c, run, add);
      return { collectives: run.collectives, submissions: 0 };
    }).estimate;
  const [first, last] = [at(0), at((chunks - 1) * tokens)];
  const times = Array.from({ length: chunks }, (_, i) => first + ((last - first) * i) / (chunks - 1));
  const sum = (chunks * (first + last)) / 2;
  return times.map((seconds) => seconds / sum);
}

/** Kernels of a step before, in and after the loops. */
function partsOf(
  c: Configuration,
  kernels: Pricer,
  batch: number,
  context: number,
): Record<'before' | 'core' | 'after', Interval> {
  const { stages } = schedule(c, batch, context);
  const core = stages.findIndex((stage) => stage.kind === 'stack' && stage.block.name === 'core');
  const sum = (some: readonly Stage[]): Interval =>
    priceCalls(kernels, c.gpus, (add) => {
      forEachOp(c, { stages: some, collectives: [] }, add);
      return { collectives: [], submissions: 0 };
    });
  return {
    before: sum(stages.slice(0, core)),
    core: sum(stages.slice(core, core + 1)),
    after: sum(stages.slice(core + 1)),
  };
}

/**
 * A price with its runtime, of the kernels' price.
 * @param leastSeconds that no kernels could beat
 * @param seconds of the whole where the kernels, and the host, take what an end of their interval says
 */
function priced(
  { source, widened }: Runtime,
  whole: SchedulePrice,
  leastSeconds: number,
  seconds: (kernelsEnd: keyof Interval, launch: number) => number,
): SchedulePrice {
  const { host } = source;
  const estimate = seconds('estimate', host.estimate);
  const kernels = Math.min(estimate, whole.estimate);
  const rest = estimate - kernels;
  const evidence: Evidence = source.hostFrom === null ? 'extrapolated' : 'interpolated';
  const shares = Object.entries(whole.evidenceShare).map(([word, share]) => [word, (share * kernels) / estimate]);
  const evidenceShare = Object.fromEntries(shares) as Record<Evidence, number>;
  evidenceShare[evidence] += rest / estimate;
  const pricedBy: Record<string, number> = {};
  for (const [by, share] of Object.entries(whole.pricedBy)) if (share > 0) pricedBy[by] = (share * kernels) / estimate;
  const by = `${source.name} runtime`;
  pricedBy[by] = rest / estimate;
  // Its own width is what a slower or faster host changes; what kernels change is theirs.
  const around: KernelShare = {
    kernel: 'step-overhead',
    calls: 1,
    estimate: rest,
    low: Math.max(0, seconds('estimate', host.low) - kernels),
    high: seconds('estimate', host.high) - kernels,
    evidence,
    by,
  };
  return {
    ...whole,
    estimate,
    low: Math.max(widened(estimate, 'low', seconds('low', host.low)), Math.min(estimate, leastSeconds)),
    high: widened(estimate, 'high', seconds('high', host.high)),
    evidence: wordFor(evidenceShare),
    evidenceShare,
    pricedBy,
    byKernel: [...whole.byKernel.filter((k) => k.kernel !== around.kernel), around],
    ofKernels: { estimate, low: seconds('low', host.estimate), high: seconds('high', host.estimate) },
  };
}
