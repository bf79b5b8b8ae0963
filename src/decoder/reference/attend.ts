/**
 * Attention of one query head over cached tokens and exact ones, on every path.
 *
 *   full, fast            k is the cached row; turned to its place where that is not its position (StreamingLLM)
 *   reconstruct,          k = RoPE(W_up,t c + mu_t), v = W_up,t c + mu_t. Materialised, fused and block-absorbed
 *   block-absorbed        kernels compute the same sums in another order; materialised rows are rounded to what they
 *                         are kept in
 *   lla-window            a step reads the last tokens' own k and v, which a ring keeps
 *   rotated               latents that carry their rotation: hybrid.ts
 *   absorbed              s = ((W_up,tᵀ q)ᵀ c + q·mu_t + RoPE(q_b)·RoPE(k_b)) (d + d_rope)^−½, content without RoPE;
 *                         output = W_up,t (Σ p c_v) + mu_t Σ p
 *
 * The exact token is scored as the path scores cached ones, with its own key and value in place of the decoded ones.
 * Prompts attend to rows of full width on every path, in the type in which these are kept; on the absorbed path they
 * are not rotated.
 */
import type { Path } from '../../codecs/codec.js';
import { pathSpec } from '../../codecs/paths.js';
import type { Geometry } from '../../geometry/geometry.js';
import { accumulate, attention, dot, rotate, softmax, turned, type Vector } from './arithmetic.js';
import type { SequenceCache } from './cache.js';
import { absorb, decode, expand, meanOf, type AxisCodec, type LayerCodec } from './codec.js';
import { attendHybrid, type HybridLayer } from './hybrid.js';
import type { Projection, Site } from './network.js';
import { kept, type CacheType } from './storage.js';

/**
 * The rows that one token reads: positions whose rows are in the cache, then tokens of its own pass with exact keys and
 * values.
 */
export interface Visible {
  readonly cached: readonly number[];
  readonly exact: readonly Projection[];
}

export interface AttendContext {
  readonly geometry: Geometry;
  readonly path: Path;
  readonly cache: SequenceCache;
  readonly site: Site;
  readonly kvHead: number;
  /** Keys are rotated as if the visible tokens followed each other, up to the query's position. */
  readonly reindexed: boolean;
  /** Of the site's layer; undefined where rows are of full width. */
  readonly codec: LayerCodec | undefined;
  /** The same of rotated latents. */
  readonly hybrid?: HybridLayer | undefined;
  /** Cached tokens from this position on are read as their exact rows, not as latents. */
  readonly exactFrom?: number;
  /**
   * Rows that are in memory of a type of its own before attention reads them: those decoded from latents, and those of
   * full width of tokens from a position on. None unless given.
   */
  readonly kept?: { readonly as: CacheType; readonly from: number };
  /** Rotary branch of the absorbed path: the query's vector, and an exact token's key (neither rotated). */
  readonly branch?: { readonly query: Vector; key(token: Projection): Vector };
}

/**
 * @param query of one head, not rotated
 * @returns the head's output, and the attention weights: cached tokens first, then exact ones
 */
export function attendHead(
  c: AttendContext,
  query: Vector,
  position: number,
  visible: Visible,
): { output: Vector; weights: number[] } {
  if (c.hybrid) return attendHybrid(c, c.hybrid, query, position, visible);
  const positions = [...visible.cached, ...visible.exact.map((t) => t.position)];
  /** The position by which a token's key is rotated: the query is the last of all. */
  const place = (i: number): number => (c.reindexed ? position - (positions.length - 1 - i) : (positions[i] as number));
  return c.codec && pathSpec(c.path).branch
    ? absorbed(c, c.codec, query, position, place, visible)
    : withRotaryKeys(c, query, position, place, visible);
}

/** Rows by the latent that they come from. A cached latent does not change, and every later query reads its rows. */
const known = new WeakMap<Vector, Map<number, Vector>>();

/** `decode`, once for each latent, loop and head. */
function decoded(axis: AxisCodec, loop: number, kvHead: number, latent: Vector): Vector {
  const rows = known.get(latent) ?? new Map<number, Vector>();
  known.set(latent, rows);
  const slot = loop * axis.kvHeads + kvHead;
  const row = rows.get(slot) ?? decode(axis, loop, kvHead, latent);
  rows.set(slot, row);
  return row;
}

/** A row decoded from its latent, in the form that attention reads. */
const rebuilt = (c: AttendContext, row: Vector): Vector => (c.kept ? kept(row, c.kept.as) : row);

/** The same of a row of full width. */
const read = (c: AttendContext, position: number, row: Vector): Vector =>
  c.kept && position >= c.kept.from ? kept(row, c.kept.as) : row;

function withRotaryKeys(
  c: AttendContext,
  query: Vector,
  position: number,
  place: (i: number) => number,
  visible: Visible,
): { output: Vector; weights: number[] } {
  const { rope } = c.geometry;
  const { site, kvHead, cache } = c;
  const latent = c.codec !== undefined && cache.has('key-latent', site) ? c.codec : undefined;
  const { exactFrom = Infinity } = c;
  const keyOf = (position: number, i: number): Vector =>
    latent && position < exactFrom
      ? rebuilt(
          c,
          turned(
            decoded(latent.key, site.loop, kvHead, cache.read('key-latent', site, kvHead, position)),
            place(i),
            rope,
          ),
        )
      : turned(read(c, position, cache.read('key', site, kvHead, position)), place(i) - position, rope);
  const valueOf = (position: number): Vector =>
    latent && position < exactFrom
      ? rebuilt(c, decoded(latent.value, site.loop, kvHead, cache.read('value-latent', site, kvHead, position)))
      : read(c, position, cache.read('value', site, kvHead, position));
  const keys = [
    ...visible.cached.map(keyOf),
    ...visible.exact.map((token, j) =>
      read(c, token.position, turned(token.keys[kvHead] as Vector, place(visible.cached.length + j), rope)),
    ),
  ];
  const values = [
    ...visible.cached.map(valueOf),
    ...visible.exact.map((token) => read(c, token.position, token.values[kvHead] as Vector)),
  ];
  return attention(rotate(query, position, rope), keys, values);
}

function absorbed(
  c: AttendContext,
  codec: LayerCodec,
  query: Vector,
  position: number,
  place: (i: number) => number,
  visible: Visible,
): { output: Vector; weights: number[] } {
  const { rope, headDim } = c.geometry;
  const { site, kvHead, cache } = c;
  const branch = c.branch as NonNullable<AttendContext['branch']>;
  const branchQuery = rotate(branch.query, position, rope);
  const latentQuery = absorb(codec.key, site.loop, kvHead, query);
  const offset = dot(query, meanOf(codec.key, site.loop, kvHead));
  const scale = (headDim + branchQuery.length) ** -0.5;
  const contentScore = (latent: Vector): number =>
    c.kept ? dot(query, rebuilt(c, decoded(codec.key, site.loop, kvHead, latent))) : dot(latentQuery, latent) + offset;
  const cachedScore = (position: number, i: number): number =>
    contentScore(cache.read('key-latent', site, kvHead, position)) +
    dot(branchQuery, turned(cache.read('rotary-key', site, kvHead, position), place(i) - position, rope));
  const exactScore = (token: Projection, j: number): number =>
    dot(query, read(c, token.position, token.keys[kvHead] as Vector)) +
    dot(branchQuery, turned(branch.key(token), place(visible.cached.length + j), rope));
  const weights = softmax(
    [...visible.cached.map(cachedScore), ...visible.exact.map(exactScore)].map((score) => scale * score),
  );
  const latents = visible.cached.map((position) => cache.read('value-latent', site, kvHead, position));
  const output = c.kept ? new Float64Array(headDim) : expandedSum(codec.value, site.loop, kvHead, latents, weights);
  if (c.kept)
    latents.forEach((latent, i) =>
      accumulate(output, rebuilt(c, decoded(codec.value, site.loop, kvHead, latent)), weights[i]),
    );
  visible.exact.forEach((token, j) =>
    accumulate(output, read(c, token.position, token.values[kvHead] as Vector), weights[visible.cached.length + j]),
  );
  return { output, weights };
}

/** W_up (Σ p c) + mu Σ p of the latents' weights p. */
function expandedSum(
  axis: AxisCodec,
  loop: number,
  kvHead: number,
  latents: readonly Vector[],
  weights: readonly number[],
): Vector {
  const sum = new Float64Array(axis.rank);
  latents.forEach((latent, i) => accumulate(sum, latent, weights[i]));
  const output = expand(axis, loop, kvHead, sum);
  accumulate(
    output,
    meanOf(axis, loop, kvHead),
    weights.slice(0, latents.length).reduce((total, weight) => total + weight, 0),
  );
  return output;
}
