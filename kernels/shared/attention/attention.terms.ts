/** Terms that the kernels of attention over a cache share. */
import {
  field,
  isQuantised,
  storageOfVariant,
  STORAGES,
  UNPACK_FLOPS,
  type Shape,
  type Storage,
  type Work,
} from '../../spec.js';
import { DEFAULT_WORKGROUP, lanesOf, readUnit, unitsEach, wideOf } from './fold.terms.js';

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

/** Rows that a sequence's queries read, and query heads of each. */
export type Heads = Readonly<Record<'kvHeads' | 'group', number>>;
/** Of keys, of values, and of what lies in rows of its own beside the keys. */
type Widths = readonly [key: number, value: number, branch?: number];

/**
 * What threads do unless tuned, on rows of whole units for each of them. `held`: components that a thread holds;
 * `begun`: components of queries that they load before their tokens, and of sums that they add up after them.
 */
export function threadsOf(s: Shape, storage: Storage, heads: Heads, [keyWidth, valueWidth, branchWidth = 0]: Widths) {
  const rows = { keyWidth, valueWidth, group: heads.group };
  const lanes = lanesOf(storage, rows);
  const wide = wideOf(storage, rows, lanes);
  const units = [keyWidth, branchWidth, valueWidth].map((width) => unitsEach({ storage, width }, wide));
  const held = units.reduce((sum, each) => sum + each, 0) * readUnit({ storage });
  const rowsRead = field(s, 'sequences') * heads.kvHeads * Math.ceil(heads.group / lanes);
  return { lanes, wide, held, rowsRead, begun: rowsRead * field(s, 'splits') * DEFAULT_WORKGROUP * lanes * held };
}

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
