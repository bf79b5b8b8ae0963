/** The kernels around attention over a cache: what each reads, writes and computes, and the terms of its time. */
import {
  evenRow,
  field,
  isQuantised,
  padded,
  storageOfVariant,
  STORAGES,
  storedBytes,
  UNPACK_FLOPS,
  type KernelSpec,
  type Shape,
  type Work,
} from './kernel-spec.js';

/** Cached tokens × KV heads × sequences: how many rows an attention call walks over. */
const rows = (s: Shape) => field(s, 'sequences') * field(s, 'kvHeads') * field(s, 'context');
/**
 * Latent rows of a cache: `latentHeads` is the number of KV heads (LLA), or 1 where one latent serves all of them
 * (LLA-2D, mla-head) and is read once for all heads.
 */
const latentRows = (s: Shape) => field(s, 'sequences') * field(s, 'latentHeads') * field(s, 'context');
/** Query heads × sequences. */
const queries = (s: Shape) => field(s, 'sequences') * field(s, 'kvHeads') * field(s, 'group');
/** Bytes of the split partials that an attention call writes: an output row, its maximum and its sum, f32. */
const partialBytes = (s: Shape, width: number) => queries(s) * field(s, 'splits') * (width + 2) * 4;
/**
 * Bytes of the scores that H2O's mass is made of: one f32 a query head and cached token, where the variant writes them.
 */
const scoreBytes = (s: Shape, v: string) => (v.endsWith('+scores') ? queries(s) * field(s, 'context') * 4 : 0);
/** The longest serial walk of one workgroup, in tokens: what is left when every split runs at once. */
const serialTokens = (s: Shape) => Math.ceil(field(s, 'context') / field(s, 'splits'));
const stored = (s: Shape, v: string, width: number) => storedBytes(storageOfVariant(v), width, field(s, 'groupSize'));
/** Each quantised scalar of `count` rows is extracted, converted and scaled once for all query heads that read it. */
const unpacking = (count: number, v: string, width: number) =>
  isQuantised(storageOfVariant(v)) ? count * UNPACK_FLOPS * width : 0;

/** Attention: launch, bytes read, operations, partials written, workgroups started, and the longest serial walk. */
const attendTerms = (s: Shape, w: Work) => [
  1,
  w.readBytes,
  w.flops,
  w.writeBytes,
  queries(s) * field(s, 'splits'),
  serialTokens(s),
];
/**
 * Attention over latents: the K side's multiply-adds, and what every cached token costs whatever its rank (rotation,
 * softmax).
 */
const latentTerms = (s: Shape, w: Work, keyFlops: number) => [
  1,
  w.readBytes,
  keyFlops,
  rows(s) * field(s, 'group'),
  w.writeBytes,
  queries(s) * field(s, 'splits'),
  serialTokens(s),
];
const elementTerms = (w: Work) => [1, w.readBytes + w.writeBytes];

const withScores = [...STORAGES, ...STORAGES.map((s) => `${s}+scores`)];

/**
 * Split-KV decode attention of one new token over cached rows that are used as they lie: full K/V, or latents with
 * an absorbed query. `branchWidth`: rotary key scalars beside the content key (0 without), shared by all KV heads
 * when `branchHeads` is 1. `group`: query heads that read the same cached row. `+scores` also writes every score.
 */
const attend: KernelSpec = {
  dims: [
    'sequences',
    'kvHeads',
    'group',
    'context',
    'keyWidth',
    'valueWidth',
    'branchWidth',
    'branchHeads',
    'groupSize',
    'splits',
  ],
  variants: withScores,
  work: (s, v) => {
    const branch = field(s, 'branchWidth');
    const key = field(s, 'keyWidth');
    const value = field(s, 'valueWidth');
    const branchRows = field(s, 'sequences') * field(s, 'branchHeads') * field(s, 'context');
    const product = rows(s) * field(s, 'group') * 2 * (key + branch + value);
    return {
      readBytes:
        rows(s) * (stored(s, v, key) + stored(s, v, value)) +
        (branch > 0 ? branchRows * stored(s, v, branch) : 0) +
        queries(s) * (key + branch) * 4,
      writeBytes: partialBytes(s, value) + scoreBytes(s, v),
      flops: product + unpacking(rows(s), v, key + branch + value),
      matrixFlops: product,
    };
  },
  terms: (s, v) => attendTerms(s, attend.work(s, v)),
};

/**
 * Split-KV decode attention over latents with K rebuilt in workgroup memory and rotated; V stays latent (its
 * up-projection is applied after the merge). `+scores` also writes every score.
 */
const attendRebuild: KernelSpec = {
  dims: ['sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'groupSize', 'splits'],
  variants: withScores,
  work: (s, v) => {
    const [rk, rv, d, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'headDim'), field(s, 'group')];
    const product = rows(s) * 2 * d * rk;
    return {
      readBytes:
        latentRows(s) * (stored(s, v, rk) + stored(s, v, rv)) +
        field(s, 'kvHeads') * d * (evenRow(rk) * 2 + 4) +
        queries(s) * d * 4,
      writeBytes: partialBytes(s, rv) + scoreBytes(s, v),
      flops: product + rows(s) * (3 * d + group * 2 * (d + rv)) + unpacking(latentRows(s), v, rk + rv),
      matrixFlops: product,
    };
  },
  // Latent pairs are staged in powers of two, at least 16 and at most 256 at a time.
  terms: (s, v) => {
    const pairs = evenRow(field(s, 'rankK')) / 2;
    const step = Math.min(256, Math.max(16, 2 ** Math.ceil(Math.log2(Math.max(1, pairs)))));
    return latentTerms(s, attendRebuild.work(s, v), rows(s) * 4 * field(s, 'headDim') * padded(pairs, step));
  },
};

/**
 * Components of a block vector: the latent's, one for the mean of the keys, whose latent is 1, and padding to an even
 * count.
 */
export const blockComponents = (rankK: number): number => evenRow(rankK + 1);

/**
 * Set-up of block-absorbed attention: a_m = q_m w_m + q_{m+d/2} w_{m+d/2} and b_m = q_{m+d/2} w_m − q_m w_{m+d/2} of
 * every query head, from the rotated query and the key up-projection (f16) with its mean (f32). `heads`: sequences ×
 * query heads.
 */
const blockVectors: KernelSpec = {
  dims: ['heads', 'kvHeads', 'rankK', 'headDim'],
  variants: ['f16'],
  work: (s) => {
    const [heads, rk, d] = [field(s, 'heads'), field(s, 'rankK'), field(s, 'headDim')];
    const vectors = heads * d * blockComponents(rk);
    return {
      readBytes: field(s, 'kvHeads') * d * (evenRow(rk) * 2 + 4) + heads * d * 4,
      writeBytes: vectors * 4,
      flops: 3 * vectors,
      matrixFlops: 0,
    };
  },
  terms: (s) => {
    const w = blockVectors.work(s, 'f16');
    return [1, w.readBytes, w.writeBytes];
  },
};

/**
 * Blocks of positions that a row's cached tokens touch; the threads of a partial block idle, so it costs like a whole
 * one.
 */
const blocks = (s: Shape) => Math.ceil(field(s, 'context') / field(s, 'blockTokens'));

/**
 * f32 scalars of the basis of a query head: in every block of its tokens, `functions` vectors of all latent components,
 * in whole quads, and of the mean, in one of its own.
 */
export const blockBasisScalars = (
  tokens: number,
  rankK: number,
  { blockTokens, functions }: { blockTokens: number; functions: number },
): number => Math.ceil(tokens / blockTokens) * (padded(rankK, 4) + 4) * functions;

const basisBytes = (s: Shape): number =>
  4 *
  blockBasisScalars(field(s, 'context'), field(s, 'rankK'), {
    blockTokens: field(s, 'blockTokens'),
    functions: field(s, 'functions'),
  });

/**
 * The basis of every block of a query, from its vectors: phases moved to the block's centre, and combined into the
 * block's functions (schedule/block-basis.ts). `heads`: query heads of a sequence; `setupPerRank`: multiply-adds of a
 * block and latent component.
 */
const blockBasis: KernelSpec = {
  dims: ['sequences', 'heads', 'context', 'rankK', 'headDim', 'blockTokens', 'functions', 'setupPerRank'],
  variants: ['f32'],
  work: (s) => {
    const [heads, rk, d] = [field(s, 'sequences') * field(s, 'heads'), field(s, 'rankK'), field(s, 'headDim')];
    const flops = heads * blocks(s) * 2 * field(s, 'setupPerRank') * rk;
    return {
      readBytes: heads * d * blockComponents(rk) * 4,
      writeBytes: heads * basisBytes(s),
      flops,
      matrixFlops: flops,
    };
  },
  terms: (s) => {
    const w = blockBasis.work(s, 'f32');
    return [1, w.readBytes, w.writeBytes, w.flops];
  },
};

/** Operations of the scores: every function at every offset of either sign, and the products with two latents. */
const scoreFlops = (s: Shape) =>
  queries(s) * blocks(s) * field(s, 'blockTokens') * (field(s, 'functions') + 4) * field(s, 'rankK');

/**
 * Split-KV decode attention with full RoPE straight on latents: block by block, the rotated key up-projection is
 * expressed in few functions of the position, so that K is never rebuilt. `blockTokens`: positions of a block;
 * `functions`: functions of the offset in a block, with a basis vector each (schedule/block-absorbed.ts).
 */
const attendBlockAbsorbed: KernelSpec = {
  dims: [
    'sequences',
    'kvHeads',
    'latentHeads',
    'group',
    'context',
    'rankK',
    'rankV',
    'headDim',
    'blockTokens',
    'functions',
    'groupSize',
    'splits',
  ],
  variants: withScores,
  work: (s, v) => {
    const [rk, rv, group] = [field(s, 'rankK'), field(s, 'rankV'), field(s, 'group')];
    const key = scoreFlops(s);
    return {
      readBytes: latentRows(s) * (stored(s, v, rk) + stored(s, v, rv)) + queries(s) * basisBytes(s),
      writeBytes: partialBytes(s, rv) + scoreBytes(s, v),
      flops: key + rows(s) * group * 2 * rv + unpacking(latentRows(s), v, rk + rv),
      matrixFlops: key,
    };
  },
  terms: (s, v) => [...latentTerms(s, attendBlockAbsorbed.work(s, v), scoreFlops(s)), queries(s) * basisBytes(s)],
};

/**
 * Folds the split partials of a query into its output row, divided by the sum, and the row's maximum and sum. `current`
 * also folds in the exact key and value of the current token, which no cache holds yet. `rows`: sequences × query
 * heads; `keyWidth`: width of that key (0 for `f32`).
 */
const attendMerge: KernelSpec = {
  dims: ['rows', 'splits', 'width', 'keyWidth'],
  variants: ['f32', 'current'],
  work: (s, v) => {
    const [n, splits, width, key] = [field(s, 'rows'), field(s, 'splits'), field(s, 'width'), field(s, 'keyWidth')];
    const current = v === 'current';
    return {
      readBytes: n * (splits * (width + 2) + (current ? 2 * key + width : 0)) * 4,
      writeBytes: n * (width + 2) * 4,
      flops: n * (splits * (width * 2 + 4) + (current ? 2 * (key + width) + 4 : 0)),
      matrixFlops: 0,
    };
  },
  // A workgroup of 64 threads a row: widths are worked on in whole steps of 64.
  terms: (s, v) => {
    const [n, splits, width, key] = [field(s, 'rows'), field(s, 'splits'), field(s, 'width'), field(s, 'keyWidth')];
    const current = v === 'current' ? n * (padded(key, 64) + padded(width, 64)) : 0;
    return [1, n * splits * (width + 2) * 4, n, n * splits, n * splits * padded(width, 64), splits, current];
  },
};

/**
 * Latent paths, after the value up-projection: adds the mean of the values and folds in the exact key and value of the
 * current token, from its query, the merged row and the row's maximum and sum, which it writes anew. `absorbed` takes
 * the mean of the keys off the current key first: absorbed scores of cached tokens leave out q · μ_k, equal for all of
 * them. `rows`: sequences × query heads; `keyWidth`: content and rotary branch together where the path has one.
 */
const attendCurrent: KernelSpec = {
  dims: ['rows', 'keyWidth', 'valueWidth'],
  variants: ['f32', 'absorbed'],
  work: (s, v) => {
    const [n, key, value] = [field(s, 'rows'), field(s, 'keyWidth'), field(s, 'valueWidth')];
    const keys = v === 'absorbed' ? 3 * key : 2 * key;
    return {
      readBytes: n * (keys + 3 * value + 2) * 4,
      writeBytes: n * (value + 2) * 4,
      flops: n * (keys + 5 * value + 8),
      matrixFlops: 0,
    };
  },
  terms: (s, v) => [...elementTerms(attendCurrent.work(s, v)), field(s, 'rows')],
};

/**
 * Rebuilds K (`+rope`: rotated) or V (`+plain`) of one layer and loop for the whole context into f16 rows, from latents
 * in their storage.
 */
const rebuild: KernelSpec = {
  dims: ['sequences', 'kvHeads', 'latentHeads', 'context', 'rank', 'headDim', 'groupSize'],
  variants: STORAGES.flatMap((s) => [`${s}+rope`, `${s}+plain`]),
  work: (s, v) => {
    const [r, d] = [field(s, 'rank'), field(s, 'headDim')];
    const product = rows(s) * 2 * d * r;
    return {
      readBytes: latentRows(s) * stored(s, v, r) + field(s, 'kvHeads') * d * (evenRow(r) * 2 + 4),
      writeBytes: rows(s) * d * 2,
      flops: product + (v.endsWith('+rope') ? rows(s) * 3 * d : 0) + unpacking(latentRows(s), v, r),
      matrixFlops: product,
    };
  },
  terms: (s, v) => {
    const w = rebuild.work(s, v);
    return [1, w.readBytes, w.writeBytes, w.flops];
  },
};

/**
 * Causal attention of a run of prompt tokens over K and V rows of the type named: `queries` new tokens a sequence, each
 * over the `context` tokens before the run and those of the run up to itself.
 */
const attendPrefill: KernelSpec = {
  dims: ['sequences', 'kvHeads', 'group', 'queries', 'context', 'keyWidth', 'valueWidth'],
  variants: ['f16', 'f32'],
  work: (s, v) => {
    const [tokens, context, key, value] = [
      field(s, 'queries'),
      field(s, 'context'),
      field(s, 'keyWidth'),
      field(s, 'valueWidth'),
    ];
    const heads = field(s, 'sequences') * field(s, 'kvHeads');
    const scores = tokens * context + (tokens * (tokens + 1)) / 2;
    const product = heads * field(s, 'group') * scores * 2 * (key + value);
    return {
      readBytes:
        heads * ((context + tokens) * (key + value) * (v === 'f32' ? 4 : 2) + field(s, 'group') * tokens * key * 4),
      writeBytes: heads * field(s, 'group') * tokens * value * 4,
      flops: product,
      matrixFlops: product,
    };
  },
  terms: (s, v) => {
    const w = attendPrefill.work(s, v);
    return [1, w.readBytes, w.flops, w.writeBytes];
  },
};

/**
 * The same in several calls, whose output and statistics (largest score and mass of each query) are carried from call
 * to call. `+own` is causal attention to the run itself. In the others every query attends to all `context` rows, of
 * the storage named. The first call, which has nothing to read of those before it, is usually `+own`.
 */
const attendCarried: KernelSpec = {
  dims: [...attendPrefill.dims, 'groupSize'],
  variants: [...STORAGES, ...attendPrefill.variants.map((v) => `${v}+own`)],
  work: (s, v) => {
    const [tokens, context, key, value] = [
      field(s, 'queries'),
      field(s, 'context'),
      field(s, 'keyWidth'),
      field(s, 'valueWidth'),
    ];
    const own = v.endsWith('+own');
    const rows = field(s, 'sequences') * field(s, 'kvHeads');
    const queries = rows * field(s, 'group') * tokens;
    const scores = tokens * context + (own ? (tokens * (tokens + 1)) / 2 : 0);
    const product = rows * field(s, 'group') * scores * 2 * (key + value);
    const cached = rows * (context + (own ? tokens : 0));
    const carried = queries * (value + 2) * 4;
    return {
      readBytes: cached * (stored(s, v, key) + stored(s, v, value)) + queries * key * 4 + (own ? 0 : carried),
      writeBytes: carried,
      flops: product + unpacking(cached, v, key + value),
      matrixFlops: product,
    };
  },
  terms: (s, v) => {
    const w = attendCarried.work(s, v);
    return [1, w.readBytes, w.flops, w.writeBytes];
  },
};

export const ATTENTION_KERNELS = {
  attend,
  attend_rebuild: attendRebuild,
  block_vectors: blockVectors,
  block_basis: blockBasis,
  attend_block_absorbed: attendBlockAbsorbed,
  attend_merge: attendMerge,
  attend_current: attendCurrent,
  rebuild,
  attend_prefill: attendPrefill,
  attend_carried: attendCarried,
} as const satisfies Record<string, KernelSpec>;
