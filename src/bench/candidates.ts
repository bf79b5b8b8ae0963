/** Default shapes to measure: the published models, codecs and ranks over contexts and batches. */
import type { KernelCall } from '../kernels/registry.js';
import type { Shape } from '../kernels/spec.js';
import { blockPlan } from '../schedule/block-absorbed.js';
import { GROUP_SIZE } from '../kernels/spec.js';
import { splitCount } from '../schedule/schedule.js';

const CONTEXTS = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536] as const;
const SEQUENCES = [1, 2, 4, 8, 16, 32] as const;
/** Key and value ranks of the published ratios (3:5 of 2Td/ρ at Td = 512). */
export const RANKS = [
  [288, 480],
  [240, 400],
  [192, 320],
  [144, 240],
  [120, 200],
  [96, 160],
  [72, 120],
  [36, 60],
  [27, 45],
  [18, 30],
] as const;
/**
 * KV heads, group and head width of the published models: Ouro, Nanbeige, Recurrent-Llama, Huginn (few of its 55
 * heads).
 */
const HEADS = [
  { kvHeads: 16, group: 1, headDim: 128 },
  { kvHeads: 8, group: 6, headDim: 128 },
  { kvHeads: 8, group: 4, headDim: 64 },
  { kvHeads: 11, group: 1, headDim: 96 },
] as const;
const QUANTISED = ['q8', 'q4', 'q3', 'q2'] as const;
const ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256] as const;
/** Rotary base of Ouro. */
const ROPE_BASE = 1e6;
/** Splits that fill the target of the schedule, and none. */
const splitsOf = (context: number, rows: number, target: number): number[] => [
  ...new Set([1, splitCount(context, rows, target)]),
];

/**
 * The block plan's share of a block-absorbed call's shape (schedule/block-absorbed.ts); its set-up has one field more.
 */
export function blockDims(ropeBase: number, headDim: number): Shape {
  const { blockTokens, functions } = blockPlan(ropeBase, headDim);
  return { blockTokens, functions };
}

function attention(target: number): KernelCall[] {
  const calls: KernelCall[] = [];
  for (const context of CONTEXTS) {
    for (const sequences of SEQUENCES) {
      for (const { kvHeads, group, headDim } of HEADS) {
        for (const splits of splitsOf(context, sequences * kvHeads, target)) {
          const common = { sequences, kvHeads, group, context, splits };
          calls.push({
            kernel: 'attend',
            variant: 'f16',
            shape: { ...common, keyWidth: headDim, valueWidth: headDim, branchWidth: 0, branchHeads: 0, groupSize: 0 },
          });
          // Quantised caches, of the first model alone: only their cost a scalar differs.
          if (kvHeads === HEADS[0].kvHeads)
            for (const bits of QUANTISED)
              calls.push({
                kernel: 'attend',
                variant: bits,
                shape: {
                  ...common,
                  keyWidth: headDim,
                  valueWidth: headDim,
                  branchWidth: 0,
                  branchHeads: 0,
                  groupSize: GROUP_SIZE,
                },
              });
          for (const [rankK, rankV] of RANKS) {
            if (group === 1)
              calls.push({
                kernel: 'attend',
                variant: 'f16',
                shape: { ...common, keyWidth: rankK, valueWidth: rankV, branchWidth: 64, branchHeads: 1, groupSize: 0 },
              });
            const latent = { ...common, latentHeads: kvHeads, rankK, rankV, headDim, groupSize: 0 };
            calls.push({ kernel: 'attend_rebuild', variant: 'f16', shape: latent });
            calls.push({
              kernel: 'attend_block_absorbed',
              variant: 'f16',
              shape: { ...latent, ...blockDims(ROPE_BASE, headDim) },
            });
            const { setupPerRank } = blockPlan(ROPE_BASE, headDim);
            calls.push({
              kernel: 'block_basis',
              variant: 'f32',
              shape: {
                sequences,
                heads: kvHeads * group,
                context,
                rankK,
                headDim,
                ...blockDims(ROPE_BASE, headDim),
                setupPerRank,
              },
            });
            calls.push({
              kernel: 'block_vectors',
              variant: 'f16',
              shape: { heads: sequences * kvHeads * group, kvHeads, rankK, headDim },
            });
          }
        }
      }
    }
  }
  return calls;
}

function rebuilding(): KernelCall[] {
  return CONTEXTS.flatMap((context) =>
    RANKS.flatMap(([rankK, rankV]) =>
      SEQUENCES.flatMap((sequences) => {
        const common = { sequences, kvHeads: 16, latentHeads: 16, context, headDim: 128, groupSize: 0 };
        const calls: KernelCall[] = [
          { kernel: 'rebuild', variant: 'f16+rope', shape: { ...common, rank: rankK } },
          { kernel: 'rebuild', variant: 'f16+plain', shape: { ...common, rank: rankV } },
        ];
        return calls;
      }),
    ),
  );
}

function products(): KernelCall[] {
  const widths = [
    [2048, 6144],
    [2048, 2048],
    [2048, 11264],
    [5632, 2048],
    [2048, 49152],
  ] as const;
  const projections = widths.flatMap(([k, n]) => ROWS.map((m) => ({ groups: 1, m, k, n })));
  const perHead = RANKS.flatMap(
    ([rankK, rankV]) =>
      [
        [128, rankK],
        [rankV, 128],
      ] as const,
  ).flatMap(([k, n]) => ROWS.slice(0, 6).map((m) => ({ groups: 16, m, k, n })));
  return [...projections, ...perHead].map((shape) => ({ kernel: 'matmul', variant: 'f16', shape }));
}

const over = (kernel: KernelCall['kernel'], variant: string, shapes: readonly Shape[]): KernelCall[] =>
  shapes.map((shape) => ({ kernel, variant, shape }));

function small(): KernelCall[] {
  const rows = ROWS.slice(0, 8);
  const by = (make: (row: number) => Shape[]): Shape[] => rows.flatMap(make);
  return [
    ...(['norm', 'norm-add', 'add'] as const).flatMap((variant) =>
      over(
        'rmsnorm',
        variant,
        by((r) => [
          { rows: r, width: 2048 },
          { rows: r, width: 5280 },
        ]),
      ),
    ),
    ...(['half-split', 'adjacent'] as const).flatMap((variant) =>
      over(
        'rope',
        variant,
        by((r) => [
          { rows: r, heads: 32, headDim: 128 },
          { rows: r, heads: 17, headDim: 64 },
        ]),
      ),
    ),
    ...over(
      'swiglu',
      'f32',
      by((r) => [
        { rows: r, width: 5632 },
        { rows: r, width: 10752 },
      ]),
    ),
    ...over(
      'embed',
      'f16',
      by((r) => [{ rows: r, width: 2048 }]),
    ),
    ...over(
      'sample',
      'greedy',
      by((r) => [
        { rows: r, vocab: 49152 },
        { rows: r, vocab: 16384 },
      ]),
    ),
    ...over(
      'append',
      'f16',
      by((r) => [
        { rows: r, heads: 16, width: 128, groupSize: 0 },
        { rows: r, heads: 16, width: 96, groupSize: 0 },
      ]),
    ),
    ...over(
      'attend_merge',
      'current',
      rows.flatMap((r) => [2, 17].map((splits) => ({ rows: 16 * r, splits, width: 128, keyWidth: 128 }))),
    ),
    ...over(
      'attend_current',
      'f32',
      by((r) => [{ rows: 16 * r, keyWidth: 128, valueWidth: 128 }]),
    ),
    ...over(
      'attend_current',
      'absorbed',
      by((r) => [{ rows: 16 * r, keyWidth: 192, valueWidth: 128 }]),
    ),
    ...over(
      'attend_join',
      'f32',
      by((r) => [{ rows: 16 * r, width: 128 }]),
    ),
    ...over(
      'attend_merge',
      'f32',
      rows.flatMap((r) =>
        [2, 5, 17, 65, 257].flatMap((splits) => [
          { rows: 16 * r, splits, width: 128, keyWidth: 0 },
          { rows: 16 * r, splits, width: 160, keyWidth: 0 },
          { rows: 16 * r, splits, width: 30, keyWidth: 0 },
        ]),
      ),
    ),
  ];
}

/** Workgroups that the schedule aims for, unless calls are given (see Configuration.targetWorkgroups). */
const TARGET_WORKGROUPS = 528;

/** All default candidates. */
export const defaultCalls = (targetWorkgroups = TARGET_WORKGROUPS): KernelCall[] => [
  ...attention(targetWorkgroups),
  ...rebuilding(),
  ...products(),
  ...small(),
];
