/** Choosing K and V ranks from a compression ratio. */
import type { Geometry } from '../geometry/geometry.js';
import type { Codec } from './codec.js';

/** Widths of latents, as they are asked for: of K, V and, with hla, of the first loop's. */
export type Ranks = Required<Pick<Codec, 'rankK' | 'rankV'>> & Pick<Codec, 'rankFirst'>;

/** `96/160`, of hla `512/512/256`. */
export const ranksText = ({ rankK, rankV, rankFirst }: Codec | Ranks, between = '/'): string =>
  [rankK, rankV, ...(rankFirst === undefined ? [] : [rankFirst])].join(between);

/** Scalars of one pair of latents. */
export const latentScalars = ({ rankK = 0, rankV = 0 }: Codec): number => rankK + rankV;

/**
 * K's share of the rank sum. The paper gives V more (V converges more slowly over the loops): 3:5 on Ouro (Table
 * tier4), 1:2 on Huginn's 32 loops (Table huginn).
 */
const keyShare = (g: Geometry): number => (g.loops >= 16 ? 1 / 3 : 3 / 8);

/** Ratios as people write them, with the fraction that is meant: `5.33` is 16/3. 14.2 is ranks 27/45 of 2·512. */
const FRACTIONS = [4 / 3, 8 / 3, 16 / 3, 32 / 3, 128 / 9, 64 / 3];

/** The exact ratio behind a printed one: 5.33 -> 16/3, 21.3 -> 64/3; others unchanged. */
export function exactRatio(ratio: number): number {
  return FRACTIONS.find((f) => Math.abs(ratio - f) < 0.006 || Number(f.toFixed(1)) === ratio) ?? ratio;
}

/** `4`, `5.33`, `21.33`: the ratio as the paper prints it. */
export const ratioLabel = (ratio: number): string => String(Number(ratio.toFixed(ratio >= 100 ? 0 : 2)));

/**
 * Splits `fullScalars / ratio` into K and V ranks; both at least 1.
 * @param fullScalars width of K and V together that one latent pair replaces
 * @returns the ranks, or the reason why the ratio is impossible
 */
export function ranksForRatio(
  g: Geometry,
  fullScalars: number,
  ratio: number,
): { rankK: number; rankV: number } | string {
  const sum = Math.round(fullScalars / exactRatio(ratio));
  if (sum < 2) return `a ratio of ${ratioLabel(ratio)} leaves fewer than two latent scalars of ${fullScalars}`;
  // V takes its larger share, up to the width of the vector that it compresses; near ratio 1 the rest is K's.
  const rankV = Math.min(fullScalars / 2, sum - Math.max(1, Math.round(sum * keyShare(g))));
  return { rankK: Math.min(fullScalars / 2, sum - rankV), rankV };
}

/** Why ranks cannot be, given the width of the vector that each compresses. */
export function refuseRanks(
  rankK: number | undefined,
  rankV: number | undefined,
  limit: number,
  limitName: string,
): string | undefined {
  for (const [name, rank] of [
    ['K', rankK],
    ['V', rankV],
  ] as const) {
    if (rank === undefined || !Number.isInteger(rank) || rank < 1)
      return `rank ${name} must be a whole number of at least 1`;
    if (rank > limit)
      return `rank ${name} ${rank} exceeds ${limitName} = ${limit}, the width of the vector that it compresses`;
  }
  return undefined;
}

/**
 * Ratios to try on a geometry for which the paper has no table: the same multiples of T as the paper's points on
 * Ouro (cache reads relative to the full cache are T/ρ, so multiples of T behave alike).
 */
export const genericRatios = (g: Geometry): number[] =>
  [1 / 2, 1, 4 / 3, 8 / 3, 16 / 3].map((x) => x * g.loops).filter((r) => r > 1);

const sameWidth = (g: Geometry, loopWidth: number, loops: number): boolean =>
  g.loops * g.headDim === loopWidth && g.loops === loops;
/** Geometries with the loop stack of the paper's models. */
export const isOuroStack = (g: Geometry): boolean => sameWidth(g, 512, 4);
export const isHuginnStack = (g: Geometry): boolean => sameWidth(g, 3072, 32);
