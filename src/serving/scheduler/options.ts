/** How requests are served. The names are vLLM's where it has the setting. */
import type { SERVER_SETTINGS } from '../../schema/serving.js';
import type { Targets } from '../metrics.js';
import type { AnswerShare } from './outlook.js';
import type { Policy } from './waiting.js';

/** Blocks that a sequence of so many cached tokens takes; none of none. Shares of tokens are rounded up. */
export const blocksOf = (
  tokens: number,
  o: Pick<ReplicaOptions, 'blockTokens' | 'capTokens' | 'sequenceBlocks'>,
): number =>
  // Sums of shares of tokens may end a rounding error above a whole number.
  tokens > 0 ? Math.ceil(Math.min(tokens, o.capTokens) / o.blockTokens - 1e-9) + o.sequenceBlocks : 0;

export type Router = (typeof SERVER_SETTINGS.router.choices)[number];

/** While sequences decode, prompts wait until there is enough to do (TRT-LLM, pyexecutor `_waiting_requests`). */
export interface BatchWait {
  /** Iterations that they wait at most. */
  readonly iterations: number;
  /** Tokens of an iteration that are enough. */
  readonly tokens: number;
}

export interface ReplicaOptions {
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  /** Prompts are divided where they do not fit the budget. False: whole prompts only, one beyond the budget alone. */
  readonly chunkedPrefill: boolean;
  /** Prompts that have room take an iteration of their own, while sequences wait (SGLang). */
  readonly promptsFirst: boolean;
  /**
   * An iteration is scheduled when the one before begins: requests that come, and places that become free meanwhile,
   * are for the one after it (vLLM, v1/engine/core.py step_with_batch_queue; SGLang, event_loop_overlap).
   */
  readonly asyncScheduling?: boolean;
  /** Prompts and tokens run in turns: at most one batch of chunks between two passes, or two rounds. */
  readonly inTurns?: boolean;
  /** Prompts that do not fit the budget take turns, and have all their blocks from the start (vllm-rlt). */
  readonly promptsRotate?: boolean;
  /** Prompts wait for others, to be computed together. */
  readonly batchWait?: BatchWait | null;
  readonly blockTokens: number;
  /** Blocks of the cache of one replica. */
  readonly blocks: number;
  /** Tokens of a sequence that its cache holds at most (eviction); Infinity without. */
  readonly capTokens: number;
  /** Blocks of a sequence beside those of its tokens (Capacity.sequenceBlocks). */
  readonly sequenceBlocks: number;
  readonly prefixCaching: boolean;
  /** Tokens of a unit of the prefix cache, whole blocks. */
  readonly unitTokens: number;
  /** Tokens at the beginning of every session's prompt that all sessions share. */
  readonly sharedPrefixTokens: number;
  readonly policy: Policy;
  /** A request begins only where its whole prompt has room (vLLM: scheduler_reserve_full_isl). */
  readonly reserveFullPrompt: boolean;
  /**
   * A request begins only where it has room to its end beside all that run, which then lose nothing (TRT-LLM's
   * GUARANTEED_NO_EVICT, its default; vllm-rlt).
   */
  readonly reserveAnswer?: boolean;
  /** Share of the blocks that stay free when a request begins beside others (vLLM, v1/core/kv_cache_manager.py). */
  readonly watermark?: number;
  /** A request begins only where the others keep room for a share of their answers (SGLang). */
  readonly answerShare?: AnswerShare | null;
  /** Another replica decodes, and gives the first token. */
  readonly prefillOnly: boolean;
}

/** Prompts and tokens on separate replicas. */
interface Disaggregation {
  /** Replicas that prefill; the others decode. */
  readonly prefillReplicas: number;
  readonly bytesPerToken: number;
  /** Tokens of a sequence that are sent, at most (eviction). */
  readonly capTokens: number;
  /** Of a replica, which sends or receives one sequence after another. */
  readonly linkBytesPerSecond: number;
}

export interface ServerOptions extends Omit<ReplicaOptions, 'prefillOnly'> {
  /** Replicas; with `disaggregation` those that decode. */
  readonly replicas: number;
  readonly router: Router;
  /** Longest prompt with its answer, tokens; longer requests are refused. */
  readonly maxModelLen: number;
  readonly disaggregation: Disaggregation | null;
  readonly targets: Targets;
}
