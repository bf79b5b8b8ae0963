/**
 * What decode attention loses on sequences of unequal lengths, beyond the time of as many of the mean length.
 *
 * A block of the kernel walks one sequence for one KV head; blocks are handed to the GPU's units as these become free.
 * The units that have the longest sequences last work on alone, so the loss is a share of (longest − mean), and is
 * spread over the rounds that every unit has: share = c · (longest / mean − 1) / rounds, rounds = blocks / units. Below
 * two rounds kernels divide sequences, and lose nothing that could be measured apart from noise (2 % on average).
 *
 * c: LLMServingSim's skew.csv (5daddb2, MIT; vLLM 0.19, FlashAttention), decode alone, 396 batches of Llama-3.1-8B on
 * RTX 4090 and RTX PRO 6000, least absolute errors. On 294 batches of Qwen3-32B, which it was not fitted to, the mean
 * error falls from 5.6 to 2.2 % on one GPU and from 7.6 to 3.5 % on two (scripts/unequal.ts).
 */
import { CONSTANTS } from './constants.js';

const LOSS = CONSTANTS.unequalLoss.value;
/** Below so many rounds nothing is lost. */
export const LEAST_ROUNDS = CONSTANTS.unequalRounds.value;

/**
 * Share by which attention takes longer.
 * @param rounds blocks of the kernel for each of the GPU's units
 * @param ratio longest over mean length, at least 1
 */
export const unequalLoss = (rounds: number, ratio: number): number =>
  rounds < LEAST_ROUNDS ? 0 : (LOSS * (ratio - 1)) / rounds;
