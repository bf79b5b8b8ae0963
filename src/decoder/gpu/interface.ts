/** What a GPU decoder takes and gives. */
import type { Draft } from '../../codecs/verification.js';
import type { Sampling } from '../sampler.js';
import type { PrefillMethod } from './prefill-methods.js';
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
