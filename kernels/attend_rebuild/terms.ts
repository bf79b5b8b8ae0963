import {
  rows,
  latentRows,
  queries,
  partialBytes,
  scoreBytes,
  unpacking,
  latentTerms,
  withScores,
} from '../shared/attention/attention.terms.js';
import { DEFAULT_WORKGROUP, lanesOf, readUnit, unitsEach, wideOf } from '../shared/attention/fold.terms.js';
import { field, padded, evenRow, storageOfVariant, storedIn, type KernelSpec, type Shape } from '../spec.js';
import { unlisted } from '../tuned.js';

/** Vec4 registers that a thread may spend on latents. */
const LATENT_VECS = 24;

/**
 * Reading the weights of a round costs as much as this many tokens of a thread (measured with 1, 2, 4 and 8 tokens,
 * ranks 18/30 and 96/160). More tokens at a time make fewer weights to read, until compilers no longer unroll their
 * loop.
 */
const WEIGHTS_COST = 6;

/** The same at ranks that are no multiple of eight, and in f32: weights are put together word by word. */
const UNALIGNED_WEIGHTS_COST = 11;

/** At least this many tokens, however many registers their other units need. */
const FEWEST_TOKENS = 4;

/**
 * Tokens of a thread at a time.
 * @param longest slots of a split
 * @param rows that a workgroup reads at a time
 * @param each units of a latent that a thread takes in all
 * @param vecs of a unit
 */
export function ownTokens(longest: number, rows: number, each: number, vecs: number): number {
  const fits = (tokens: number): boolean =>
    tokens === 1 || (tokens * vecs <= LATENT_VECS && (tokens <= FEWEST_TOKENS || tokens * each * vecs <= LATENT_VECS));
  /** Cost of a split, in whole rounds of a workgroup: the tokens of all rounds, and the weights once a round. */
  const cost = (tokens: number): number => Math.ceil(longest / (tokens * rows)) * rows * (tokens + WEIGHTS_COST);
  return [8, 4, 2, 1].filter(fits).reduce((a, b) => (cost(b) < cost(a) ? b : a));
}

/** Units of a latent that a thread takes at a time. */
export const unitsAtOnce = (tokens: number, each: number, vecs: number): number =>
  Math.min(each, Math.max(1, Math.floor(LATENT_VECS / (tokens * vecs))));

/** Slots of a tile: splits are whole tiles. */
const TILE_TOKENS = 32;

/**
 * Operations of the keys as threads execute them: whole rounds of a workgroup, and latents of whole units for every
 * thread. `weights`: what reading the weights of each round costs, in such operations.
 */
function executed(s: Shape, v: string): { keys: number; weights: number } {
  const storage = storageOfVariant(v);
  const widths = { keyWidth: field(s, 'rankK'), valueWidth: field(s, 'rankV'), group: field(s, 'group') };
  const lanes = lanesOf(storage, widths);
  const wide = wideOf(storage, widths, lanes);
  const unit = readUnit({ storage });
  const each = unitsEach({ storage, width: widths.keyWidth }, wide);
  const rows = DEFAULT_WORKGROUP / wide;
  const [context, splits] = [field(s, 'context'), field(s, 'splits')];
  const tokens = ownTokens(Math.ceil(padded(context, TILE_TOKENS) / splits), rows, each, unit / 4);
  const rounds = Math.ceil(padded(Math.ceil(context / splits), TILE_TOKENS) / (rows * tokens));
  const whole = padded(each, unitsAtOnce(tokens, each, unit / 4)) * wide * unit;
  const workgroups = field(s, 'sequences') * field(s, 'kvHeads') * Math.ceil(widths.group / lanes) * splits;
  const aToken = workgroups * rounds * rows * 2 * field(s, 'headDim') * whole;
  const aligned = widths.keyWidth % 8 === 0 && unit >= 8;
  return { keys: tokens * aToken, weights: (aligned ? WEIGHTS_COST : UNALIGNED_WEIGHTS_COST) * aToken };
}

/**
 * Split-KV decode attention over latents with K rebuilt and rotated in registers; V stays latent (its
 * up-projection is applied after the merge). `+scores` also writes every score.
 */
export const spec: KernelSpec<
  'sequences' | 'kvHeads' | 'latentHeads' | 'group' | 'context' | 'rankK' | 'rankV' | 'headDim' | 'groupSize' | 'splits'
> = {
  dims: ['sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'groupSize', 'splits'],
  variants: withScores,
  work: (s, v) => {
    const [rk, rv, d, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
    const product = rows(s) * 2 * d * rk;
    return {
      readBytes:
        latentRows(s) * (storedIn(s, v, rk) + storedIn(s, v, rv)) +
        field(s, 'kvHeads') * d * (evenRow(rk) * 2 + 4) +
        queries(s) * d * 4,
      writeBytes: partialBytes(s, rv) + scoreBytes(s, v),
      flops: product + rows(s) * (3 * d + group * 2 * (d + rv)) + unpacking(latentRows(s), v, rk + rv),
      matrixFlops: product,
    };
  },
  executed: (s, v) => {
    const { keys, weights } = executed(s, v);
    return keys + weights;
  },
  terms: (s, v) => {
    const { keys, weights } = executed(s, v);
    return [...latentTerms(s, spec.work(s, v), keys), weights];
  },
  // Rebuilt keys stay on chip. Values of heads that share a latent are a matrix product, those of one head are not.
  tuned: (s, v) => {
    const [rv, d, group] = [field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
    const { readBytes, matrixFlops } = spec.work(s, v);
    const shared = field(s, 'latentHeads') < field(s, 'kvHeads') || group > 1;
    const values = rows(s) * group * 2 * rv;
    return unlisted('latent-attention', readBytes - queries(s) * d * 2 + queries(s) * rv * 2 + scoreBytes(s, v), {
      matrix: matrixFlops + (shared ? values : 0),
      vector: rows(s) * (3 * d + group * 2 * d) + (shared ? 0 : values),
      rows: field(s, 'sequences') * field(s, 'latentHeads'),
    });
  },
};
