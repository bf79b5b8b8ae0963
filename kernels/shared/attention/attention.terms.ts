/** Terms that the kernels of attention over a cache share. */
import { field, isQuantised, storageOfVariant, STORAGES, UNPACK_FLOPS, type Shape, type Work } from '../../spec.js';

/** Cached tokens × KV heads × sequences: how many rows an attention call reads. */
export const rows = (s: Shape) => field(s, 'sequences') * field(s, 'kvHeads') * field(s, 'context');
/**
 * Latent rows of a cache: `latentHeads` is the number of KV heads (LLA), or 1 where one latent serves all of them
 * (LLA-2D, mla-head) and is read once for all heads.
 */
export const latentRows = (s: Shape) => field(s, 'sequences') * field(s, 'latentHeads') * field(s, 'context');
/** Query heads × sequences. */
export const queries = (s: Shape) => field(s, 'sequences') * field(s, 'kvHeads') * field(s, 'group');
/** Bytes of the split partials that an attention call writes: an output row, its maximum and its sum, f32. */
export const partialBytes = (s: Shape, width: number) => queries(s) * field(s, 'splits') * (width + 2) * 4;
/**
 * Bytes of the scores from which H2O's mass is computed: one f32 a query head and cached token, where the variant
 * writes them.
 */
export const scoreBytes = (s: Shape, v: string) => (v.endsWith('+scores') ? queries(s) * field(s, 'context') * 4 : 0);
/** The longest serial loop of one workgroup, in tokens: the time that remains when every split runs at once. */
const serialTokens = (s: Shape) => Math.ceil(field(s, 'context') / field(s, 'splits'));
/** Each quantised scalar of `count` rows is extracted, converted and scaled once for all query heads that read it. */
export const unpacking = (count: number, v: string, width: number) =>
  isQuantised(storageOfVariant(v)) ? count * UNPACK_FLOPS * width : 0;

/**
 * Attention: launch, bytes read, operations, partials written, what workgroups do before and after their tokens, and
 * the longest serial loop.
 */
export const attendTerms = (s: Shape, w: Work, executed: { readonly operations: number; readonly begun: number }) => [
  1,
  w.readBytes,
  executed.operations,
  w.writeBytes,
  executed.begun,
  serialTokens(s),
];
/**
 * Attention over latents: launch, bytes read, operations of the keys, tokens (rotation, softmax), partials written,
 * workgroups started, and operations of one of them: the time that remains when all run at once.
 */
export const latentTerms = (s: Shape, w: Work, keyFlops: number) => [
  1,
  w.readBytes,
  keyFlops,
  rows(s) * field(s, 'group'),
  w.writeBytes,
  queries(s) * field(s, 'splits'),
  keyFlops / (queries(s) * field(s, 'splits')),
];
/** Launch and bytes. */
export const elementTerms = (w: Work) => [1, w.readBytes + w.writeBytes];

/** Every storage, and the same with scores written. */
export const withScores = [...STORAGES, ...STORAGES.map((s) => `${s}+scores`)];
