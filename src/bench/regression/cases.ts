/**
 * The calls that `bench` measures unless told otherwise: for every kernel, what a decode step of Ouro-1.4B asks of it, long
 * enough to be its own cost and not a launch's, short enough for dozens of repetitions.
 */
import { blockPlan } from '../../schedule/block-absorbed.js';
import type { KernelCall, Shape } from '../../schedule/kernels.js';

/** Rotary base and head width of Ouro. */
const ROPE_BASE = 1e6;
const HEAD_DIM = 128;
/** Ranks of LLA at a ratio of four. */
const [RANK_K, RANK_V] = [96, 160];

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

const SCALES = {
  software: { heads: 4, sequences: 1, context: 1024, splits: 4, rows: 64, tiledRows: 16 },
  hardware: { heads: 16, sequences: 8, context: 8192, splits: 8, rows: 1024, tiledRows: 64 },
} as const satisfies Record<string, Scale>;

const call = (kernel: KernelCall['kernel'], variant: string, shape: Shape): KernelCall => ({ kernel, variant, shape });

/** Every implemented kernel with its main variants, at shapes for a software adapter or a GPU. */
export function representativeCalls(software: boolean): KernelCall[] {
  const s = SCALES[software ? 'software' : 'hardware'];
  const rows = { sequences: s.sequences, kvHeads: s.heads, group: 1, context: s.context, splits: s.splits };
  const latent = { ...rows, latentHeads: s.heads, rankK: RANK_K, rankV: RANK_V, headDim: HEAD_DIM };
  const rebuilt = { sequences: s.sequences, kvHeads: s.heads, latentHeads: s.heads, context: s.context / (software ? 2 : 1), headDim: HEAD_DIM };
  return [
    call('attend', 'f16', { ...rows, keyWidth: HEAD_DIM, valueWidth: HEAD_DIM, branchWidth: 0, branchHeads: 0 }),
    call('attend', 'f16', { ...rows, keyWidth: RANK_K, valueWidth: RANK_V, branchWidth: 64, branchHeads: 1 }),
    call('attend_rebuild', 'f16', latent),
    call('attend_block_absorbed', 'f16', { ...latent, macsPerRank: blockPlan(ROPE_BASE, HEAD_DIM).macsPerRank }),
    call('rebuild', 'rope', { ...rebuilt, rank: RANK_K }),
    call('rebuild', 'plain', { ...rebuilt, rank: RANK_V }),
    call('attend_merge', 'f32', { rows: s.rows * 4, splits: 16, width: HEAD_DIM }),
    call('matmul', 'f16', { groups: 1, m: 1, k: 2048, n: software ? 2048 : 11264 }),
    call('matmul', 'f16', { groups: 1, m: s.tiledRows, k: 2048, n: software ? 1024 : 6144 }),
    call('rmsnorm', 'norm', { rows: s.rows, width: 2048 }),
    call('rmsnorm', 'norm-add', { rows: s.rows, width: 2048 }),
    call('rmsnorm', 'add', { rows: s.rows, width: 2048 }),
    call('rope', 'half-split', { rows: s.rows, heads: 32, headDim: HEAD_DIM }),
    call('rope', 'adjacent', { rows: s.rows, heads: 32, headDim: HEAD_DIM }),
    call('swiglu', 'f32', { rows: s.rows, width: 5632 }),
    call('embed', 'f16', { rows: s.rows * 4, width: 2048 }),
    call('sample', 'greedy', { rows: s.rows / 4, vocab: 49152 }),
    call('append', 'f16', { rows: s.rows, width: 4096 }),
  ];
}

const SHORT: Readonly<Record<string, string>> = {
  sequences: 'seq', kvHeads: 'kv', latentHeads: 'latent', group: 'group', context: 'ctx', keyWidth: 'k', valueWidth: 'v', branchWidth: 'branch', branchHeads: 'branchheads',
  splits: 'split', rankK: 'rk', rankV: 'rv', headDim: 'd', macsPerRank: '', groups: 'g', m: 'm', k: 'k', n: 'n', rows: 'rows', width: 'w', vocab: 'vocab', heads: 'heads', rank: 'r',
};

/** A shape in few characters: `seq1 kv4 ctx1024 k128 v128 split4`; what is 0 or usual is left out. */
export function shapeText({ shape }: Pick<KernelCall, 'shape'>): string {
  const usual = (name: string, value: number): boolean =>
    value === 0 || SHORT[name] === '' || ((name === 'group' || name === 'groups' || name === 'branchHeads' || name === 'sequences') && value === 1) || (name === 'latentHeads' && value === shape['kvHeads']);
  return Object.entries(shape)
    .filter(([name, value]) => !usual(name, value))
    .map(([name, value]) => `${SHORT[name] ?? name}${value}`)
    .join(' ');
}
