/** What is decoded and how, what a schedule is made of, and how work is divided over workgroups, bindings and GPUs. */
import type { Division } from '../../kernels/attention-options.js';
import { anchoredLoops, codecSpec, isLatent, latentHeads, storageOfCodec } from '../codecs/registry.js';
import type { Branch, Codec, Path } from '../codecs/codec.js';
import type { StorageChoice } from '../codecs/layout.js';
import type { Eviction } from '../eviction/policy.js';
import type { Geometry, LayerBlock } from '../geometry/geometry.js';
import type { KernelCall } from '../../kernels/registry.js';
import { groupOf, type Storage } from '../../kernels/spec.js';

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
  /** Largest buffer that one call can bind, in bytes: what is beyond it is divided into parts. Infinity: no limit. */
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

/** An operation as it is priced: a call, when it runs, and which part of a run's rows it works on. */
export interface PricedOp extends KernelCall {
  readonly label: string;
  readonly when: When;
  /** Times that it runs, on parts of operands. Neighbours of equal `repeat` run part by part, with its partials. */
  readonly repeat: number;
  /** Prefill: the chunk's first token, by number in the run, or position before it; not given where it works on all. */
  readonly from?: number;
  /** The loop whose rows it works on, or how far before the one that it runs in; not given where it is that one. */
  readonly loop?: number;
  readonly loopsBack?: number;
  /** Attention over cached tokens: which splits it writes. */
  readonly division?: Division;
}

/** Where an operation of a stack runs. */
export interface Place {
  readonly block: LayerBlock;
  /** Within its block. */
  readonly layer: number;
  readonly loop: number;
  /** The layer among those stored: prelude, core and coda one after the other. */
  readonly stored: number;
}

/** One run of an operation. */
export interface Visit<O extends PricedOp = PricedOp> {
  readonly op: O;
  /** The last layer for what follows a loop; undefined outside the stacks. */
  readonly place: Place | undefined;
  /** Number of this part where bindings divide an operation, and the columns, sequences or rows of those before it. */
  readonly part: number;
  readonly before: number;
}

/** Heads of one GPU under tensor parallelism; too few KV heads are replicated. */
export const headsPerGpu = (heads: number, gpus: number): number => Math.max(1, Math.ceil(heads / gpus));

/** Query heads, KV heads and heads of the rotary branch's key, of one GPU. */
export const headsOf = (c: Configuration): number => headsPerGpu(c.geometry.heads, c.gpus);
export const kvHeadsOf = (c: Configuration): number => headsPerGpu(c.geometry.kvHeads, c.gpus);
export const branchHeadsOf = (c: Configuration): number => (c.branch.perHead ? kvHeadsOf(c) : 1);

/** Rows of keys, or of values. */
export type Axis = 'key' | 'value';
export const AXES: readonly Axis[] = ['key', 'value'];
/** These, and those of a rotary branch, in labels. */
export const NAME = { key: 'k', value: 'v', 'rotary-key': 'branch' } as const;
export const rankOf = ({ codec }: Configuration, axis: Axis): number =>
  (axis === 'key' ? codec.rankK : codec.rankV) ?? 0;

/** The storage type of the cache: that of the codec where it has its own, else the one chosen. */
export const storageOf = (c: Pick<Configuration, 'codec' | 'choice'>): Storage =>
  storageOfCodec(c.codec, c.choice.storage);

/** Scalars of a scale in the cache, 0 without scales. */
export const groupSizeOf = (c: Configuration): number => groupOf(storageOf(c), c.choice.groupSize);

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

/** Latent rows of a token in one layer and loop on one GPU: one a KV head, or one for all. */
export const latentsOf = (c: Configuration): number => latentHeads(c.codec, kvHeadsOf(c));

/** True where a latent sums over several loops, so that those of all layers are incomplete until the last one. */
export const spansLoops = (c: Configuration): boolean =>
  isLatent(c.codec) && codecSpec(c.codec).loopAxis && c.geometry.loops > 1;

/** Loops whose rows of full width the `fast` path writes together, from one latent. */
export const restoredLoops = (c: Configuration): number => (spansLoops(c) ? c.geometry.loops : 1);

/** Loops whose rows of a block are stored together, as differences to the last of them; 1 where there are none. */
export const anchoredIn = (c: Configuration, block: LayerBlock): number =>
  block.name === 'core' ? anchoredLoops(c.geometry, c.codec) : 1;
