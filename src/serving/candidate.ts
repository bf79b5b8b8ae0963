/** A plan's candidate as a server: its memory in blocks, its prices, and a run of it. */
import { reservesPrompt } from '../stacks/serving.js';
import { bytesPerToken } from '../codecs/layout.js';
import { takesPositions, takesWhole } from '../codecs/registry.js';
import { verificationRefusal } from '../codecs/verification.js';
import { UserError } from '../errors.js';
import { allocatedTokens } from '../eviction/policy.js';
import type { Evidence } from '../cost/evidence.js';
import { firstTokenFactor, leastSeconds } from '../cost/first-token.js';
import { pricePrompt, type SchedulePrice } from '../cost/latency.js';
import { linkRate, type Link } from '../cost/exchange.js';
import { candidateId } from '../plan/ask/candidates.js';
import type { TestedSimulation } from '../plan/ask/tested.js';
import { configurationOf, isWithinReserve, usableBytes } from '../plan/evaluate/evaluate.js';
import type { Candidate, Plan, PlanRequest } from '../plan/types.js';
import { layoutPerGpu } from '../schedule/buffers.js';
import type { WholePrompt } from '../schedule/prefill/prefill.js';
import { capacityOf, type Capacity } from './price/capacity.js';
import { run, runInTurns, type RunOptions, type RunResult } from './engine.js';
import { between, figuresOf, PERCENT, percentilesOf, waitingShares, withTimes } from './figures.js';
import type { Ended, Metrics, Targets } from './metrics.js';
import { meanLoops, runtimeFor } from '../stacks/runtime-pricer.js';
import { allLoops, refusedPasses, refusedSkipping, type Depth } from './depth.js';
import { asLong } from './trial.js';
import { LoopCostPricer, RuntimeLoopPricer, whereItPays, type LoopPricer } from './price/loop-price.js';
import type { ServerOptions } from './scheduler/options.js';
import { answerShareOf } from './scheduler/outlook.js';
import { BOUNDS, CostModelPricer, PriceTables, type Bound } from './price/price.js';
import type { ServerChoice } from './question.js';
import type { Requested, WorkloadChoice } from './workload/read.js';
import { tokensPerRound, type Speculation } from './speculation.js';
import { transferRate } from './price/transfer.js';
import { usdPerMillion, usdPerSecond } from './price/usd.js';
import type { Run, RunFigures } from './types.js';

export interface Setting {
  readonly request: PlanRequest;
  readonly link: Link | null;
  readonly workload: WorkloadChoice;
  readonly server: ServerChoice;
  readonly targets: Targets;
  /** How predictions of first tokens and steps fared. */
  readonly tested: TestedSimulation;
}

/** What a run may have otherwise than the question. */
export type Otherwise = Pick<ServerChoice, 'depth' | 'speculation' | 'replicas' | 'prefillReplicas'>;

/** The estimate of the same requests without speculation, of such a depth. */
type TokenByToken = (depth: Depth | null) => Promise<RunFigures>;

/** A candidate that can serve. */
export class Service {
  readonly id: string;
  readonly capacity: Capacity;
  readonly options: ServerOptions;
  readonly servedBy: string | null;
  private readonly evidence: Evidence | null;
  private readonly tables: PriceTables;
  private readonly method: WholePrompt;
  private meanPrompt: SchedulePrice | undefined;
  /** Cache of a token of so many loops, over that of one of all. */
  private readonly weightOf: (loops: number) => number;

  constructor(
    private readonly setting: Setting,
    candidate: Candidate,
    plan: Plan | undefined,
  ) {
    const { request, workload, targets } = setting;
    const c = configurationOf(request, candidate);
    this.id = candidateId(request.geometry, candidate, request.cacheType);
    // Nothing of a prompt that is taken in whole can be found again.
    const server = takesWhole(c.codec)
      ? { ...setting.server, chunkedPrefill: false, prefixCaching: false }
      : setting.server;
    if (takesPositions(c.codec))
      throw new UserError(
        `${this.id} takes prompts position by position, and a server's iterations take several tokens of a prompt ` +
          'at once',
        'plan it, or simulate another way of sharing with --shared',
      );
    const refused = server.depth
      ? refusedSkipping(c.codec, server.depth.skippedKv)
      : server.speculation && refusedPasses(c.codec);
    if (refused) throw new UserError(`${this.id} ${refused.why}`, refused.instead);
    const { speculation } = server;
    const unverified = speculation && verificationRefusal(c.codec, c.eviction, speculation);
    if (unverified)
      throw new UserError(
        `${this.id} does not go with --draft-tokens: ${unverified}`,
        'simulate full, kv-quant, cla or mla-head, or an exact window of as many tokens as proposals',
      );
    this.evidence = plan?.decode.evidence ?? null;
    // Of the servers, only those that schedule loop by loop let tokens leave early or propose others.
    const usual = server.depth === null && server.speculation === null;
    this.servedBy = usual || request.runtime ? (plan?.servedBy ?? null) : null;
    const method: WholePrompt = server.chunkedPrefill ? 'chunked' : request.prefill;
    this.method = method;
    this.capacity = capacityOf(c, {
      usableBytes: usableBytes(request),
      longest: server.maxModelLen,
      blockTokens: server.blockTokens,
      maxNumSeqs: rowsOf(server),
      chunkTokens: Math.min(server.maxNumBatchedTokens, server.maxModelLen),
      prefill: method,
      withinReserve: isWithinReserve(request, candidate),
    });
    const blocks = server.kvBlocks ?? this.capacity.blocks;
    // A hash id of a trace stands for whole blocks.
    const hash = workload.hashTokens;
    const unitTokens = hash !== null && hash % server.blockTokens === 0 ? hash : server.blockTokens;
    const identities = hash === null || unitTokens === hash;
    const capTokens = c.eviction === null ? Infinity : allocatedTokens(c.eviction, Infinity);
    this.options = {
      ...server,
      // A runtime's own host works ahead in other ways, which its prices have.
      asyncScheduling: server.asyncScheduling && !request.runtime,
      blocks,
      capTokens,
      sequenceBlocks: this.capacity.sequenceBlocks,
      prefixCaching: server.prefixCaching && identities && c.eviction === null,
      unitTokens,
      sharedPrefixTokens: workload.sharedPrefixTokens,
      answerShare: answerShareOf(request.servingStack),
      reserveFullPrompt: reservesPrompt(request.servingStack, request.servingVersion),
      targets,
      disaggregation:
        server.prefillReplicas === 0
          ? null
          : {
              prefillReplicas: server.prefillReplicas,
              bytesPerToken: bytesPerToken(layoutPerGpu(c)) * c.gpus,
              capTokens,
              linkBytesPerSecond: this.sent('estimate'),
            },
    };
    const bytesOf = (loops: number): number =>
      bytesPerToken(layoutPerGpu({ ...c, geometry: { ...c.geometry, loops } }));
    const [all, one] = [bytesOf(c.geometry.loops), bytesOf(1)];
    const each = (all - one) / Math.max(1, c.geometry.loops - 1);
    this.weightOf = (loops) => (one + (loops - 1) * each) / all;
    this.tables = new PriceTables(c, request.pricer!, {
      method,
      ...(request.promptChunkTokens === undefined ? {} : { chunkTokens: request.promptChunkTokens }),
      longest: server.maxModelLen,
      mostSequences: rowsOf(server),
    });
  }

  /** Serves requests. @param stop asked now and then; true ends the run */
  run(
    bound: Bound,
    requested: Requested,
    stop: (m: Metrics) => boolean,
    asked: Otherwise = this.setting.server,
  ): RunResult {
    const { server, ...options } = this.runOptions(bound, requested, asked);
    const { replicas, prefillReplicas } = asked;
    const disaggregation = server.disaggregation && { ...server.disaggregation, prefillReplicas };
    return run({ ...options, server: { ...server, replicas, disaggregation }, stop });
  }

  /** Runs the workload as it is, at all bounds. @param turn called now and then; true ends a run early */
  async runAll(
    turn: (done: number) => boolean,
    onEnd: (ended: Ended) => void,
    bounds: readonly Bound[] = BOUNDS,
  ): Promise<{ run: Run; partial: boolean }> {
    let partial = false;
    const results: Partial<Record<Bound, RunResult>> = {};
    const requested = this.requested();
    for (const [i, bound] of bounds.entries()) {
      const asked = requested();
      const options = this.runOptions(bound, asked);
      const result = await runInTurns(bound === 'estimate' ? { ...options, onEnd } : options, (m) =>
        turn((i + (m.completed + m.rejected) / asked.requests) / bounds.length),
      );
      results[bound] = result;
      if (!result.finished) partial = true;
    }
    const estimate = results.estimate!;
    // Of users who wait for answers, a slower server may miss less: they ask less of it.
    const isSure = estimate.metrics.misses.atMost <= this.allowedShare && this.isSure(results.high);
    const described = this.describe({ low: estimate, high: estimate, ...results, estimate }, isSure);
    // A user alone has no others of whom a slower server may serve fewer at a time.
    const { requestsPerSecond, users } = this.setting.workload;
    const ends = requestsPerSecond === null && users !== 1 ? between(described) : described;
    const run =
      partial || !results.high ? described : { ...ends, high: await this.slowest(ends.high, requested, turn) };
    const { depth, speculation } = this.setting.server;
    if (partial || !(speculation ?? depth)) return { run, partial };
    const tokenByToken: TokenByToken = async (of) => {
      const options = this.runOptions('estimate', requested(), { depth: of, speculation: null });
      return figuresOf((await runInTurns(options, () => turn(1))).metrics);
    };
    const compared = speculation
      ? { speculation: await this.compareSpeculation(speculation, run, tokenByToken) }
      : { depth: await this.compareDepths(depth!, run.estimate, tokenByToken) };
    return { run: { ...run, ...compared }, partial };
  }

  /** Caches that come slowly leave few sequences to decode: tokens are slowest where caches come as expected. */
  private async slowest(
    high: RunFigures,
    requested: () => Requested,
    turn: (done: number) => boolean,
  ): Promise<RunFigures> {
    const { disaggregation } = this.options;
    if (!disaggregation || this.setting.server.transferBytesPerSecond !== null) return high;
    const options = this.runOptions('high', requested());
    const result = await runInTurns({ ...options, server: { ...options.server, disaggregation } }, () => turn(1));
    return result.finished ? withTimes(high, figuresOf(result.metrics), /_(tpot|itl)_ms$/, Math.max) : high;
  }

  private get allowedShare(): number {
    return 1 - this.setting.targets.share + 1e-9;
  }

  /** Whether other draws meet the targets at the slow end, too: as where a rate is searched (trial.ts). */
  private isSure(slow: RunResult | undefined): boolean {
    const { workload, targets } = this.setting;
    if (!slow?.finished || (targets.tpotAsked && slow.metrics.tpot.count === 0)) return false;
    const allowed = this.allowedShare;
    const { misses, load } = slow.metrics;
    if (misses.atMost > allowed) return false;
    const rate = workload.requestsPerSecond;
    if (rate === null) return true;
    const margin = workload.kind === 'trace' ? 0 : load.margin;
    // So few requests do not tell how far other draws are from these.
    if (margin === Infinity) return false;
    // As long as where a rate is searched: a queue grows slowly.
    const faster = rate * (1 + margin);
    const more = workload.source(faster, asLong(this.setting, faster));
    const { metrics, finished } = this.run('high', more, (m) => m.misses.tooMany(allowed, true));
    return finished && metrics.misses.atMost <= allowed;
  }

  /**
   * The workload's requests, anew at each call. Users without a time between their requests who all began at once would
   * go on in step: they begin within the time that a request takes.
   */
  private requested(): () => Requested {
    const { workload } = this.setting;
    const { ramped } = workload;
    if (ramped === null) return () => workload.source(null);
    const { e2el } = run(this.runOptions('estimate', ramped(0))).metrics;
    const rampSeconds = e2el.mean ?? 0;
    return () => ramped(rampSeconds);
  }

  /** The same requests where every token takes all loops, and with the other batching. */
  private async compareDepths(
    depth: Depth,
    own: RunFigures,
    figures: TokenByToken,
  ): Promise<NonNullable<Run['depth']>> {
    const { batching, skippedKv, probabilities, published } = depth;
    return {
      ...(published ? { published } : {}),
      meanLoops: meanLoops(probabilities),
      probabilities,
      batching,
      skippedKv,
      allLoops: await figures(null),
      steps: batching === 'steps' ? own : await figures({ ...depth, batching: 'steps' }),
      loops: batching === 'loops' ? own : await figures({ ...depth, batching: 'loops' }),
    };
  }

  /** The same requests without speculation, and where it pays. */
  private async compareSpeculation(
    of: Speculation,
    run: Run,
    figures: TokenByToken,
  ): Promise<NonNullable<Run['speculation']>> {
    const { tables, options } = this;
    const { meanPromptTokens, meanOutputTokens } = this.setting.workload;
    const without = await figures(null);
    const mean = Math.max(1, Math.round(meanPromptTokens + meanOutputTokens / 2));
    const pays = whereItPays(of, tables.c.geometry.loops, this.loopPrices('estimate'), {
      length: Math.min(mean, options.maxModelLen),
      sequences: Math.max(1, Math.round(run.meanRunning)),
      mostSequences: options.maxNumSeqs,
    });
    const { draftLoops, draftTokens, acceptance, source: acceptanceSource } = of;
    return {
      draftLoops,
      draftTokens,
      acceptance,
      acceptanceSource,
      tokensPerRound: tokensPerRound(of),
      without,
      ...pays,
    };
  }

  /** Seconds a token of a prompt of the mean length takes by the datasheet. */
  private leastPerPromptToken(): number {
    const { request, workload, server } = this.setting;
    const pricer = request.pricer!;
    const promptTokens = Math.min(server.maxModelLen, Math.max(1, Math.round(workload.meanPromptTokens)));
    const prompt = (this.meanPrompt ??= pricePrompt(this.tables.c, pricer, { method: this.method, promptTokens }));
    return leastSeconds(prompt, pricer) / promptTokens;
  }

  private loopPrices(bound: Bound): LoopPricer {
    const { runtime } = this.setting.request;
    const { tables } = this;
    return runtime
      ? new RuntimeLoopPricer(runtimeFor(runtime, tables.c), tables, bound)
      : new LoopCostPricer(tables, bound);
  }

  /** Bytes of a replica's caches that are sent in a second. */
  private sent(bound: Bound): number {
    const { link, request, server } = this.setting;
    return transferRate(server.transferBytesPerSecond, linkRate(link, 2), bound) * request.gpus;
  }

  private runOptions(
    bound: Bound,
    { source, requests }: Requested,
    asked: Pick<ServerChoice, 'depth' | 'speculation'> = this.setting.server,
  ): RunOptions {
    const { options, tables, weightOf } = this;
    const { runtime, geometry, pricer } = this.setting.request;
    const { speculation } = asked;
    const depth = asked.depth ?? (runtime || speculation ? allLoops(geometry.loops) : null);
    const { disaggregation: apart } = options;
    return {
      server: { ...options, disaggregation: apart && { ...apart, linkBytesPerSecond: this.sent(bound) } },
      source,
      requests,
      pricer: new CostModelPricer(tables, bound),
      requestSeconds: pricer?.requestOverhead?.[bound] ?? 0,
      ...(pricer && bound !== 'estimate' ? { firstTokenFactor: firstTokenFactor(pricer, bound) } : {}),
      leastPerPromptToken: this.leastPerPromptToken(),
      depth: depth && {
        of: depth,
        pricer: this.loopPrices(bound),
        weightOf,
        inTurns: runtime !== undefined || speculation !== null,
        promptsRotate: runtime !== undefined,
        speculation,
      },
    };
  }

  private describe(results: Readonly<Record<Bound, RunResult>>, sure: boolean): Run {
    const { metrics: m, replicas } = results.estimate;
    const busy = m.busySeconds === 0 ? 1 : m.busySeconds;
    const ends = {
      low: figuresOf(results.low.metrics),
      estimate: figuresOf(m),
      high: figuresOf(results.high.metrics),
    };
    return {
      id: this.id,
      servedBy: this.servedBy,
      evidence: this.evidence,
      ...ends,
      usdPerMillionOutputTokens: usdPerMillion(usdPerSecond(this.setting.request, this.setting.server), ends),
      sure,
      completed: m.completed,
      rejected: m.rejected,
      preemptions: m.preemptions,
      limitedBy: ends.estimate.limitedBy,
      waiting: waitingShares(m),
      iterations: m.iterations,
      utilization: m.durationSeconds === 0 ? 0 : m.busySeconds / (replicas * m.durationSeconds),
      meanRunning: m.sequenceSeconds / busy,
      mostRunning: m.mostSequences,
      meanBlocks: m.blockSeconds / busy,
      mostBlocks: m.mostBlocks,
      prefixHitShare: m.lookedUpTokens === 0 ? null : m.hitTokens / m.lookedUpTokens,
      recomputedTokens: m.recomputedTokens,
      meanTransferSeconds: m.transfers === 0 ? null : m.transferSeconds / m.transfers,
      kvBlocks: this.options.blocks,
      capacity: this.capacity,
      timeline: m.timeline.points(),
      percentiles: {
        percent: PERCENT,
        ttft: percentilesOf(m.ttft),
        tpot: percentilesOf(m.tpot),
        e2el: percentilesOf(m.e2el),
      },
    };
  }
}

/** Rows of a step at most: with speculation several a sequence. */
const rowsOf = ({ maxNumSeqs, speculation }: ServerChoice): number =>
  maxNumSeqs * (1 + (speculation?.draftTokens ?? 0));
