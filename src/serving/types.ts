/** What a simulation answers. Keys with an underscore are those of vLLM's serving benchmark, in its units. */
import type { Evidence, Interval } from '../cost/evidence.js';
import type { TestedSimulation } from '../plan/ask/tested.js';
import type { PlanReport } from '../plan/types.js';
import type { Capacity } from './price/capacity.js';
import type { Batching, Depth, SkippedKv } from './depth.js';
import type { PublishedDepths } from '../quality/exit-depths.js';
import type { Limit } from './metrics.js';
import type { ServerChoice } from './question.js';
import type { TimelinePoint } from './timeline.js';

type Statistic = 'mean' | 'median' | 'std' | 'p90' | 'p95' | 'p99';
export type Metric = 'ttft' | 'tpot' | 'itl' | 'e2el' | 'queue';

/** One run. `null` where nothing was counted. */
export type RunFigures = {
  readonly duration: number;
  readonly completed: number;
  readonly total_input_tokens: number;
  readonly total_output_tokens: number;
  readonly request_throughput: number;
  readonly request_goodput: number;
  readonly output_throughput: number;
  readonly total_token_throughput: number;
  readonly preemptions: number;
  readonly limitedBy: Limit | 'nothing';
  /** Metrics of so many values that their percentiles are within `percentileError`; those of the others are exact. */
  readonly sketched: readonly Metric[];
  /** Metrics of so few values that their 99th percentile is hardly more than the largest of them. */
  readonly few: readonly Metric[];
  /** Share of the requests after the warm-up that missed a target or were refused; null of none. */
  readonly missedShare: number | null;
  /** The share that misses at most in the long run, with 97.5 % confidence (docs/simulate.md). */
  readonly missedShareAtMost: number;
} & { readonly [K in `${Statistic}_${Metric}_ms`]: number | null };

/** What stood in the way of requests that waited, as shares of all waiting. */
export type WaitingShares = Readonly<Record<Limit | 'iteration', number>>;

/** A candidate under a workload. `low`: every iteration takes the low end of its interval. */
export interface Run {
  /** As in a plan. */
  readonly id: string;
  /** The stack that runs it today; null: its kernels would have to be written. */
  readonly servedBy: string | null;
  /** Of the plan's own step: where its prices come from. */
  readonly evidence: Evidence | null;
  readonly low: RunFigures;
  readonly estimate: RunFigures;
  readonly high: RunFigures;
  /** Of all GPUs, as busy as they were, prompts included; null without a price. */
  readonly usdPerMillionOutputTokens: Interval | null;
  /** The targets are met at the slow end, of other draws of these requests too, with 97.5 % confidence. */
  readonly sure: boolean;
  readonly completed: number;
  /** Requests that are longer than the cache, or than the longest that the server takes. */
  readonly rejected: number;
  readonly preemptions: number;
  readonly limitedBy: RunFigures['limitedBy'];
  readonly waiting: WaitingShares;
  readonly iterations: number;
  /** Share of the time in which replicas worked, and means over that time. */
  readonly utilization: number;
  readonly meanRunning: number;
  readonly mostRunning: number;
  readonly meanBlocks: number;
  readonly mostBlocks: number;
  /** Prompt tokens that were found in the prefix cache, of those looked up; null without one. */
  readonly prefixHitShare: number | null;
  readonly recomputedTokens: number;
  readonly meanTransferSeconds: number | null;
  readonly kvBlocks: number;
  readonly capacity: Capacity;
  readonly timeline: readonly TimelinePoint[];
  /** The estimate's distributions: the percentile of each percent, milliseconds. */
  readonly percentiles: {
    readonly percent: readonly number[];
    readonly ttft: readonly number[];
    readonly tpot: readonly number[];
    readonly e2el: readonly number[];
  };
  /** With speculation: what it does, by the estimate. */
  readonly speculation?: {
    readonly draftLoops: number;
    readonly draftTokens: number;
    /** Probability that a proposal is accepted after accepted ones, and who published it; null: the user says it. */
    readonly acceptance: number;
    readonly acceptanceSource: string | null;
    readonly tokensPerRound: number;
    /** The same requests token by token. */
    readonly without: RunFigures;
    /** Lowest acceptance with which rounds are faster at this run's mean number of sequences; null: none is. */
    readonly paysFromAcceptance: number | null;
    /** Most sequences for which rounds are faster with this acceptance; 0: not even for one. */
    readonly paysUpToSequences: number;
  };
  /** Where tokens leave early: what that does, by the estimate. */
  readonly depth?: {
    /** Where the probabilities were published, and what answers were worth with them. */
    readonly published?: PublishedDepths;
    readonly meanLoops: number;
    readonly probabilities: readonly number[];
    readonly batching: Batching;
    readonly skippedKv: SkippedKv;
    /** Every token takes all loops; those that leave wait for their step; they make room in the next loop. */
    readonly allLoops: RunFigures;
    readonly steps: RunFigures;
    readonly loops: RunFigures;
  };
}

/** The server as it was chosen; recorded depths are the file's. */
export type ReportedServer = Omit<ServerChoice, 'depth'> & { readonly depth: Omit<Depth, 'recorded'> | null };

/** The highest rate at which a candidate meets the targets. */
export interface SustainedRate {
  readonly id: string;
  readonly servedBy: string | null;
  /**
   * `low`: every iteration takes the high end of its interval, and in the long run no more requests miss the targets
   * than may, with 97.5 % confidence; 0 where that is sure of no rate. The others are those of one draw.
   */
  readonly requestsPerSecond: Interval;
  /** Replicas that serve the workload's own rate by simulation; null where no rate meets the targets. */
  readonly replicasFor: {
    readonly requestsPerSecond: number;
    /** `high` is null where no rate is sure. */
    readonly replicas: { readonly low: number; readonly estimate: number; readonly high: number | null };
  } | null;
  /** In the long run, at the estimate's rate; a run's own throughput counts the time until its last answer too. */
  readonly outputTokensPerSecond: number;
  /** Of these tokens, prompts included; null without a price. */
  readonly usdPerMillionOutputTokens: {
    readonly low: number;
    readonly estimate: number;
    readonly high: number | null;
  } | null;
  /** At the estimate's rate. */
  readonly limitedBy: RunFigures['limitedBy'];
  /** The target that more requests miss at a higher rate. */
  readonly missedFirst: 'ttft' | 'tpot' | null;
  readonly atEstimate: RunFigures | null;
  /** Why nothing is served; null where something is. */
  readonly refused: string | null;
  /** Only for a picture: the estimate below and above that rate, by rate. */
  readonly curve?: readonly {
    readonly requestsPerSecond: number;
    readonly p99_ttft_ms: number;
    readonly p99_tpot_ms: number;
  }[];
}

/** How tokens come. */
export type WayName = 'one by one' | 'fewer loops' | 'early exit' | 'speculation';

/** A way of serving with a cache: its rate, and what is known to be left of quality. */
export interface WayRow extends SustainedRate {
  readonly way: WayName;
  /** Requests in the server on average, at the estimate's rate; null where nothing is served. */
  readonly users: number | null;
  /** Share of the score that is kept with all loops and the full cache; null where nobody published it. */
  readonly quality: { readonly share: number | null; readonly of: string | null };
  /** Before it runs: `nothing`, `kernels`, `training, kernels`, `a server that schedules loops`. */
  readonly needs: string;
  /** No other row serves more, by the slow end, and keeps more. */
  readonly onFront: boolean;
}

/** A plan that serves users by simulation. */
export interface FleetService {
  readonly planId: string;
  readonly name: string;
  readonly servedBy: string | null;
  /** GPUs that share the model: one replica. */
  readonly tensorParallel: number;
  readonly usersPerReplica: number;
  /** For whom the targets are met. */
  readonly mostUsersPerReplica: number;
  readonly replicas: number;
  /** Further ones, that prefill for them. */
  readonly prefillReplicas: number;
  /** Of all replicas. */
  readonly gpus: number;
  /** Of all GPUs; null without a price. */
  readonly usdPerHour: number | null;
  /** False where the targets are met by the estimate, and at the slow end of the prices for not one user. */
  readonly slowEnd: boolean;
  /** The command of a replica; null where no stack is known to run it. */
  readonly serve: string | null;
  /** Of all replicas. */
  readonly outputTokensPerSecond: number;
  /** Of replicas that are simulated together, with their users: one, or the question's where others prefill. */
  readonly estimate: RunFigures;
  readonly high: RunFigures;
}

/** What the requests should get. */
export interface ReportedTargets {
  readonly ttftSeconds: number;
  readonly tpotSeconds: number;
  /** Share of the requests that must meet both, percent. */
  readonly percentile: number;
  /** Times that nobody asked for: the program's own. */
  readonly defaults: readonly ('ttft' | 'tpot')[];
}

/** The GPUs that a number of users needs, by simulation; null where no plan meets the targets for a user. */
export interface SimulatedFleet {
  /** `prompts 500, outputs 50 tokens`. */
  readonly workload: string;
  readonly thinkSeconds: number;
  readonly targets: ReportedTargets;
  /** Of replicas that are simulated together: those that decode, and further ones that prefill. */
  readonly replicas: number;
  readonly prefillReplicas: number;
  /** What was assumed of the server that the question leaves open. */
  readonly notes: readonly string[];
  /** Plans that were simulated: those that run today, and those whose kernels would have to be written. */
  readonly tried: { readonly today: readonly string[]; readonly unwritten: readonly string[] };
  readonly deploy: FleetService | null;
  /** Fewer GPUs than `deploy`, at the slow end of its prices. */
  readonly upside: FleetService | null;
  /** How predictions fared on published figures nearest to this question. */
  readonly tested: TestedSimulation;
}

/** Figures of the first run, which are fields of the report too. */
export type FirstRun = Pick<Run, 'low' | 'estimate' | 'high' | 'completed' | 'preemptions' | 'limitedBy'>;

export interface SimulationReport extends Partial<FirstRun> {
  readonly schema: 'lla-sim/simulation';
  readonly schemaVersion: 1;
  readonly scenario: PlanReport['scenario'];
  readonly model: { readonly name: string };
  readonly device: PlanReport['device'];
  readonly gpus: number;
  /** Of one GPU, as asked; null without --usd-per-hour. */
  readonly usdPerHour: number | null;
  readonly workload: {
    readonly label: string;
    readonly requests: number;
    readonly requestsPerSecond: number | null;
    /** All requests are there at the beginning, or are sent as others end (`--rate inf`). */
    readonly atOnce: boolean;
    /** Requests that the client keeps open at most; null without a limit. */
    readonly maxConcurrency: number | null;
    readonly meanPromptTokens: number;
    readonly meanOutputTokens: number;
    readonly skippedLines: number;
    readonly seed: number | null;
  };
  readonly server: ReportedServer;
  readonly targets: ReportedTargets;
  /** How predictions fared on published figures nearest to this question; docs/accuracy.md has all. */
  readonly tested: TestedSimulation;
  /** Of those that are `sketched`, relative to the exact one. */
  readonly percentileError: number;
  /** Empty with `--find-rate`. The first run's figures are also fields of the report. */
  readonly runs: readonly Run[];
  /** Only with `--find-rate`, and in a report whose workload is quick to simulate. */
  readonly candidates?: readonly SustainedRate[];
  /** Only with `--ways`, in place of `candidates`: what runs today first. */
  readonly ways?: readonly WayRow[];
  /** Only with `--shard`: which part this is, and the candidates of all parts. */
  readonly shard?: { readonly index: number; readonly of: number; readonly all: readonly string[] };
  /** Ended early. */
  readonly partial: boolean;
  readonly notes: readonly string[];
}
