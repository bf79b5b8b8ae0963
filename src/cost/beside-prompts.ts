/**
 * What decode attention takes longer in an iteration that carries prompts, by FlashAttention 2 in vLLM.
 *
 * Alone, the query heads of a KV head are rows of one tile, and read its cache once. Beside a prompt each head is a
 * block with a tile of 64 rows of its own, of which one is used (vllm-project/flash-attention 04325b6, flash_api.cpp:
 * `seqlenq_ngroups_swapped` asks for one query a sequence; run_mha_fwd_splitkv_dispatch: kBlockM = 64). Two things can
 * then decide:
 *
 * - products: 64 rows a head;
 * - bytes: blocks are numbered by sequence, then by head. As many run at once as the GPU has units. Neighbouring heads
 *   of a sequence are `sequences` blocks apart, so that a share of min(1, sequences / units) of the heads but the first
 *   reads the cache again from memory: all of it, unless it is still in the L2.
 *
 * Shares are of LLMServingSim's attention.csv (5daddb2, MIT; vLLM 0.19), Llama-3.1-8B on RTX 4090 and RTX PRO 6000; of
 * Qwen3-32B, which gave no constant, scripts/beside-prompts.ts has the errors.
 */
import { CONSTANTS } from './constants.js';

/** Rows of a tile. */
export const TILE_ROWS = 64;

/** What decides on a GPU. */
export interface TileRates {
  readonly units: number;
  readonly bytesPerSecond: number;
  /** Operations a second of such tiles. */
  readonly tileFlopsPerSecond: number;
  /** Null where it is not known: then nothing is taken to be in it. */
  readonly l2Bytes: number | null;
}

/** Operations a second that tiles reach. @param matrix datasheet's rate @param halved it is half of what units do */
export const tileRate = (matrix: number, halved: boolean): number =>
  matrix * (halved ? CONSTANTS.tileShareHalved : CONSTANTS.tileShare).value;

/**
 * Least seconds a cached byte that a unit reads alone: it multiplies a tile of rows, of which one is used. Two
 * operations an element and row for keys, two for values; an element has two bytes.
 */
export const tileSecondsPerByte = ({ units, tileFlopsPerSecond }: TileRates): number =>
  (TILE_ROWS * units) / tileFlopsPerSecond;

/**
 * Times by which decode attention takes longer beside a prompt, at least 1.
 * @param group query heads of a KV head
 * @param headBytes cache of one KV head over all sequences
 */
export function besidePrompts(gpu: TileRates, group: number, sequences: number, headBytes: number): number {
  if (group <= 1) return 1;
  const products = (group * gpu.bytesPerSecond * tileSecondsPerByte(gpu)) / gpu.units;
  const again = headBytes > (gpu.l2Bytes ?? 0) ? (group - 1) * Math.min(1, sequences / gpu.units) : 0;
  return Math.max(1, products, 1 + again);
}
