/** Reads the settings of a simulation: text and numbers from outside become a server and targets. */
import type { DeviceSpec } from '../devices/catalogue.js';
import { EXIT, UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import type { PlanRequest } from '../plan/types.js';
import { present } from '../present.js';
import {
  asked,
  choice,
  SERVER_SETTINGS,
  servingFlag,
  type Server,
  type ServerName,
  type Workload,
} from '../schema/serving.js';
import type { Scenario } from '../schema/settings.js';
import type { Host } from '../plan/ask/server.js';
import type { WorkloadChoice } from './workload/read.js';
import { checkedBlockTokens, serverDefaults, usualBlockTokens } from '../stacks/server-memory.js';
import {
  cachesPrefixes,
  dividesPrompts,
  isAsynchronous,
  reservesAnswer,
  takesPromptsFirst,
  watermarkOf,
} from '../stacks/serving.js';
import { parseNumber, parseRate, parseSeconds, parseTokens } from '../numbers/units.js';
import { readDepth, type Depth } from './depth.js';
import type { Targets } from './metrics.js';
import type { Capacity } from './price/capacity.js';
import type { ReportedTargets } from './types.js';
import type { BatchWait, Router } from './scheduler/options.js';
import { readSpeculation, type Speculation } from './speculation.js';
import type { Policy } from './scheduler/waiting.js';

/** The server's settings that do not depend on a candidate. */
export interface ServerChoice {
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly maxModelLen: number;
  readonly blockTokens: number;
  readonly kvBlocks: number | null;
  readonly chunkedPrefill: boolean;
  readonly promptsFirst: boolean;
  /** Share of the cache's blocks that stay free when a request begins beside others. */
  readonly watermark: number;
  readonly reserveAnswer: boolean;
  readonly batchWait: BatchWait | null;
  readonly prefixCaching: boolean;
  /** The server schedules while the GPU works: its own time adds nothing to an iteration. */
  readonly asyncScheduling: boolean;
  readonly policy: Policy;
  readonly replicas: number;
  readonly router: Router;
  readonly prefillReplicas: number;
  /** Of the cache to replicas that decode, bytes a second of a GPU; null where nobody said. */
  readonly transferBytesPerSecond: number | null;
  /** Null where every token takes all loops. */
  readonly depth: Depth | null;
  /** Null where tokens come one by one. */
  readonly speculation: Speculation | null;
}

/**
 * @param server that the answer names; null without one
 * @throws UserError naming the setting, its rule and the value
 */
export function readServer(
  s: Server,
  w: Workload,
  { geometry: model, publishedAs: preset, device, stack: prices, runtime }: PlanRequest,
  spec: DeviceSpec | null,
  server: Host | null,
): Omit<ServerChoice, 'maxModelLen'> & { readonly maxModelLen: number | null } {
  const flag = (name: ServerName): string => `--${servingFlag(name)}`;
  const whole = (name: ServerName, min: number, max: number, otherwise: number): number =>
    asked(s[name]) ? parseNumber(s[name], flag(name), { min, max, whole: true }) : otherwise;
  const on = (name: 'chunkedPrefill' | 'prefixCaching' | 'promptsFirst', otherwise: boolean): boolean =>
    asked(s[name]) ? choice(servingFlag(name), s[name], SERVER_SETTINGS[name].choices) === 'on' : otherwise;
  const host = server ?? (prices === null ? null : { stack: prices, version: null });
  const stack = host?.stack ?? null;
  // Of a server with a runtime of its own.
  const defaults = runtime?.source.terms.defaults;
  const usual = defaults
    ? { sequences: defaults.maxNumSeqs, batchedTokens: defaults.maxNumBatchedTokens }
    : serverDefaults(host, device.vramBytes, spec?.id ?? '');
  for (const name of ['chunkedPrefill', 'prefixCaching'] as const)
    if (model.promptsBothWays && s[name] === 'on')
      throw new UserError(
        `${flag(name)} on: tokens of a prompt attend to all of it in this model, so prompts are read whole`,
        `leave ${flag(name)} out`,
      );
  const tokens = asked(s.maxNumBatchedTokens) ? whole('maxNumBatchedTokens', 1, 2 ** 20, 1) : null;
  // A server lowers its own number of sequences to the tokens that an iteration has.
  const maxNumSeqs = whole('maxNumSeqs', 1, 2 ** 16, Math.min(usual.sequences, tokens ?? Infinity));
  const maxNumBatchedTokens = tokens ?? Math.max(maxNumSeqs, usual.batchedTokens);
  if (maxNumBatchedTokens < maxNumSeqs)
    throw new UserError(
      `--max-num-batched-tokens must be at least --max-num-seqs (${maxNumSeqs}), not ${maxNumBatchedTokens}`,
      'every sequence gets a token in each iteration: raise it, or lower --max-num-seqs',
    );
  const iterations = whole('batchWaitTimeoutIters', 0, 10_000, 0);
  const ratio = asked(s.batchWaitMaxTokensRatio)
    ? parseNumber(s.batchWaitMaxTokensRatio, flag('batchWaitMaxTokensRatio'), { min: 0, max: 1 })
    : 0;
  if (iterations > 0 !== ratio > 0)
    throw new UserError(
      `${flag('batchWaitTimeoutIters')} and ${flag('batchWaitMaxTokensRatio')} work together`,
      'give both, or neither',
    );
  const maxModelLen = asked(s.maxModelLen) ? parseTokens(String(s.maxModelLen), '--max-model-len') : null;
  const chunkedPrefill = on('chunkedPrefill', dividesPrompts(host, maxModelLen)) && !model.promptsBothWays;
  const prefillReplicas = whole('prefillReplicas', 0, 1024, 0);
  if (asked(s.transferRate) && prefillReplicas === 0)
    throw new UserError(
      `${flag('transferRate')} needs replicas that prefill`,
      `add for example ${flag('prefillReplicas')} 1, or leave ${flag('transferRate')} out`,
    );
  const transferBytesPerSecond = asked(s.transferRate) ? parseRate(String(s.transferRate), flag('transferRate')) : null;
  const reads = spec?.memoryBytesPerSecond ?? Infinity;
  if (transferBytesPerSecond !== null && transferBytesPerSecond > reads)
    throw new UserError(
      `${flag('transferRate')} must be at most ${reads / 1e9}GB/s, which the memory of ${spec?.name} reads`,
      `write what a transfer between your servers reached, or leave ${flag('transferRate')} out`,
    );
  return {
    maxNumSeqs,
    maxNumBatchedTokens,
    batchWait: iterations > 0 ? { iterations, tokens: ratio * maxNumBatchedTokens } : null,
    maxModelLen,
    blockTokens: checkedBlockTokens(whole('blockTokens', 1, 65_536, defaults ? 16 : usualBlockTokens(stack)), stack),
    kvBlocks: asked(s.kvBlocks) ? whole('kvBlocks', 1, 2 ** 30, 1) : null,
    chunkedPrefill,
    promptsFirst: on('promptsFirst', takesPromptsFirst(host, chunkedPrefill)),
    watermark: asked(s.watermark)
      ? parseNumber(s.watermark, flag('watermark'), { min: 0, max: 0.99 })
      : watermarkOf(host),
    reserveAnswer: reservesAnswer(stack),
    // What is cached of a token depends on its depth.
    prefixCaching:
      on('prefixCaching', cachesPrefixes(host)) &&
      !asked(w.depth) &&
      !asked(s.draftTokens) &&
      !defaults &&
      !model.promptsBothWays,
    asyncScheduling: isAsynchronous(s.asyncScheduling, server),
    policy: choice('policy', s.policy, SERVER_SETTINGS.policy.choices),
    replicas: whole('replicas', 1, 1024, 1),
    router: choice('router', s.router, SERVER_SETTINGS.router.choices),
    prefillReplicas,
    transferBytesPerSecond,
    depth: readDepth(w, s, model, preset, defaults !== undefined),
    speculation: readSpeculation(w, s, model, preset),
  };
}

/**
 * vLLM takes whole prompts only with an iteration as long as the longest request (vllm/config/scheduler.py,
 * verify_max_model_len), and makes it so unless told otherwise.
 * @throws UserError for one that is shorter, with which vLLM does not start
 */
export function wholePrompts(server: ServerChoice, host: Host | null, isGiven: boolean): ServerChoice {
  const { chunkedPrefill, maxNumBatchedTokens: tokens, maxModelLen: longest } = server;
  if (host?.stack !== 'vllm' || chunkedPrefill || tokens >= longest) return server;
  if (isGiven)
    throw new UserError(
      `--max-num-batched-tokens ${tokens} is less than --max-model-len (${longest}), with which vLLM does not start ` +
        'where --chunked-prefill is off',
      'raise it, leave it out, or lower --max-model-len',
    );
  return { ...server, maxNumBatchedTokens: longest };
}

/** What every request should get. */
const DEFAULT_TARGETS = { ttft: '2s', tpot: '80ms', percentile: 99 } as const;

/** Reads the targets of a run; a plan's targets of the same names are about a still picture. */
export function readTargets(s: Pick<Scenario, 'ttft' | 'tpot' | 'percentile'>): Targets {
  return {
    ttftSeconds: parseSeconds(String(s.ttft ?? DEFAULT_TARGETS.ttft), '--ttft', true),
    tpotSeconds: parseSeconds(String(s.tpot ?? DEFAULT_TARGETS.tpot), '--tpot'),
    tpotAsked: s.tpot !== undefined,
    share: parseNumber(s.percentile ?? DEFAULT_TARGETS.percentile, '--percentile', { min: 1, max: 99.99 }) / 100,
  };
}

/** Targets as a report has them. @param s the settings that they were read from */
export const reportedTargets = (
  { ttftSeconds, tpotSeconds, share }: Targets,
  s: Pick<Scenario, 'ttft' | 'tpot'>,
): ReportedTargets => ({
  ttftSeconds,
  tpotSeconds,
  percentile: Number((share * 100).toPrecision(12)),
  defaults: (['ttft', 'tpot'] as const).filter((name) => s[name] === undefined),
});

/** The error where no request of any run is taken: of what bounds them the setting that was asked for goes first. */
export function allRefused(
  runs: readonly { readonly id: string }[],
  { workload, server }: { readonly workload: WorkloadChoice; readonly server: ServerChoice },
  scenario: Scenario,
): UserError {
  const { meanPromptTokens, meanOutputTokens } = workload;
  if (scenario.server?.maxModelLen !== undefined && meanPromptTokens + meanOutputTokens > server.maxModelLen)
    return new UserError(
      `every request is refused: all are longer than --max-model-len ${server.maxModelLen}`,
      'raise it, or shorten them',
      EXIT.noSolution,
    );
  return new UserError(
    `every request is refused: all are longer than the cache of ${runs.map((run) => run.id).join(', ')}`,
    scenario.server?.kvBlocks === undefined
      ? 'shorten them, or take a larger GPU, more of them (--gpus) or a higher ratio'
      : 'raise --kv-blocks, or leave it out',
    EXIT.noSolution,
  );
}

/** Users that GPUs are counted for are those who wait. @throws UserError where requests come by themselves */
export function withUsers(scenario: Scenario): Scenario {
  const { users, workload = {} } = scenario;
  if (users === undefined || workload.users !== undefined) return scenario;
  const { arrivals = workload.rate === undefined ? 'closed' : 'poisson' } = workload;
  if (arrivals !== 'closed' || workload.trace !== undefined)
    throw new UserError(
      `users ${users} says nothing of requests that come by themselves`,
      'add arrivals: closed to the workload, or leave users out',
    );
  return { ...scenario, workload: { ...workload, arrivals, users } };
}

/** Where a server would not start as it was asked for, or has more memory than the GPU. */
export function beyondNotes(
  asked: Server,
  { maxModelLen: longest, blockTokens }: ServerChoice,
  { maxPositions, name }: Geometry,
  runs: readonly { readonly id: string; readonly kvBlocks: number; readonly capacity: Pick<Capacity, 'blocks'> }[],
): string[] {
  const named = asked.maxModelLen !== undefined || asked.kvBlocks !== undefined;
  return present([
    asked.maxModelLen !== undefined &&
      longest > maxPositions &&
      `--max-model-len ${longest} exceeds the ${maxPositions} positions that ${name} was trained for: memory and ` +
        'time hold, quality does not',
    ...runs.map(
      ({ id, kvBlocks }) =>
        named &&
        kvBlocks * blockTokens < longest &&
        `servers do not start with --max-model-len ${longest}: the cache of ${id} holds ` +
          `${kvBlocks * blockTokens} tokens`,
    ),
    ...runs.map(
      ({ id, kvBlocks, capacity }) =>
        kvBlocks > capacity.blocks &&
        `--kv-blocks ${kvBlocks} are more than the ${capacity.blocks} of ${id} that fit: a larger GPU is ` +
          'simulated',
    ),
  ]);
}
