/**
 * Attention of one new token in float64, as the definition has it: scores over all cached tokens, softmax, weighted
 * sum. It reads the stored (rounded) values. The specification of the attend kernels.
 */
import { rotaryFrequencies, type Pairing } from '../../gpu/rotary.js';
import type { Span } from '../../kernels/shared/fold.launch.js';
import { evenRow, type Shape } from '../../kernels/spec.js';
import type { Scalars } from '../inputs.js';

type Dims = Readonly<Record<string, number>>;

/** softmax(scores) · rows. */
export function weightedSum(scores: Float64Array, width: number, row: (token: number, i: number) => number): number[] {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = scores.map((s) => Math.exp(s - top));
  const total = weights.reduce((a, b) => a + b, 0);
  const out = new Array<number>(width).fill(0);
  weights.forEach((p, token) => {
    for (let i = 0; i < width; i++) out[i] = (out[i] as number) + (p / total) * row(token, i);
  });
  return out;
}

/**
 * Slots of the tokens that a sequence's span holds, with their positions: the pinned ones (their position is their slot
 * here), then the ring.
 */
export function tokensOf(
  span: Span,
  pinned: number,
  capacity: number,
): { slot: number; position: number; pinned: boolean }[] {
  const ring = capacity - pinned;
  return [
    ...Array.from({ length: span.pinned }, (_, slot) => ({ slot, position: slot, pinned: true })),
    ...Array.from({ length: span.ring }, (_, i) => ({
      slot: pinned + ((span.firstPosition + i) % ring),
      position: span.firstPosition + i,
      pinned: false,
    })),
  ];
}

/**
 * Which tokens of a row an attention call reads: the span of every sequence, the pinned slots and all slots of a row.
 */
export interface Run {
  readonly span: (sequence: number) => Span;
  readonly pinned: number;
  readonly capacity: number;
  /** Queries of the first set, where pinned tokens meet a second one. */
  readonly querySet: number;
}

/** A cache as stored: component `i` of a row's slot. */
export type CachedRows = (row: number, slot: number, i: number) => number;

/**
 * Output of one query head (counted over all sequences) of `attend`, and its scaled scores (natural logarithm) by slot.
 */
export function attendRow(
  shape: Shape,
  scale: number,
  query: Scalars,
  caches: Record<'keys' | 'values' | 'branch', CachedRows>,
  run: Run,
  head: number,
): { output: number[]; scores: Map<number, number> } {
  const { kvHeads, group, keyWidth, valueWidth, branchWidth, branchHeads } = shape as Dims as Record<
    'kvHeads' | 'group' | 'keyWidth' | 'valueWidth' | 'branchWidth' | 'branchHeads',
    number
  >;
  const row = Math.floor(head / group);
  const sequence = Math.floor(row / kvHeads);
  const branchRow = branchHeads === 1 ? sequence : Math.floor((head * branchHeads) / (kvHeads * group));
  const tokens = tokensOf(run.span(sequence), run.pinned, run.capacity);
  const width = keyWidth + branchWidth;
  const q = (set: number): Float64Array =>
    Float64Array.from({ length: width }, (_, i) => query((set + head) * width + i));
  const [ringQuery, pinnedQuery] = [q(0), q(run.querySet)];
  const scores = Float64Array.from(tokens, (t) => {
    const own = t.pinned ? pinnedQuery : ringQuery;
    let dot = 0;
    for (let i = 0; i < keyWidth; i++) dot += (own[i] as number) * caches.keys(row, t.slot, i);
    for (let i = 0; i < branchWidth; i++) dot += (own[keyWidth + i] as number) * caches.branch(branchRow, t.slot, i);
    return scale * dot;
  });
  const output = weightedSum(scores, valueWidth, (t, i) => caches.values(row, (tokens[t] as { slot: number }).slot, i));
  return { output, scores: new Map(tokens.map((t, i) => [t.slot, scores[i] as number])) };
}

/**
 * How keys are rebuilt and rotated: base of the frequencies, which components form a pair, and the up-projection with
 * its mean.
 */
export interface Rebuilding {
  readonly ropeBase: number;
  readonly pairing: Pairing;
  /** [KV head][head width][rank, padded to even] */
  readonly weights: Scalars;
  /** [KV head][head width] */
  readonly means: Scalars;
}

interface Head {
  readonly w: Float64Array;
  readonly mu: Float64Array;
}
/** Heads read so far: a check rebuilds thousands of rows of the same few. */
const knownHeads = new WeakMap<Rebuilding, Map<number, Head>>();

/** W and mu of one KV head. */
function headOf(rebuilding: Rebuilding, kvHead: number, headDim: number, rank: number): Head {
  const heads = knownHeads.get(rebuilding) ?? new Map<number, Head>();
  knownHeads.set(rebuilding, heads);
  const { weights, means } = rebuilding;
  const stride = evenRow(rank);
  const head = heads.get(kvHead) ?? {
    w: Float64Array.from({ length: headDim * rank }, (_, i) =>
      weights((kvHead * headDim + Math.floor(i / rank)) * stride + (i % rank)),
    ),
    mu: Float64Array.from({ length: headDim }, (_, i) => means(kvHead * headDim + i)),
  };
  heads.set(kvHead, head);
  return head;
}

/** k = W c + mu into `k`. */
function rebuildInto(k: Float64Array, w: Float64Array, mu: Float64Array, c: Float64Array): void {
  const rank = c.length;
  for (let i = 0; i < k.length; i++) {
    let sum = mu[i] as number;
    for (let r = 0; r < rank; r++) sum += (w[i * rank + r] as number) * (c[r] as number);
    k[i] = sum;
  }
}

/** Rotates a head's components in place by theta_m * position. */
function rotate(x: Float64Array, theta: Float64Array, pairing: Pairing, position: number): void {
  for (let m = 0; m < theta.length; m++) {
    const [a, b] = pairing === 'adjacent' ? [2 * m, 2 * m + 1] : [m, m + theta.length];
    const [cos, sin] = [Math.cos(position * (theta[m] as number)), Math.sin(position * (theta[m] as number))];
    const [u, v] = [x[a] as number, x[b] as number];
    x[a] = u * cos - v * sin;
    x[b] = u * sin + v * cos;
  }
}

/**
 * Output of one query head (counted over all sequences) of attention over latents, and its scaled scores (natural
 * logarithm) by slot: k_t = W c_t + mu, rotated by the token's position, against a query that comes rotated; the value
 * latents are summed as they are.
 * @param pinnedPosition position of a pinned slot, for a KV head counted over all sequences
 */
export function attendLatentRow(
  shape: Shape,
  scale: number,
  query: Scalars,
  rebuilding: Rebuilding,
  caches: Record<'keys' | 'values', CachedRows>,
  run: Run,
  head: number,
  pinnedPosition: (kvRow: number, slot: number) => number,
): { output: number[]; scores: Map<number, number> } {
  const { kvHeads, latentHeads, group, rankK, rankV, headDim } = shape as Dims as Record<
    'kvHeads' | 'latentHeads' | 'group' | 'rankK' | 'rankV' | 'headDim',
    number
  >;
  const kvRow = Math.floor(head / group);
  const sequence = Math.floor(kvRow / kvHeads);
  const row = latentHeads === 1 ? sequence : kvRow;
  const tokens = tokensOf(run.span(sequence), run.pinned, run.capacity);
  const theta = rotaryFrequencies(rebuilding.ropeBase, headDim);
  const { w, mu } = headOf(rebuilding, kvRow % kvHeads, headDim, rankK);
  const q = Float64Array.from({ length: headDim }, (_, i) => query(head * headDim + i));
  const c = new Float64Array(rankK);
  const k = new Float64Array(headDim);
  const scores = Float64Array.from(tokens, (t) => {
    for (let r = 0; r < rankK; r++) c[r] = caches.keys(row, t.slot, r);
    rebuildInto(k, w, mu, c);
    rotate(k, theta, rebuilding.pairing, t.pinned ? pinnedPosition(kvRow, t.slot) : t.position);
    let dot = 0;
    for (let i = 0; i < headDim; i++) dot += (q[i] as number) * (k[i] as number);
    return scale * dot;
  });
  const output = weightedSum(scores, rankV, (t, i) => caches.values(row, (tokens[t] as { slot: number }).slot, i));
  return { output, scores: new Map(tokens.map((t, i) => [t.slot, scores[i] as number])) };
}

/**
 * The rebuilt row of the token in a slot: W c + mu, rotated by `position`, or as it is where that is null.
 * @param row KV head, counted over all sequences
 */
export function rebuiltRow(
  shape: Shape,
  rebuilding: Rebuilding,
  keys: CachedRows,
  row: number,
  slot: number,
  position: number | null,
): number[] {
  const { kvHeads, latentHeads, rank, headDim } = shape as Dims as Record<
    'kvHeads' | 'latentHeads' | 'rank' | 'headDim',
    number
  >;
  const { w, mu } = headOf(rebuilding, row % kvHeads, headDim, rank);
  const latentRow = latentHeads === 1 ? Math.floor(row / kvHeads) : row;
  const x = new Float64Array(headDim);
  rebuildInto(
    x,
    w,
    mu,
    Float64Array.from({ length: rank }, (_, r) => keys(latentRow, slot, r)),
  );
  if (position !== null) rotate(x, rotaryFrequencies(rebuilding.ropeBase, headDim), rebuilding.pairing, position);
  return [...x];
}

/** Folds split partials [o, m, l] (m to base 2) of one row into its output. */
export function mergedRow(partial: Scalars, row: number, splits: number, width: number): number[] {
  const at = (split: number, i: number): number => partial((row * splits + split) * (width + 2) + i);
  let top = -Infinity;
  for (let s = 0; s < splits; s++) top = Math.max(top, at(s, width));
  let total = 0;
  const out = new Array<number>(width).fill(0);
  for (let s = 0; s < splits; s++) {
    const fade = 2 ** (at(s, width) - top);
    total += fade * at(s, width + 1);
    for (let i = 0; i < width; i++) out[i] = (out[i] as number) + fade * at(s, i);
  }
  return out.map((x) => x / total);
}
