/**
 * The row of residual-quant: of a token, layer and head, the codes of all loops of a group. The last loop is the anchor
 * (4 or 2 bits), loops before it are residuals of 2 bits with a coefficient. Tokens come in tiles of 32; a tile's
 * words, in this order:
 *
 *   codes of the anchor    [token][word], components from the low bits up
 *   codes of each residual [token][word]
 *   pairs of the anchor    [group][token], 16 bits: scale in the high byte, offset in the low one, both FP8 E4M3
 *   of each residual: pairs [group][token], then coefficients [token], bf16
 */

/** Channels that share a scale and an offset in the anchor: all of a narrower head. */
export const anchorGroupOf = ({ headDim }: { readonly headDim: number }): number => Math.min(32, headDim);
/** Bits of a residual's code. */
export const RESIDUAL_BITS = 2;
/** Tokens of a tile, and words of one 16-bit field of all of them. */
const TILE = 32;
const FIELD_WORDS = TILE / 2;

export interface ResidualRow {
  readonly headDim: number;
  /** Loops that share the anchor, its own included: at least 2. */
  readonly loops: number;
  readonly anchorBits: number;
  /** Channels that share a scale and an offset in a residual. */
  readonly residualGroup: number;
}

/** Bytes of a row of one token, 16-bit fields included. */
export const residualBytes = (row: ResidualRow): number => (residualTile(row).words * 4) / TILE;

/** Where the parts of a row lie in a tile, in words from its start. */
export interface ResidualTile {
  readonly words: number;
  /** Words of a token's codes. */
  readonly anchorWords: number;
  readonly residualWords: number;
  readonly anchorPairsAt: number;
  readonly residuals: readonly { readonly codesAt: number; readonly pairsAt: number; readonly coefficientAt: number }[];
}

export function residualTile({ headDim, loops, anchorBits, residualGroup }: ResidualRow): ResidualTile {
  const [anchorWords, residualWords] = [(headDim * anchorBits) / 32, (headDim * RESIDUAL_BITS) / 32];
  const anchorPairsAt = TILE * (anchorWords + (loops - 1) * residualWords);
  const firstAt = anchorPairsAt + (headDim / anchorGroupOf({ headDim })) * FIELD_WORDS;
  const pairWords = (headDim / residualGroup) * FIELD_WORDS;
  const each = pairWords + FIELD_WORDS;
  return {
    words: firstAt + (loops - 1) * each,
    anchorWords,
    residualWords,
    anchorPairsAt,
    residuals: Array.from({ length: loops - 1 }, (_, i) => ({
      codesAt: TILE * (anchorWords + i * residualWords),
      pairsAt: firstAt + i * each,
      coefficientAt: firstAt + i * each + pairWords,
    })),
  };
}

/** Bytes of a cache of `rows` rows (sequences × heads) of `capacity` tokens, whole tiles. */
export const residualCacheBytes = (row: ResidualRow, capacity: number, rows: number): number =>
  4 * rows * (capacity / TILE) * residualTile(row).words;
