/**
 * The place of each cached scalar. The memory model counts the bytes of this layout and the decoder allocates from it,
 * so that predicted and allocated bytes are equal by construction.
 *
 * A tensor holds `layers × loops × heads` slots; a slot holds one row of `width` scalars a token. Tokens come in tiles
 * of TILE_TOKENS, so that any bit width fills whole 32-bit words without padding.
 */
import { storedBytes, TILE_TOKENS, type Storage } from '../../kernels/spec.js';
import { residualBytes, type ResidualRow } from '../../kernels/shared/cache/residual.layout.js';
import type { Geometry, LayerBlock } from '../geometry/geometry.js';

/** How the cache is stored beside the codec's own choice. */
export interface StorageChoice {
  readonly storage: Storage;
  readonly groupSize: number;
}

/** One tensor of a cache, for each of its layers and loops. */
export interface CacheTensor {
  readonly block: LayerBlock['name'];
  readonly role:
    | 'key'
    | 'value'
    | 'key-latent'
    | 'value-latent'
    | 'first-key-latent'
    | 'first-value-latent'
    | 'rotary-key'
    | 'key-stream'
    | 'value-stream'
    | 'index';
  /** Distinct layer slots stored (layers / s under cross-layer sharing). */
  readonly layers: number;
  /** Distinct loop slots stored: T for a loop-indexed cache, 1 where the loops share. */
  readonly loops: number;
  /** Rows a token in one slot: KV heads, or 1 where all heads share a row. */
  readonly heads: number;
  /** Scalars of a row. */
  readonly width: number;
  readonly storage: Storage;
  /** Scalars per f16 scale in quantised storage. */
  readonly groupSize: number;
  /** Last tokens that it holds, in a ring; all that are kept unless given. */
  readonly windowTokens?: number | undefined;
  /** Rows that hold several loops, end to end, as differences to the last of them. */
  readonly residual?: ResidualRow;
  /** Rows that no storage type has: bytes of each, and rows of a token, a share where not every token has one. */
  readonly packed?: { readonly bytes: number; readonly share: number };
}

/** Where each scalar of a cache is. */
export type CacheLayout = readonly CacheTensor[];

/** The tensor of a role in a loop of a block: where later loops keep windows, theirs is not the first one's. */
export function tensorOfLoop(
  layout: CacheLayout,
  block: LayerBlock['name'],
  role: CacheTensor['role'],
  loop: number,
): CacheTensor | undefined {
  const found = layout.filter((t) => t.block === block && t.role === role);
  return found.length > 1 ? found.find((t) => (t.windowTokens !== undefined) === loop > 0) : found[0];
}

/** True for windows of later loops beside rows of the first: a slot for each loop but that. */
const leavesFirst = (t: CacheTensor, loops: number): boolean => t.windowTokens !== undefined && t.loops === loops - 1;

/**
 * Which of a tensor's loop slots serves a loop: sharing makes several ask for the same; a later loop's window is its
 * own.
 */
export const loopSlot = (t: CacheTensor, loop: number, loops: number): number =>
  leavesFirst(t, loops) ? loop - 1 : Math.floor((loop * t.loops) / loops);

/** Scalars of a token for as long as it is kept, without a window's. */
export const scalarsPerToken = (layout: CacheLayout): number =>
  layout.reduce(
    (sum, t) =>
      sum + (t.windowTokens === undefined ? t.layers * t.loops * t.heads * t.width * (t.packed?.share ?? 1) : 0),
    0,
  );

export const rowBytes = (t: CacheTensor): number =>
  t.packed?.bytes ?? (t.residual ? residualBytes(t.residual) : storedBytes(t.storage, t.width, t.groupSize));

/** Bytes of a tensor's rows of one token; of rows that a share of the tokens has, that share of them. */
const tokenBytes = (t: CacheTensor): number => t.layers * t.loops * t.heads * rowBytes(t) * (t.packed?.share ?? 1);

/** Bytes that one cached token takes for as long as it is kept, group scales included. */
export const bytesPerToken = (layout: CacheLayout): number =>
  layout.reduce((sum, t) => sum + (t.windowTokens === undefined ? tokenBytes(t) : 0), 0);

/** Slots of a tensor's rows. @param slots those of rows that hold all kept tokens, whole tiles */
export const rowSlots = ({ windowTokens }: CacheTensor, slots: number): number =>
  windowTokens === undefined ? slots : Math.min(slots, pagedTokens(windowTokens, TILE_TOKENS));

/** Bytes of a sequence's windows: exact rows of its last tokens. @param slots of rows that hold all kept tokens */
export const windowBytes = (layout: CacheLayout, slots: number): number =>
  layout.reduce((sum, t) => sum + (t.windowTokens === undefined ? 0 : rowSlots(t, slots) * tokenBytes(t)), 0);

/** Tokens rounded up to whole pages. */
export const pagedTokens = (tokens: number, pageTokens: number): number => Math.ceil(tokens / pageTokens) * pageTokens;

/** One contiguous run of a sequence's cache: a row of one layer, loop and head, for all its (paged) tokens. */
export interface Slot {
  tensor: CacheTensor;
  layer: number;
  loop: number;
  head: number;
  /** From the start of the sequence's cache. */
  offsetBytes: number;
  bytes: number;
}

/** Enumerates the slots of a sequence of `tokens` (a whole number of tiles) in the order in which they are stored. */
export function* slotsOf(layout: CacheLayout, tokens: number): Generator<Slot> {
  let offsetBytes = 0;
  for (const tensor of layout) {
    const bytes = rowSlots(tensor, tokens) * rowBytes(tensor);
    for (let layer = 0; layer < tensor.layers; layer++) {
      for (let loop = 0; loop < tensor.loops; loop++) {
        for (let head = 0; head < tensor.heads; head++) {
          yield { tensor, layer, loop, head, offsetBytes, bytes };
          offsetBytes += bytes;
        }
      }
    }
  }
}

/**
 * A tensor of a block's layers. Written out: a plan makes every one of them, and spreading them took half of its time.
 */
export const cacheTensor = (
  { name, layers, loops }: LayerBlock,
  role: CacheTensor['role'],
  heads: number,
  width: number,
  storage: Storage,
  groupSize: number,
): CacheTensor => ({
  block: name,
  role,
  layers,
  loops,
  heads,
  width,
  storage,
  groupSize,
});

type Heads = Pick<Geometry, 'kvHeads' | 'headDim'>;

/** An uncompressed K and V pair for a block of layers. */
export const fullTensors = (
  block: LayerBlock,
  { kvHeads, headDim }: Heads,
  { storage, groupSize }: StorageChoice,
): CacheTensor[] => [
  cacheTensor(block, 'key', kvHeads, headDim, storage, groupSize),
  cacheTensor(block, 'value', kvHeads, headDim, storage, groupSize),
];

/** The same of a ring that holds the last tokens. */
export const windowTensors = (
  block: LayerBlock,
  g: Heads,
  choice: StorageChoice,
  windowTokens: number | undefined,
): CacheTensor[] => fullTensors(block, g, choice).map((tensor) => ({ ...tensor, windowTokens }));

/** The block of rows that serve all loops. */
export const sharedByLoops = ({ name, layers }: LayerBlock): LayerBlock => ({ name, layers, loops: 1 });

/** Latents of K and V for a block of layers: `heads` rows of each a token. */
export const latentTensors = (
  block: LayerBlock,
  heads: number,
  rankK: number,
  rankV: number,
  { storage, groupSize }: StorageChoice,
): CacheTensor[] => [
  cacheTensor(block, 'key-latent', heads, rankK, storage, groupSize),
  cacheTensor(block, 'value-latent', heads, rankV, storage, groupSize),
];
