import { field, type KernelSpec } from '../spec.js';
import { moving } from '../tuned.js';

/**
 * Passes over the logits of nucleus sampling: maximum, sum, sixteen digits of the threshold, the sum again and the
 * draw.
 */
const NUCLEUS_PASSES = 20;

/**
 * Choice of a token from the logits: the likeliest, or drawn from the nucleus (`top-p`, arXiv 1904.09751), whose
 * threshold is found digit by digit: the logits are read from memory once and passed over many times.
 */
export const spec: KernelSpec<'rows' | 'vocab'> = {
  sources: ['sample', 'sample_top_p'],
  dims: ['rows', 'vocab'],
  variants: ['greedy', 'top-p'],
  work: (s, v) => {
    const n = field(s, 'rows') * field(s, 'vocab');
    return {
      readBytes: 4 * n,
      writeBytes: 4 * field(s, 'rows'),
      flops: v === 'greedy' ? n : NUCLEUS_PASSES * 4 * n,
      matrixFlops: 0,
    };
  },
  // One workgroup a row: the last term is its serial loop.
  terms: (s) => [1, 4 * field(s, 'rows') * field(s, 'vocab'), field(s, 'vocab')],
  tuned: (s) => moving(field(s, 'rows') * field(s, 'vocab')),
};
