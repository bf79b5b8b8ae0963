/** The GPU decoder's public side, as types. */
import type { Draft } from '../../codecs/verification.js';
import type { Sampling } from '../sampler.js';
import type { SequenceEngine } from '../serving/loop.js';
import type { Allocation } from './allocations.js';
import type { CachedRows, CachePlace } from './cache-rows.js';
import type { CacheRole } from '../../schedule/bind/refs.js';
import type { PrefillMethod } from './prefill-methods.js';
import type { Operation } from './program.js';
import type { DecoderWeights } from './weights.js';

export interface GpuDecoderOptions {
  readonly weights: DecoderWeights;
  /** Sequences decoded together. */
  readonly batch: number;
  /** Tokens of a sequence, evicted ones included, that can be decoded. */
  readonly contextTokens: number;
  /** Cache is allocated in pages of this many tokens, a multiple of 32; 32 unless given. */
  readonly pageTokens?: number;
  /** ε of RMSNorm; 1e-6 unless given. */
  readonly normEpsilon?: number;
  /** Greedy unless given. */
  readonly sampling?: Sampling;
  /** Prompt tokens that are worked on at once; 2048 unless given. */
  readonly prefillChunkTokens?: number;
  /** Allows rounds of speculation, which need room for a round's proposals behind a sequence's tokens. */
  readonly speculation?: Draft;
}

export interface PrefillResult extends StepResult {
  readonly method: PrefillMethod;
}

export interface StepResult {
  /** The next token of each sequence. */
  readonly tokens: Uint32Array;
  /** Of the operations on the device: by timestamps where it has them, else from submission to completion. */
  readonly seconds: number;
}

/** A round of speculation, by sequence; nothing of sequences that did not join. */
export interface RoundResult {
  /** Accepted proposals, then the token that all loops say after them. */
  readonly tokens: readonly (readonly number[])[];
  readonly proposed: readonly (readonly number[])[];
  /** Of the steps that proposed, and of the pass that verified, as `StepResult.seconds`. */
  readonly draftSeconds: number;
  readonly verifySeconds: number;
}

export interface GpuDecoder extends Pick<SequenceEngine, 'extend'> {
  /**
   * Decodes one token of each sequence.
   * @param joins the sequences that decode, all unless given; the others keep what they hold, and their token is void
   * @throws UserError for a token that the model has not, or when a sequence would outgrow its cache; under eviction
   * when a sequence that holds tokens does not join, as a step would evict one of them
   * @throws GpuError when the device fails or a logit is NaN; everything is freed then
   */
  step(tokens: Uint32Array | readonly number[], joins?: (sequence: number) => boolean): Promise<StepResult>;
  /**
   * A round of speculation of each sequence: one token or more, those that `step` would give one by one.
   * @param accept proposals of a sequence that are kept whatever was verified: for times with made-up weights
   * @throws as `step`; UserError where the decoder was not opened for it
   */
  speculate(
    tokens: readonly number[],
    joins?: (sequence: number) => boolean,
    accept?: (sequence: number) => number,
  ): Promise<RoundResult>;
  /**
   * Forgets one sequence, so that another takes its place.
   * @param stream of the random draws of the new one; its own number unless given
   * @param draw number of its first draw; 0 unless given
   */
  forget(sequence: number, stream?: number, draw?: number): void;
  /**
   * Prefills a prompt of each sequence.
   * @param method unless given `accumulated` where prompts begin their sequences, else `by-token`. `chunked` also
   *   continues sequences that hold tokens. With `by-token` shorter prompts begin later
   * @returns the first token after each prompt
   * @throws GpuError `out-of-memory` or `unsupported` for prompts that cannot be prefilled beside the decoder, which
   * stays usable
   */
  prefill(prompts: readonly (readonly number[])[], method?: PrefillMethod): Promise<PrefillResult>;
  /** Logits of the last step, [sequence][vocabulary]. */
  logits(): Promise<Float32Array>;
  /** What the cache holds of one role in a layer and loop, as it is now. */
  cached(role: CacheRole, at: CachePlace): Promise<CachedRows>;
  /** Tokens of each sequence so far, evicted ones included. */
  readonly lengths: readonly number[];
  /** Every buffer, with its bytes and what it is for. */
  readonly allocations: readonly Allocation[];
  /** Buffers of the last prefill, which are freed. */
  readonly prefillAllocations: readonly Allocation[];
  /** Bytes of uniform blocks: one a distinct bound step. */
  readonly uniformBytes: number;
  /** Operations of the step that was run last, in order: for measuring them one by one. */
  readonly operations: readonly Operation[];
  /** Forgets all sequences. */
  reset(): void;
  /** Gives each sequence a cache of this many tokens with fabricated contents, for tests of capacity and latency. */
  fillCache(lengths: number | readonly number[]): Promise<void>;
  /** Frees everything. */
  close(): void;
}
