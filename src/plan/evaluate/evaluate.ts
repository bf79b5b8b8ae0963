/** One candidate, evaluated: memory, maximum batch, decode time, published quality. */
import { group } from 'd3-array';
import { bytesPerToken } from '../../codecs/layout.js';
import { pathSpec } from '../../codecs/paths.js';
import {
  codecLabel,
  codecParameters,
  coreRatio,
  fullScalars,
  modelRatio,
  hasOwnStorage,
  isLatent,
  isUncompressed,
  layoutOf,
  isPacked,
  sharingOf,
} from '../../codecs/registry.js';
import { priceStep, type StepPrice } from '../../cost/latency.js';
import {
  maxBatch,
  memoryModel,
  onGrid,
  prefillPeaks,
  withoutWorkspace,
  totalBytes,
  type MemoryModel,
  type PrefillKind,
} from '../../cost/memory.js';
import { over } from '../../cost/evidence.js';
import { parameterCount } from '../../geometry/geometry.js';
import { pathClassOf, showsLoss } from '../../quality/figure.js';
import {
  qualityOf,
  reliableRetrieval,
  withTeachers,
  type ComparedFigure,
  type QualityQuery,
} from '../../quality/quality.js';
import type { Eviction } from '../../eviction/policy.js';
import type { Configuration } from '../../schedule/schedule.js';
import { listedAs, servedBy as stackServes, stackName } from '../../stacks/serving.js';
import { formatDecimalBytes } from '../../numbers/units.js';
import { defined, present } from '../../present.js';
import { candidateId, candidateOf } from '../ask/candidates.js';
import { isFullCache } from '../decide/representatives.js';
import { chanceWithin } from './chance.js';
import { keptHere, klLabel, measuredRow, retrievalHere, shareLabel } from './fidelity.js';
import { UNPRICED, type PromptPricer } from './prompt-time.js';
import { keptQuality, keptWithLoops, WHOLE } from './quality-kept.js';
import type { Mark } from '../answer-types.js';
import type { Candidate, DecodeFigures, LimitedBy, Plan, PlanRequest, PromptFigures } from '../types.js';

/** Below this published GSM8K the models at hand no longer reason: the uncompressed ones reach 0.79 and more. */
const RUINED_GSM8K = 0.2;

/** What a request says of every configuration. */
type Configured = Pick<PlanRequest, 'geometry' | 'choice' | 'branch' | 'gpus' | 'targetWorkgroups' | 'bindingBytes'>;

export function configurationOf(r: Configured, c: Candidate): Configuration {
  return {
    geometry: r.geometry,
    codec: c.codec,
    path: c.path,
    materialised: c.materialised,
    choice: r.choice,
    branch: r.branch,
    eviction: c.eviction,
    gpus: r.gpus,
    targetWorkgroups: r.targetWorkgroups,
    bindingBytes: r.bindingBytes,
  };
}

/** That of the plan with this id; undefined where the request has no such candidate. */
export function configurationOfPlan(r: PlanRequest, planId: string): Configuration | undefined {
  const candidate = candidateOf(r, planId);
  return candidate && configurationOf(r, candidate);
}

/** Bytes that plans may use: utilisation of the memory, less the reserve. */
export const usableBytes = (r: Pick<PlanRequest, 'device' | 'utilization' | 'reserveBytes'>): number =>
  Math.max(0, r.device.vramBytes * r.utilization - r.reserveBytes);

/** Stacks keep a full cache in 16 bits or in 8-bit floats and evict nothing. */
const isStacks = (r: Pick<PlanRequest, 'choice'>, c: Candidate): boolean =>
  isFullCache(c) && (r.choice.storage === 'f16' || r.choice.storage === 'f8');

/** The model without any loss, whatever is published of it. */
const isItself = (r: Pick<PlanRequest, 'choice' | 'geometry' | 'contextTokens'>, c: Candidate): boolean =>
  isUncompressed(c.codec) &&
  evicting(r, c) === null &&
  (r.choice.storage === 'f16' || r.choice.storage === 'f32') &&
  // What a server rounds as it loads is another model.
  !r.geometry.quantised?.whenLoaded;

/** Whether the working memory of steps and prompts lies in what the server reserves. */
export const isWithinReserve = (r: Pick<PlanRequest, 'choice' | 'server'>, c: Candidate): boolean =>
  r.server !== null && isStacks(r, c);

const NO_PEAKS: Readonly<Record<PrefillKind, number>> = { 'one-shot': 0, 'by-layer': 0, accumulated: 0, chunked: 0 };

/** What is priced of a candidate: its prompt not unless asked for, its step unless told otherwise. */
interface Priced {
  readonly prompts?: PromptPricer;
  readonly step?: boolean;
}

/** Evaluates a candidate. `pareto` is false until all candidates are known. */
export function evaluate(r: PlanRequest, candidate: Candidate, { prompts = UNPRICED, step = true }: Priced = {}): Plan {
  const c = configurationOf(r, candidate);
  const g = r.geometry;
  const { codec } = candidate;
  const usable = usableBytes(r);
  const served = isWithinReserve(r, candidate);
  const model = memoryModel(c, r.contextTokens, r.pageTokens);
  const m = served ? withoutWorkspace(model) : model;
  const exact = maxBatch(m, usable, r.server?.more);
  const peaks = served ? NO_PEAKS : prefillPeaks(c, r.contextTokens);
  const memoryOfPrefill = prefillFigures(r, m, peaks, usable);
  const prefill = { ...memoryOfPrefill, ...prompts(c, { maxBatch: { exact }, prefill: memoryOfPrefill }) };
  const batch = r.batch ?? exact;
  const fits = batch >= 1 && batch <= exact;
  const layout = layoutOf(g, codec, candidate.path, r.choice, r.branch);
  const query = qualityQuery(r, candidate);
  const quality = query ? withTeachers(qualityOf(query)) : [];
  const measured = measuredRow(r, candidate);
  const retrieval = query ? reliableRetrieval(query) : retrievalHere(measured);
  const kept = keptOf(r, candidate, { measured, query, quality });
  const decode = decodeFigures(r, c, fits && step ? batch : 0);
  // What holds nothing shows what the batch that was asked for (or one sequence) would need.
  const sized = fits ? batch : Math.max(1, r.batch ?? 1);
  const { rankK, rankV, bits, rankFirst, residual, tokens, constants, windowTokens, shareLayers } = codec;
  const { beyond, bytesEach } = r.server?.more ?? { beyond: 0, bytesEach: 0 };
  const sampling = Math.max(0, sized - beyond) * bytesEach;
  const reservedBytes = r.reserveBytes + sampling + Math.round(r.device.vramBytes * (1 - r.utilization));
  const plan: Omit<Plan, 'marks'> = {
    id: candidateId(g, candidate, r.cacheType),
    codec: {
      kind: codec.kind,
      label: codecLabel(g, codec),
      ...defined({ rankK, rankV, bits, rankFirst, residual, tokens, constants, windowTokens, shareLayers }),
      ...defined({ shared: sharingOf(codec) }),
      ratio: coreRatio(g, codec),
      modelRatio: modelRatio(g, layoutOf(g, codec, 'reconstruct', r.choice, { width: 0, perHead: false })),
      storedRatio: (fullScalars(g) * 2) / bytesPerToken(layout),
    },
    cacheType: residual ?? (isPacked(codec) ? 'int4' : bits === undefined ? r.cacheType : `int${bits}`),
    path: candidate.path,
    variant: pathSpec(candidate.path).materialises ? (candidate.materialised ? 'materialised' : 'fused') : null,
    eviction: candidate.eviction,
    ...(candidate.beside ? { beside: true } : {}),
    memory: {
      weightsBytes: m.weightsBytes,
      codecBytes: m.codecBytes,
      reservedBytes,
      workspaceBytes: m.workspaceFixedBytes + sized * m.workspaceBytesPerSequence,
      kvBytesPerToken: m.kvBytesPerToken,
      kvBytesPerSequence: m.kvBytesPerSequence,
      inFlightBytesPerSequence: m.inFlightBytesPerSequence,
      evictionBytesPerSequence: m.evictionBytesPerSequence,
      workspaceBytesPerSequence: m.workspaceBytesPerSequence,
      kvBytesAt1M: m.kvBytesAt1M,
      prefillPeakBytes: prefill.peakBytes,
      totalBytes: totalBytes(m, sized) + reservedBytes,
      usableBytes: usable,
    },
    maxBatch: { exact, onGrid: onGrid(exact) },
    limitedBy: limitedBy(m, usable, exact, prefill.fits),
    prefill,
    decode,
    servedBy: servedBy(r, candidate),
    breakEven: null,
    asPublished: null,
    knee: null,
    atTarget: null,
    nearest: null,
    chances: { tpot: null, ttft: promptChance(r, prefill) },
    quality,
    reliableRetrieval: retrieval,
    qualityKept: kept,
    ...(r.fidelity ? { measured } : {}),
    pareto: false,
  };
  return { ...plan, marks: marksOf(r, c, plan, m) };
}

/** How likely the first token comes in time; null without a target, without a price, or where a bracket cannot tell. */
function promptChance(r: PlanRequest, { secondsToFirstToken: seconds, evidence }: PromptFigures): number | null {
  const target = r.targets.secondsToFirstToken;
  return target === null || seconds === null || evidence === null ? null : chanceWithin({ seconds, evidence }, target);
}

function servedBy(r: PlanRequest, c: Candidate): string | null {
  const { stack, servingStack, servingVersion: version, tables } = r;
  if (servingStack === null || !isStacks(r, c) || !stackServes(listedAs(r), servingStack)) return null;
  if (stack !== servingStack) return r.server?.server ?? null;
  return version === null || tables === null || tables.version === version
    ? (r.pricer?.source ?? null)
    : `${stackName({ stack: servingStack, version })} with kernels of ${tables.version}`;
}

function prefillFigures(
  r: PlanRequest,
  m: MemoryModel,
  peaks: Record<PrefillKind, number>,
  usable: number,
): Omit<Plan['prefill'], keyof PromptFigures> {
  const peakBytes = peaks[r.prefill];
  // The sequence that is being encoded has its cache beside its accumulators, as the decoder has.
  const batchBesidePrefill = maxBatch(m, usable - peakBytes, r.server?.more);
  return { kind: r.prefill, peakBytes, fits: batchBesidePrefill >= 1, batchBesidePrefill, peakBytesByKind: peaks };
}

function limitedBy(m: MemoryModel, usable: number, exact: number, prefillFits: boolean): LimitedBy {
  if (m.weightsBytes >= usable) return 'weights';
  if (m.weightsBytes + m.codecBytes >= usable) return 'codec-parameters';
  if (exact >= 1 && !prefillFits) return 'prefill';
  const parts: [LimitedBy, number][] = [
    ['kv-cache', m.kvBytesPerSequence],
    ['workspace', m.workspaceBytesPerSequence + (exact === 0 ? m.workspaceFixedBytes : 0)],
    ['in-flight', m.inFlightBytesPerSequence + m.evictionBytesPerSequence],
  ];
  return parts.reduce((a, b) => (b[1] > a[1] ? b : a))[0];
}

const NO_DECODE = {
  secondsPerStep: null,
  tokensPerSecond: null,
  evidence: null,
  evidenceShare: null,
  kernels: null,
  pricedBy: null,
  breakEven: null,
  floor: null,
  unmeasured: null,
  octavesOutside: null,
  communicationPriced: true,
  usdPerMillionTokens: null,
};

function decodeFigures(r: PlanRequest, c: Configuration, batch: number): DecodeFigures {
  if (batch < 1 || !r.pricer) return { batch, ...NO_DECODE };
  return { ...figuresAt(r, priceStep(c, r.pricer, batch, r.contextTokens), batch), ...tunedAt(r, c, batch) };
}

/** The same step by tuned kernels, where a calibration prices and it is known what they reach. */
export function tunedAt(r: PlanRequest, c: Configuration, batch: number): Pick<DecodeFigures, 'attainable'> {
  if (!r.attainable) return {};
  const { estimate, low, high } = priceStep(c, r.attainable, batch, r.contextTokens);
  return { attainable: { estimate, low, high } };
}

/** Decoding at one batch, from the price of its step. */
export function figuresAt(r: PlanRequest, step: StepPrice, batch: number): DecodeFigures {
  const tokensPerSecond = over(batch, step);
  const usd = r.usdPerHour === null ? null : (r.usdPerHour * r.gpus * 1e6) / 3600;
  return {
    batch,
    secondsPerStep: { estimate: step.estimate, low: step.low, high: step.high },
    tokensPerSecond,
    evidence: step.evidence,
    evidenceShare: step.evidenceShare,
    kernels: step.evidence === 'roofline' ? 'datasheet' : step.evidence === 'attainable' ? 'attainable' : r.stack,
    pricedBy: step.pricedBy,
    breakEven: null,
    floor: step.floor,
    unmeasured: step.unmeasured,
    octavesOutside: step.octavesOutside,
    communicationPriced: step.communicationPriced,
    usdPerMillionTokens: usd === null ? null : over(usd, tokensPerSecond),
  };
}

/** How much of the model's quality a row keeps; null where nothing tells. */
function keptOf(
  r: PlanRequest,
  candidate: Candidate,
  of: {
    readonly measured: ReturnType<typeof measuredRow>;
    readonly query: QualityQuery | null;
    readonly quality: Plan['quality'];
  },
): Plan['qualityKept'] {
  if (leavesEarly(r)) return null;
  if (r.fidelity) return keptHere(r, candidate, of.measured);
  if (of.query) return keptQuality(of.query, of.quality, r.contextTokens, r.targets.minimums);
  if (!isItself(r, candidate)) return null;
  return r.geometry.trained ? keptWithLoops(r.geometry) : WHOLE;
}

/** Tokens leave before their last loop: no score of all loops is theirs. */
export const leavesEarly = ({ meanLoops, geometry }: Pick<PlanRequest, 'meanLoops' | 'geometry'>): boolean =>
  meanLoops !== undefined && meanLoops < geometry.loops - 1e-9;

/** What to ask the published tables for; null when nothing published can hold (another model, a cache in 8 bits). */
function qualityQuery(r: PlanRequest, c: Candidate): QualityQuery | null {
  if (r.publishedAs === null || leavesEarly(r) || r.geometry.quantised || r.fidelity || c.codec.constants) return null;
  const coarse = r.choice.storage === 'f8' || r.choice.storage.startsWith('q');
  if (coarse && !hasOwnStorage(c.codec)) return null;
  return {
    model: r.publishedAs,
    codec: c.codec.kind,
    shared: c.codec.shared,
    windowTokens: c.codec.windowTokens,
    ratio: coreRatio(r.geometry, c.codec),
    pathClass: pathClassOf(c.codec.kind, c.path),
    eviction: evicting(r, c),
  };
}

/** The eviction of a candidate; null where it keeps every token of the question's context, as without one. */
const evicting = ({ contextTokens }: Pick<PlanRequest, 'contextTokens'>, { eviction }: Candidate): Eviction | null =>
  eviction && eviction.budgetTokens >= contextTokens ? null : eviction;

/** Why nobody would take this path where the codec has another: it saves no memory, or computes something else. */
function unlikePublished({ codec, path }: Pick<Candidate, 'codec' | 'path'>) {
  const { restores, branch } = pathSpec(path);
  if (restores) return 'no-memory-saved' as const;
  return branch && isLatent(codec) ? ('unfaithful-post-hoc' as const) : null;
}

/** The same of a request. A path is not marked where its own measured quality is within `--keep`. */
export function unlikeWanted(r: PlanRequest, c: Candidate) {
  const unlike = unlikePublished(c);
  if (unlike !== 'unfaithful-post-hoc' || !r.fidelity) return unlike;
  const kept = keptHere(r, c, measuredRow(r, c));
  return kept !== null && kept.share >= r.keep ? null : unlike;
}

function marksOf(r: PlanRequest, c: Configuration, p: Omit<Plan, 'marks'>, m: MemoryModel): Mark[] {
  const mark = (code: Mark['code'], message: string): Mark => ({ code, message });
  const parameters = codecParameters(r.geometry, c.codec, c.path, c.branch);
  const own = parameterCount(r.geometry);
  const unlike = unlikeWanted(r, { ...c, eviction: c.eviction ?? null });
  const generation = p.quality.find((q) => q.metric === 'gsm8k' && q.value < RUINED_GSM8K);
  const error = p.quality.find(showsLoss);
  const here =
    p.measured && `KL ${klLabel(p.measured.kl)}, top-1 ${p.measured.top1 ? shareLabel(p.measured.top1) : 'unknown'}`;
  const frozen = 'on a frozen model the paper measures reconstruction KL 0.30 to 0.55 against 0.059';
  const contradicted = contradictedMetrics(p.quality);
  return present([
    parameters > own &&
      mark(
        'codec-outweighs-model',
        `the codec's ${billions(parameters)} parameters (${formatDecimalBytes(m.codecBytes)}) outweigh the model's ` +
          billions(own),
      ),
    unlike === 'no-memory-saved' && mark(unlike, 'the fast path caches full-width K and V: it saves no memory'),
    p.maxBatch.exact >= 1 &&
      !p.prefill.fits &&
      mark(
        'prefill-does-not-fit',
        `${p.prefill.kind} prefill of ${r.contextTokens} tokens needs ${formatDecimalBytes(p.prefill.peakBytes)} ` +
          'beside the weights and does not fit; use another --prefill',
      ),
    generation &&
      mark('destroys-generation', `published GSM8K is ${generation.value.toFixed(3)} (${generation.source})`),
    error &&
      mark(
        'destroys-generation',
        `its published error is ${error.value} times that of lla at the same budget (${error.source})`,
      ),
    unlike === 'unfaithful-post-hoc' &&
      mark(
        unlike,
        'absorbed needs a model trained or adapted for its rotary branch; ' +
          (here ? `measured here: ${here}` : frozen),
      ),
    contradicted.length > 0 &&
      mark('contradicted-quality', `published figures disagree for ${contradicted.join(', ')}`),
    !p.decode.communicationPriced &&
      mark('communication-not-priced', 'communication between GPUs is not in the time: no figure for the link'),
  ]);
}

const billions = (n: number): string => `${(n / 1e9).toFixed(n < 1e10 ? 2 : 1)} B`;

/**
 * Metrics whose published figures for one plan differ by more than 0.05, each held against the uncompressed model's in
 * its own table: groups score that differently, too.
 */
export function contradictedMetrics(figures: readonly ComparedFigure[]): string[] {
  const compared = figures.filter((f) => f.unit === 'fraction' && f.contextTokens === null && !f.isTeacher);
  return [...group(compared, ({ metric }) => metric)].flatMap(([metric, own]) => {
    const values = own.map((f) => f.value - (f.teacher ?? 0));
    return Math.max(...values) - Math.min(...values) > 0.05 ? [metric] : [];
  });
}
