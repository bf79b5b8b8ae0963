import { blockComponents } from '../block_vectors/terms.js';
import { field, padded, launchAnd, type KernelSpec, type Shape } from '../spec.js';
import { unlisted } from '../tuned.js';

/**
 * Blocks of positions that a row's cached tokens touch; the threads of a partial block idle, so it costs like a whole
 * one.
 */
export const blocks = (s: Shape) => Math.ceil(field(s, 'context') / field(s, 'blockTokens'));

/**
 * f32 scalars of the basis of a query head: in every block of its tokens, `functions` vectors of all latent components,
 * in whole quads, and of the mean, in one of its own.
 */
export const blockBasisScalars = (
  tokens: number,
  rankK: number,
  { blockTokens, functions }: { blockTokens: number; functions: number },
): number => Math.ceil(tokens / blockTokens) * (padded(rankK, 4) + 4) * functions;

export const basisBytes = (s: Shape): number =>
  4 *
  blockBasisScalars(field(s, 'context'), field(s, 'rankK'), {
    blockTokens: field(s, 'blockTokens'),
    functions: field(s, 'functions'),
  });

/** Blocks of a thread unless tuned: more of them make fewer vectors to read. */
export const BLOCKS_EACH = 4;

/** Operations on whole quads of components, the mean's too, of all blocks of a thread. */
const executedFlops = (s: Shape): number =>
  field(s, 'sequences') *
  field(s, 'heads') *
  padded(blocks(s), BLOCKS_EACH) *
  2 *
  field(s, 'setupPerRank') *
  (padded(field(s, 'rankK'), 4) + 4);

/**
 * The basis of every block of a query, from its vectors: rotated to the block's centre, and combined into the block's
 * functions (shared/block/block-basis.ts). `heads`: query heads of a sequence; `setupPerRank`: multiply-adds of a block
 * and latent component.
 */
export const spec: KernelSpec<
  'sequences' | 'heads' | 'context' | 'rankK' | 'headDim' | 'blockTokens' | 'functions' | 'setupPerRank'
> = {
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
  executed: executedFlops,
  terms: (s) => [...launchAnd(spec.work(s, 'f32'), 'readBytes', 'writeBytes'), executedFlops(s)],
  // The basis of a block is made on chip, where attention uses it.
  tuned: (s) => ({ ...unlisted('latent-attention', 0, { matrix: spec.work(s, 'f32').matrixFlops }), inside: true }),
};
