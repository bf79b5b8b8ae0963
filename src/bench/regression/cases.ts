/** The calls that `bench` measures by default: for every kernel, what a decode step of Ouro-1.4B asks of it. */
import { blockPlan } from '../../../kernels/shared/block/block-absorbed.js';
import type { KernelCall } from '../../../kernels/registry.js';
import type { Shape } from '../../../kernels/spec.js';

/** Rotary base and head width of Ouro. */
const ROPE_BASE = 1e6;
const HEAD_DIM = 128;
/** Rows of residual-quant, mixed g32, of four loops. */
const RESIDUAL_ROW = { headDim: HEAD_DIM, loops: 4, anchorBits: 4, residualGroup: 32 };
/** Width of the rotary branch of absorbed attention. */
const BRANCH = 64;
/** Ranks of LLA at a ratio of four, and at the largest published one whose ranks are even. */
const [RANK_K, RANK_V] = [96, 160];
const RANK_PAIRS = [
  [RANK_K, RANK_V],
  [18, 30],
] as const;

/** A software adapter computes about a thousandth of what a GPU does. */
interface Scale {
  readonly heads: number;
  readonly sequences: number;
  readonly context: number;
  readonly splits: number;
  /** Rows of activations in pointwise kernels. */
  readonly rows: number;
  /** Rows of a tiled product; a GPU takes 64. */
  readonly tiledRows: number;
}

/**
 * For two versions in turn: long enough to be a call's own cost and not a launch's, short enough for dozens of
 * repetitions.
 */
const SCALES = {
  software: { heads: 4, sequences: 1, context: 1024, splits: 4, rows: 64, tiledRows: 16 },
  hardware: { heads: 16, sequences: 8, context: 8192, splits: 8, rows: 1024, tiledRows: 64 },
} as const satisfies Record<string, Scale>;

/** For shares of the ceilings: bound by memory or arithmetic, at a context at which attention is most of a step. */
const ROOFLINE_SCALES = {
  software: { heads: 2, sequences: 1, context: 16384, splits: 8, rows: 256, tiledRows: 64 },
  hardware: { heads: 16, sequences: 8, context: 16384, splits: 8, rows: 1024, tiledRows: 64 },
} as const satisfies Record<string, Scale>;

export const CASE_GROUPS = ['attention', 'products', 'small'] as const;
export type CaseGroup = (typeof CASE_GROUPS)[number];

/** Which of the groups a kernel belongs to. */
export function groupOf(kernel: KernelCall['kernel']): CaseGroup {
  if (kernel === 'matmul') return 'products';
  return [
    'attend',
    'attend_rebuild',
    'attend_residual',
    'attend_streams',
    'attend_block_absorbed',
    'block_vectors',
    'block_basis',
    'rebuild',
    'attend_prefill',
    'attend_carried',
    'mass_prefill',
  ].includes(kernel)
    ? 'attention'
    : 'small';
}

const call = (kernel: KernelCall['kernel'], variant: string, shape: Shape): KernelCall => ({ kernel, variant, shape });

/** Attention over rows of residual-quant, of a loop before the anchor's. */
const differences = ({ sequences, heads: kvHeads, context, splits }: Scale): KernelCall =>
  call('attend_residual', 'residual', { sequences, kvHeads, group: 1, context, ...RESIDUAL_ROW, splits });

/** Groups of flashloop, of the loop that chooses keys. */
const PACKED_ROW = { headDim: HEAD_DIM, loops: 2, anchorBits: 4, packGroup: 64 };

/** Attention over packed loops, and over a tenth of the tokens. */
const packedLoops = ({ sequences, heads: kvHeads, context, splits }: Scale): KernelCall[] =>
  (['all+scores', 'chosen'] as const).map((variant) => {
    const tokens = variant === 'chosen' ? Math.ceil(context / 10) : context;
    const shape = { sequences, kvHeads, group: 1, context: tokens, packedRows: 2 * tokens, tail: 0, splits };
    return call('attend_streams', variant, { ...shape, ...PACKED_ROW });
  });

/** The kernels of each way of attending to the same cached tokens. */
function waysOf(s: Scale, rankK: number, rankV: number) {
  const { sequences, context, splits, heads: kvHeads } = s;
  const [headDim, groupSize] = [HEAD_DIM, 0];
  const rows = { sequences, kvHeads, group: 1, context, groupSize, splits };
  const latent = { ...rows, latentHeads: kvHeads, rankK, rankV, headDim };
  const rebuilt = { sequences, kvHeads, latentHeads: kvHeads, context, headDim, groupSize };
  const { blockTokens, functions, setupPerRank } = blockPlan(ROPE_BASE, headDim);
  const blocks = { blockTokens, functions };
  return {
    rows: call('attend', 'f16', { ...rows, keyWidth: HEAD_DIM, valueWidth: HEAD_DIM, branchWidth: 0, branchHeads: 0 }),
    latents: call('attend', 'f16', {
      ...rows,
      keyWidth: rankK,
      valueWidth: rankV,
      branchWidth: BRANCH,
      branchHeads: 1,
    }),
    rebuild: call('attend_rebuild', 'f16', latent),
    blockVectors: call('block_vectors', 'f16', { heads: sequences * kvHeads, kvHeads, rankK, headDim }),
    blockBasis: call('block_basis', 'f32', {
      ...{ sequences, heads: kvHeads, context, rankK, headDim, ...blocks, setupPerRank },
    }),
    block: call('attend_block_absorbed', 'f16', { ...latent, ...blocks }),
    rebuildKeys: call('rebuild', 'f16+rope', { ...rebuilt, rank: rankK }),
    rebuildValues: call('rebuild', 'f16+plain', { ...rebuilt, rank: rankV }),
  };
}

function products(s: Scale, software: boolean): KernelCall[] {
  return [
    call('matmul', 'f16', { groups: 1, m: 1, k: 2048, n: software ? 2048 : 11264 }),
    call('matmul', 'f16', { groups: 1, m: s.tiledRows, k: 2048, n: software ? 1024 : 6144 }),
  ];
}

function small(s: Scale): KernelCall[] {
  return [
    call('attend_merge', 'f32', { rows: s.rows * 4, splits: 16, width: HEAD_DIM, keyWidth: 0 }),
    call('attend_merge', 'current', { rows: s.rows * 4, splits: 16, width: HEAD_DIM, keyWidth: HEAD_DIM }),
    call('attend_current', 'f32', { rows: s.rows * 4, keyWidth: HEAD_DIM, valueWidth: HEAD_DIM }),
    call('attend_current', 'absorbed', { rows: s.rows * 4, keyWidth: HEAD_DIM + BRANCH, valueWidth: HEAD_DIM }),
    call('attend_join', 'f32', { rows: s.rows * 4, width: HEAD_DIM }),
    call('mass', 'f32', { rows: s.rows, group: 1, context: 1024 }),
    call('evict', 'f16', { rows: s.rows, context: 1024, width: 2 * HEAD_DIM, groupSize: 0 }),
    call('evict_prefill', 'f16', { rows: s.rows / 4, context: 4096, kept: 1024, width: 2 * HEAD_DIM, groupSize: 0 }),
    call('evict_chunk', 'f16', {
      rows: s.rows / 4,
      held: 1024,
      context: 4096,
      kept: 1024,
      width: 2 * HEAD_DIM,
      groupSize: 0,
    }),
    call('rmsnorm', 'norm', { rows: s.rows, width: 2048 }),
    call('rmsnorm', 'norm-add', { rows: s.rows, width: 2048 }),
    call('rmsnorm', 'add', { rows: s.rows, width: 2048 }),
    call('rope', 'half-split', { rows: s.rows, heads: 32, headDim: HEAD_DIM }),
    call('rope', 'adjacent', { rows: s.rows, heads: 32, headDim: HEAD_DIM }),
    call('rope_kept', 'half-split', { rows: s.rows, heads: 16, headDim: HEAD_DIM }),
    call('swiglu', 'f32', { rows: s.rows, width: 5632 }),
    call('head_norm', 'f32', { rows: s.rows, heads: 16, headDim: 128 }),
    call('gate', 'f32', { rows: s.rows, width: 1536 }),
    call('shift', 'f32', { rows: s.rows, width: 5120 }),
    call('accumulate', 'begin', { rows: s.rows, width: 4096 }),
    call('accumulate', 'add', { rows: s.rows, width: 4096 }),
    call('embed', 'f16', { rows: s.rows * 4, width: 2048 }),
    call('sample', 'greedy', { rows: s.rows / 4, vocab: 49152 }),
    call('append', 'f16', { rows: s.rows, heads: 16, width: HEAD_DIM, groupSize: 0 }),
    call('load', 'f16', { rows: s.rows, heads: 16, width: HEAD_DIM, groupSize: 0 }),
    call('append_residual', 'f32', { rows: s.rows / 4, heads: 16, ...RESIDUAL_ROW }),
    call('append_streams', 'keys', { rows: s.rows / 16, heads: 16, ...PACKED_ROW }),
    call('choose_keys', 'f32', { rows: s.rows, context: 1024, kept: 103, width: HEAD_DIM }),
    call('join_chosen', 'add', { rows: s.rows * 4, width: HEAD_DIM }),
  ];
}

/** Attention over whole rows, then the other kernels of each way. */
const attention = (ways: readonly ReturnType<typeof waysOf>[]): KernelCall[] => [
  ways[0]!.rows,
  ...ways.flatMap(({ rows: _, ...latents }) => Object.values(latents)),
];

/** Every kernel with its main variants, at shapes for a software adapter or a GPU. Some may have no implementation. */
export function representativeCalls(software: boolean): KernelCall[] {
  const s = SCALES[software ? 'software' : 'hardware'];
  const prompt = { sequences: 1, kvHeads: s.heads, group: 1, queries: 32, context: s.context / 4, keyWidth: HEAD_DIM };
  return [
    ...attention([waysOf(s, RANK_K, RANK_V)]),
    differences(s),
    ...packedLoops(s),
    call('attend_prefill', 'f32', { ...prompt, valueWidth: HEAD_DIM }),
    call('attend_carried', 'f16', { ...prompt, valueWidth: HEAD_DIM, groupSize: 0 }),
    call('mass_prefill', 'f16', { ...prompt, rows: s.heads }),
    ...products(s, software),
    ...small(s),
  ];
}

/** The calls that one step of attention makes over the same cache, one way or the other. */
export interface PathSet {
  readonly ranks: string;
  readonly context: number;
  readonly paths: Readonly<
    Record<'block-absorbed' | 'absorbed' | 'fused rebuild' | 'materialised rebuild', readonly KernelCall[]>
  >;
}

/** What `bench` measures against the ceilings: the calls, and which of them belong to which path of attention. */
export function rooflineCases(software: boolean): { readonly calls: KernelCall[]; readonly paths: PathSet[] } {
  const s = ROOFLINE_SCALES[software ? 'software' : 'hardware'];
  const ways = RANK_PAIRS.map(([rankK, rankV]) => ({ ranks: `${rankK}/${rankV}`, way: waysOf(s, rankK, rankV) }));
  return {
    calls: [
      ...attention(ways.map(({ way }) => way)),
      differences(s),
      ...packedLoops(s),
      ...products(s, software),
      ...small(s),
    ],
    paths: ways.map(({ ranks, way: w }) => ({
      ranks,
      context: s.context,
      paths: {
        'block-absorbed': [w.blockVectors, w.blockBasis, w.block],
        absorbed: [w.latents],
        'fused rebuild': [w.rebuild],
        'materialised rebuild': [w.rebuildKeys, w.rebuildValues, w.rows],
      },
    })),
  };
}

/** Names of dimensions that a shape is written with; others are their own. */
const SHORT: Readonly<Record<string, string>> = {
  sequences: 'seq',
  kvHeads: 'kv',
  latentHeads: 'latent',
  context: 'ctx',
  keyWidth: 'k',
  valueWidth: 'v',
  branchWidth: 'branch',
  branchHeads: 'branchheads',
  splits: 'split',
  rankK: 'rk',
  rankV: 'rv',
  headDim: 'd',
  anchorBits: 'bits',
  residualGroup: 'rgroup',
  functions: '',
  setupPerRank: '',
  blockTokens: '',
  groups: 'g',
  width: 'w',
  rank: 'r',
};

/** A shape in few characters: `seq1 kv4 ctx1024 k128 v128 split4`; zeros and usual values are left out. */
export function shapeText({ shape }: Pick<KernelCall, 'shape'>): string {
  const usual = (name: string, value: number): boolean =>
    value === 0 ||
    SHORT[name] === '' ||
    (['group', 'groups', 'branchHeads', 'sequences'].includes(name) && value === 1) ||
    (name === 'latentHeads' && value === shape['kvHeads']);
  return Object.entries(shape)
    .filter(([name, value]) => !usual(name, value))
    .map(([name, value]) => `${SHORT[name] ?? name}${value}`)
    .join(' ');
}
