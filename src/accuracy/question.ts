/** What a user would ask for a row of the ledger: the row's own model, GPU, flags and load, and nothing else. */
import { join, resolve } from 'node:path';
import { CODEC_KINDS } from '../codecs/codec.js';
import { isPreset } from '../geometry/presets.js';
import type { Geometry } from '../geometry/geometry.js';
import { PACKAGE_ROOT } from '../io/root.js';
import type { Row } from '../schema/ledger-file.js';
import type { Server, Workload } from '../schema/serving.js';
import type { Scenario } from '../schema/settings.js';
import { acceptanceOf, publishedAcceptance } from '../serving/speculation.js';
import { SERVERS } from '../schema/serving.js';
import { isRuntime } from '../stacks/serving.js';
import { defined } from '../present.js';

/** So many loops of a share of the tokens. */
interface Depth {
  readonly loops: number;
  readonly share: number;
}

/** Sequences that are left when others have ended, and loops of their tokens. */
type Left = Pick<Scenario, 'batch' | 'workload'>;

/** A row as a question. */
export type Question =
  /** Steps of one batch: `plan --batch`. Each share of the tokens takes so many loops, or the steps of `left`. */
  | {
      readonly by: 'plan';
      readonly scenario: Scenario;
      readonly batch: number;
      readonly loops: readonly (Depth & { readonly left?: Left })[];
      /** Tokens that the row's rate counts for each step of a sequence: with the first token more than one. */
      readonly tokensPerStep: number;
    }
  /** Requests: `simulate`. */
  | { readonly by: 'simulate'; readonly scenario: Scenario }
  /** Rounds of proposals of one batch, all its prompts cached before. */
  | {
      readonly by: 'rounds';
      readonly scenario: Scenario;
      readonly batch: number;
      readonly promptTokens: number;
      readonly outputTokens: number;
    }
  /** What the server's cache holds. */
  | { readonly by: 'memory'; readonly scenario: Scenario }
  | { readonly by: 'nothing'; readonly why: string };

/**
 * A benchmark starts all its users at once. Where its source does not say how many requests each sends: so many, whose
 * outputs differ by so much that users do not stay in step. Chosen on rows that fit.
 */
const REQUESTS_A_USER = 5;
const OUTPUTS_DIFFER = 0.1;

/**
 * What a user would ask, and what else the row may mean where its source leaves it open: the first is the estimate, the
 * interval spans all.
 * @param folder that paths in the row are relative to
 */
export function questionsOf(row: Row, folder: string, readGeometry: () => Geometry): Question[] {
  const { workload: w } = row;
  const first = questionOf(row, folder, readGeometry);
  // Of rows that fit constants are taken by the first reading.
  if (row.use === 'fits' || (first.by !== 'simulate' && first.by !== 'rounds')) return [first];
  // How many proposals were accepted: as published for the model, and up to all.
  const draft = speculationOf(w);
  const published = draft && draft.acceptance === undefined && publishedAcceptance(row.model, draft.draftLoops ?? 2);
  if (published)
    return [
      first,
      ...[published.low, 1].map((draftAcceptance) => {
        const { scenario } = first;
        return { ...first, scenario: { ...scenario, workload: { ...scenario.workload, draftAcceptance } } };
      }),
    ];
  if (first.by === 'rounds') return [first];
  // Where the source does not say whether the cache was in 8 bits, too.
  if (row.open?.includes(CACHE_OPEN))
    return [first, { by: 'simulate', scenario: { ...first.scenario, cacheType: 'fp8' } }];
  // Users whose outputs are equally long stay in step: each waits for all prompts, and no prompt comes between steps.
  if (w.kind === 'closed-loop' && w.requests === undefined) {
    const outputTokens = lengthsOf(w.outputTokens);
    const { scenario } = first;
    return [first, { by: 'simulate', scenario: { ...scenario, workload: { ...scenario.workload, outputTokens } } }];
  }
  if (w.kind !== 'single') return [first];
  const { promptsCounted, ...batch } = w;
  const decoding = (): Question => {
    const workload = { ...batch, kind: 'decode-only' as const, firstTokenCounted: true };
    return questionOf({ ...row, workload }, folder, readGeometry);
  };
  if (promptsCounted === false) return [decoding(), { by: 'memory', scenario: first.scenario }];
  return row.open?.includes(PROMPTS_OPEN) ? [first, decoding()] : [first];
}

/** Files of `ledger/traces` with the lengths of a set of prompts, by the name that rows have for it. */
const LENGTHS: Readonly<Record<string, string>> = { ShareGPT: 'sharegpt-lengths.jsonl' };
const CACHE_OPEN = 'type of the cache';
const PROMPTS_OPEN = 'whether the rate counts the prompts';

function questionOf(row: Row, folder: string, readGeometry: () => Geometry): Question {
  const why = unpriced(row, resolve(folder) === OWN_FOLDER);
  if (why !== null) return { by: 'nothing', why };
  const { workload: w } = row;
  const scenario = settingsOf(row, folder);
  const geometry = readGeometry();
  const { weights } = row.precision;
  if (FEWER_BITS.includes(weights) && !geometry.quantised)
    return { by: 'nothing', why: `weights in ${weights}: name a model file that says how they are stored` };
  if (w.kind === 'boot') return { by: 'memory', scenario };
  if (w.kind === 'trace')
    return { by: 'simulate', scenario: { ...scenario, workload: { trace: resolve(folder, w.trace) } } };
  const [prompt, output] = [meanOf(w.inputTokens), meanOf(w.outputTokens)];
  if (prompt === null || output === null)
    return { by: 'nothing', why: 'the source does not say how long prompts and outputs are' };
  const depths = depthsOf(w.exit, geometry.loops);
  if (typeof depths === 'string') return { by: 'nothing', why: depths };
  // A server that schedules loop by loop mixes depths; of others each share of the tokens has its own step.
  const mixed = isRuntime(scenario.stack) && depths.length > 1;
  const draft = speculationOf(w);
  if (w.kind === 'decode-only' && !draft)
    return {
      by: 'plan',
      // Contexts grow from the prompt's by one a step, and attention's time with them.
      scenario: {
        ...scenario,
        context: Math.round(prompt + output / 2),
        batch: w.concurrency,
        ...(mixed ? { workload: { depth: sharesOf(depths, geometry.loops) } } : {}),
      },
      batch: w.concurrency,
      loops: !mixed
        ? depths
        : w.exit?.ofRequests
          ? untilTheDeepest(depths, w.concurrency, geometry.loops)
          : [{ loops: geometry.loops, share: 1 }],
      tokensPerStep: w.firstTokenCounted ? output / Math.max(1, output - 1) : 1,
    };
  const inTurns = depths.length === 1 && depths[0]!.loops === geometry.loops;
  const asked = {
    by: 'simulate' as const,
    scenario: {
      ...scenario,
      workload: {
        ...arrivalsOf(w),
        ...drawnFrom(w),
        promptTokens: lengthsOf(w.inputTokens),
        outputTokens: lengthsOf(w.kind === 'closed-loop' && w.requests === undefined ? around(output) : w.outputTokens),
        ...defined({
          depth: inTurns ? undefined : sharesOf(depths, geometry.loops),
          draftAcceptance:
            draft?.acceptance === undefined ? undefined : acceptanceOf(draft.acceptance, draft.draftTokens),
        }),
      },
      server: {
        ...scenario.server,
        ...(inTurns ? {} : { depthBatching: 'loops', skippedKv: 'copy' }),
        ...defined({ draftTokens: draft?.draftTokens, draftLoops: draft?.draftLoops }),
      },
    },
  };
  if (w.kind !== 'decode-only') return asked;
  const { concurrency: batch } = w;
  const server = { ...asked.scenario.server, maxNumBatchedTokens: Math.max(2048, batch * prompt) };
  const rounds = { batch, promptTokens: Math.round(prompt), outputTokens: Math.round(output) };
  return { by: 'rounds', scenario: { ...asked.scenario, server }, ...rounds };
}

const speculationOf = (w: Row['workload']): Load['speculation'] => ('speculation' in w ? w.speculation : undefined);

/** Why the planner has no answer to a row, whatever its load; null where it may have one. */
function unpriced({ use, because, device, deviceName, codec, workload: w }: Row, published: boolean): string | null {
  if (use === 'out-of-reach') return because;
  if (device === undefined) return `${deviceName} is not in the catalogue`;
  if (codec && isBuiltFor(codec)) return published ? LLA : LLA_PATHS;
  if (codec && !CODEC_KINDS.some((kind) => kind === codecName(codec))) return `${codec.name} is not planned`;
  if (speculationOf(w)?.method === 'ngram')
    return 'how often repeats of the text are what the model says is not published';
  return null;
}

/** The package's ledger. */
export const OWN_FOLDER = join(PACKAGE_ROOT, 'ledger');

const LLA = 'what built kernels of LLA reach is taken from this very table (plan --notes, published)';
const LLA_PATHS =
  'LLA has a time for each of its paths, and rows do not say which ran (plan --codec lla --all shows them)';

/** Weights that servers store in several ways; the model's config.json says which. */
const FEWER_BITS: readonly string[] = ['int8', 'int4', 'nvfp4'] satisfies Row['precision']['weights'][];

type Compressed = NonNullable<Row['codec']>;

/** Kernels of LLA are priced as published, by the tables that such a row is of. */
const isBuiltFor = ({ name }: Compressed): boolean => name === 'lla';

/** What the planner calls a codec. */
const codecName = ({ name }: Compressed): string => (name === 'residualquant' ? 'residual-quant' : name);

/** The flags of the row, as a scenario. */
function settingsOf({ model, device, parallel, precision, server: s, workload, codec }: Row, folder: string): Scenario {
  const stack = SERVERS.find((name) => s.name === name);
  const { replicas, prefill, decode } = parallel ?? {};
  // A server whose own limit is eight was started for as many as the source says ran.
  const server: Server = defined({
    maxNumSeqs: s.maxNumSeqs ?? (isRuntime(stack) && 'concurrency' in workload ? workload.concurrency : undefined),
    maxNumBatchedTokens: s.maxNumBatchedTokens,
    maxModelLen: s.maxModelLen,
    batchWaitTimeoutIters: s.batchWaitTimeoutIters,
    batchWaitMaxTokensRatio: s.batchWaitMaxTokensRatio,
    blockTokens: s.blockTokens,
    kvBlocks: s.kvBlocks,
    watermark: s.watermark,
    replicas: decode ?? replicas,
    prefillReplicas: prefill,
    prefixCaching: onOff(s.prefixCaching),
    chunkedPrefill: onOff(s.chunkedPrefill),
    asyncScheduling: onOff(s.scheduling && s.scheduling !== 'sync'),
    serverVersion: stack && s.version,
  });
  const runtime = isRuntime(stack) ? s : undefined;
  return defined({
    model: isPreset(model) ? model : resolve(folder, model),
    device: device!,
    codec: [codec === undefined ? 'full' : codecName(codec)],
    window: codec?.windowTokens,
    ratio: codec?.ratio === undefined ? undefined : [codec.ratio],
    ranks: codec?.ranks === undefined ? undefined : [codec.ranks],
    server,
    gpus: parallel?.tensor,
    stack,
    execution: runtime?.execution,
    attention: runtime?.attention,
    utilization: s.utilization,
    cacheType: precision.cache === 'fp8' ? 'fp8' : undefined,
    weightType: precision.weights === 'fp8' ? 'fp8' : undefined,
  });
}

const onOff = (on: boolean | undefined): 'on' | 'off' | undefined => (on === undefined ? undefined : on ? 'on' : 'off');

type Load = Extract<Row['workload'], { kind: 'decode-only' | 'closed-loop' | 'single' | 'rate' }>;

function arrivalsOf(w: Load): Workload {
  if (w.kind === 'rate')
    return w.requestsPerSecond === null
      ? { arrivals: 'closed', users: w.requests, requests: w.requests, ramp: 0 }
      : {
          arrivals: 'poisson',
          rate: w.requestsPerSecond,
          requests: w.requests,
          ...defined({ maxConcurrency: w.maxConcurrency }),
        };
  const { concurrency: users } = w;
  const requests = w.kind === 'closed-loop' ? (w.requests ?? REQUESTS_A_USER * users) : users;
  return { arrivals: 'closed', users, requests, ramp: 0 };
}

type Tokens = Load['inputTokens'];

export function meanOf(tokens: Tokens): number | null {
  if (tokens === null || typeof tokens === 'number') return tokens;
  const { mean, each, min, max } = tokens;
  if (each) return each.reduce((a, b) => a + b, 0) / each.length;
  return mean ?? (min === undefined || max === undefined ? null : (min + max) / 2);
}

const around = (tokens: number): Tokens => ({
  min: Math.max(1, Math.round(tokens * (1 - OUTPUTS_DIFFER))),
  max: Math.round(tokens * (1 + OUTPUTS_DIFFER)),
});

/** Lengths of a set of prompts that is known, where a row has means alone: they are far from equal. */
function drawnFrom({ dataset, inputTokens, outputTokens }: Load): { lengthsOf?: string } {
  const isMean = (tokens: Tokens): boolean =>
    tokens !== null && typeof tokens === 'object' && tokens.mean !== undefined && tokens.deviation === undefined;
  const file = dataset === undefined ? undefined : LENGTHS[dataset];
  return file !== undefined && isMean(inputTokens) && isMean(outputTokens)
    ? { lengthsOf: join(PACKAGE_ROOT, 'ledger/traces', file) }
    : {};
}

/** Lengths in the words of `--prompt-tokens`. */
function lengthsOf(tokens: Tokens): string {
  if (tokens !== null && typeof tokens === 'object') {
    const { mean, deviation, min, max, each } = tokens;
    if (mean !== undefined && deviation !== undefined) return `lognormal:${Math.round(mean)}:${Math.round(deviation)}`;
    if (mean === undefined && min !== undefined && max !== undefined) return `uniform:${min}-${max}`;
    if (each && new Set(each).size > 1) return `uniform:${Math.min(...each)}-${Math.max(...each)}`;
  }
  return String(Math.max(1, Math.round(meanOf(tokens)!)));
}

/** How many loops tokens take: all alike, or two neighbouring numbers that have the mean; else why nobody knows. */
function depthsOf(exit: Load['exit'], loops: number): readonly Depth[] | string {
  if (exit?.shares) return exit.shares.map((share, i) => ({ loops: i + 1, share })).filter((d) => d.share > 0);
  const mean = exit === undefined ? loops : exit.meanLoops;
  if (mean === undefined)
    return exit?.threshold === 1 ? [{ loops, share: 1 }] : 'the source does not say how many loops tokens took';
  const below = Math.min(loops, Math.floor(mean));
  const share = mean - below;
  return share === 0 || below === loops
    ? [{ loops: below, share: 1 }]
    : [
        { loops: below, share: 1 - share },
        { loops: below + 1, share },
      ];
}

/**
 * Requests that each keep a depth of their own run until the deepest has its tokens: while all run, for the passes of
 * the shallowest, then without it.
 */
const untilTheDeepest = (depths: readonly Depth[], batch: number, loops: number): (Depth & { left: Left })[] =>
  depths.map((depth, i) => {
    const rest = depths.slice(i);
    const requests = rest.reduce((sum, { share }) => sum + share, 0);
    const mean = rest.reduce((sum, one) => sum + one.share * one.loops, 0) / requests;
    const among = rest.map((one) => ({ loops: one.loops, share: one.share / requests }));
    const left = { batch: Math.max(1, Math.round(requests * batch)), workload: { depth: sharesOf(among, loops) } };
    return { loops, share: (depth.loops - (depths[i - 1]?.loops ?? 0)) / mean, left };
  });

const sharesOf = (depths: readonly Depth[], loops: number): string =>
  Array.from({ length: loops }, (_, i) => depths.find((d) => d.loops === i + 1)?.share ?? 0).join(',');
