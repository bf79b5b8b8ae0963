/** What is decoded and how, what a schedule is made of, and how work is divided over workgroups, bindings and GPUs. */
import type { Division } from '../../kernels/attention-options.js';
import { anchoredLoops, codecSpec, isLatent, latentHeads, storageOfCodec } from '../codecs/registry.js';
import type { Branch, Codec, Path } from '../codecs/codec.js';
import type { StorageChoice } from '../codecs/layout.js';
import type { Eviction } from '../eviction/policy.js';
import type { Geometry, LayerBlock } from '../geometry/geometry.js';
import type { KernelName, ShapeOf } from '../../kernels/registry.js';
import { groupOf, type Shape, type Storage } from '../../kernels/spec.js';
import { FLOAT8_BLOCKS, storedVariant } from '../../kernels/stored-weights.js';

/** What is decoded, and how. */
export interface Configuration {
  readonly geometry: Geometry;
  readonly codec: Codec;
  readonly path: Path;
  /** `reconstruct` only: rebuild K and V into memory first instead of inside attention. */
  readonly materialised: boolean;
  readonly choice: StorageChoice;
  readonly branch: Branch;
  readonly eviction: Eviction | null;
  /** GPUs that share heads, MLP and vocabulary (tensor parallel). */
  readonly gpus: number;
  /** Workgroups that split-KV attention aims for; it splits the context until there are as many. */
  readonly targetWorkgroups: number;
  /**
   * Largest buffer that one call can bind, in bytes: weights and caches beyond it are divided into parts. Infinity: no
   * limit.
   */
  readonly bindingBytes: number;
}

/** Which iterations of its stage an operation runs in. */
export type When =
  | 'always'
  /** Only in the first loop: what the loops share of a token is computed from its state there. */
  | 'first-loop'
  /** In every loop but the first, whose state is zero. */
  | 'later-loops'
  /** Only in one loop, where each reads something else (flashloop); nowhere where there are fewer. */
  | 'second-loop'
  | 'third-loop'
  | 'fourth-loop'
  /** Only in the last loop: a loop-axis latent is complete, and no later loop reads the cache of this step. */
  | 'last-loop'
  /** Only in loops to which those before them are stored as differences, and only in those before them. */
  | 'anchor-loop'
  | 'residual-loops'
  /** Only in the first of the layers that share a cache (cla): the one that has K and V projections. */
  | 'owning-layer'
  /** Only in the last of them: no later layer reads the cache of this step and loop. */
  | 'closing-layer';

export interface Op {
  readonly label: string;
  readonly kernel: KernelName;
  readonly variant: string;
  readonly shape: Shape;
  readonly when: When;
  /**
   * Times that it runs, on further parts of operands that one call cannot bind. Neighbours of equal `repeat` run part
   * by part, so that split partials are those of one part: attention of the first sequences, their merge, then the
   * next.
   */
  readonly repeat: number;
  /**
   * Prefill: the first token of the chunk that it works on, by its number in the run, or by its position before the
   * run; not given where it works on all.
   */
  readonly from?: number;
  /** The loop whose rows it works on, or how far before the one that it runs in; not given where it is that one. */
  readonly loop?: number;
  readonly loopsBack?: number;
  /** Attention over cached tokens: which splits it writes. */
  readonly division?: Division;
}

/** Heads of one GPU under tensor parallelism; too few KV heads are replicated. */
export const headsPerGpu = (heads: number, gpus: number): number => Math.max(1, Math.ceil(heads / gpus));

/** Query heads, KV heads and heads of the rotary branch's key, of one GPU. */
export const headsOf = (c: Configuration): number => headsPerGpu(c.geometry.heads, c.gpus);
export const kvHeadsOf = (c: Configuration): number => headsPerGpu(c.geometry.kvHeads, c.gpus);
export const branchHeadsOf = (c: Configuration): number => (c.branch.perHead ? kvHeadsOf(c) : 1);

export type Axis = 'k' | 'v';
export const AXES: readonly Axis[] = ['k', 'v'];
export const rankOf = ({ codec }: Configuration, axis: Axis): number => (axis === 'k' ? codec.rankK : codec.rankV) ?? 0;

/** The storage type of the cache: that of the codec where it has its own, else the one chosen. */
export const storageOf = (c: Pick<Configuration, 'codec' | 'choice'>): Storage =>
  storageOfCodec(c.codec, c.choice.storage);

/** Scalars of a scale in the cache, 0 without scales. */
export const groupSizeOf = (c: Configuration): number => groupOf(storageOf(c), c.choice.groupSize);

export const op = <K extends KernelName>(
  label: string,
  kernel: K,
  variant: string,
  shape: ShapeOf<K>,
  when: When = 'always',
  repeat = 1,
): Op => ({ label, kernel, variant, shape, when, repeat });

/** Parts of equal size, and how many there are. */
export interface Part {
  readonly size: number;
  readonly repeat: number;
}

/** Splits `count` items of `bytesEach` into equal calls that each fit a binding, the rest in one more. */
export function inParts(count: number, bytesEach: number, bindingBytes: number): Part[] {
  const parts = Math.min(count, Math.max(1, Math.ceil((count * bytesEach) / bindingBytes)));
  return partsOf(count, Math.ceil(count / parts));
}

/** Parts of `size`, the rest in one more. */
export function partsOf(count: number, size: number): Part[] {
  const whole = Math.floor(count / size);
  const rest = count - whole * size;
  return [{ size, repeat: whole }, ...(rest > 0 ? [{ size: rest, repeat: 1 }] : [])];
}

/** A projection of a layer, whose weights a server may hold in fewer bits. */
export function projectInLayer(c: Configuration, ...rest: Tail<typeof project>): Op[] {
  const { quantised: q } = c.geometry;
  if (!q) return project(c, ...rest);
  const variant = q.float8
    ? q.blocks
      ? FLOAT8_BLOCKS
      : 'f8'
    : storedVariant({ as: q.unpacked ? 'unpacked' : 'packed', bits: q.layerBits });
  return project(c, ...rest).map((o) => ({ ...o, variant }));
}
type Tail<F> = F extends (first: never, ...rest: infer R) => unknown ? R : never;

/** A projection by a table or the head, which few formats store in fewer bits. */
export function projectByTable(c: Configuration, ...rest: Tail<typeof project>): Op[] {
  const bits = c.geometry.quantised?.tableBits ?? 16;
  const ops = project(c, ...rest);
  return bits < 16 ? ops.map((o) => ({ ...o, variant: storedVariant({ as: 'packed', bits }) })) : ops;
}

/** A projection. Weights beyond a binding are divided by columns, in pairs as they are stored. */
export function project(c: Configuration, label: string, m: number, k: number, n: number, when: When = 'always'): Op[] {
  const product = (columns: number, repeat: number): Op =>
    op(label, 'matmul', 'f16', { groups: 1, m, k, n: columns }, when, repeat);
  if (Math.floor(n / 2) * 4 * k <= c.bindingBytes) return [product(n, 1)];
  const parts = inParts(Math.floor(n / 2), 4 * k, c.bindingBytes);
  if (parts.length === 1 && parts[0]?.repeat === 1) return [product(n, 1)];
  // An odd column joins the last part.
  const [first, rest] = parts as [(typeof parts)[number], (typeof parts)[number] | undefined];
  if (rest) return [product(2 * first.size, first.repeat), product(2 * rest.size + (n % 2), 1)];
  return n % 2 === 0
    ? [product(2 * first.size, first.repeat)]
    : [product(2 * first.size, first.repeat - 1), product(2 * first.size + 1, 1)];
}

/**
 * A product with one matrix a KV head (or a shared one): `m` rows are those of all sequences and query heads that use
 * it.
 */
export const perHead = (label: string, groups: number, m: number, k: number, n: number, when: When = 'always'): Op =>
  op(label, 'matmul', 'f16', { groups, m, k, n }, when);

/** Latent rows of a token in one layer and loop on one GPU: one a KV head, or one for all. */
export const latentsOf = (c: Configuration): number => latentHeads(c.codec, kvHeadsOf(c));

/** Matrices that a latent's product has, and the width of what each multiplies. */
export function encodersOf(c: Configuration): [groups: number, width: number] {
  const latents = latentsOf(c);
  return [latents, (kvHeadsOf(c) / latents) * c.geometry.headDim];
}

/** True where a latent sums over several loops, so that those of all layers are incomplete until the last one. */
export const spansLoops = (c: Configuration): boolean =>
  isLatent(c.codec) && codecSpec(c.codec).loopAxis && c.geometry.loops > 1;

/** Loops whose rows of full width the `fast` path writes together, from one latent. */
export const restoredLoops = (c: Configuration): number => (spansLoops(c) ? c.geometry.loops : 1);

/** Loops whose rows of a block are stored together, as differences to the last of them; 1 where there are none. */
export const anchoredIn = (c: Configuration, block: LayerBlock): number =>
  block.name === 'core' ? anchoredLoops(c.geometry, c.codec) : 1;

/** The same operations for each of the loops up to the anchor's, in which they run. */
export const everyAnchoredLoop = (c: Configuration, ops: readonly Op[]): Op[] =>
  Array.from({ length: anchoredLoops(c.geometry, c.codec) }, (_, loopsBack) => ops.map((o) => ({ ...o, loopsBack })))
    .toReversed()
    .flat();

/** The same operations for each of these loops; those of the place's own loop where a latent has one. */
export function everyRestoredLoop(c: Configuration, ops: readonly Op[]): Op[] {
  if (!spansLoops(c)) return [...ops];
  return Array.from({ length: c.geometry.loops }, (_, loop) => ops.map((o) => ({ ...o, loop }))).flat();
}

/**
 * Rows of full width of every loop that a latent stands for (`fast`). With one latent a KV head a loop is a product of
 * its own, so that its heads lie side by side.
 */
export function restoreOps(c: Configuration, label: string, rank: number, rows: number, when: When): Op[] {
  const { headDim } = c.geometry;
  const kvHeads = kvHeadsOf(c);
  return codecSpec(c.codec).latentFor === 'one-head'
    ? everyRestoredLoop(c, [perHead(label, kvHeads, rows, rank, headDim, when)])
    : [perHead(label, 1, rows, rank, restoredLoops(c) * kvHeads * headDim, when)];
}
