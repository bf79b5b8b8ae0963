import {
  rows,
  queries,
  partialBytes,
  scoreBytes,
  unpacking,
  attendTerms,
  threadsOf,
  withScores,
  type Heads,
} from '../shared/attention/attention.terms.js';
import { field, storageOfVariant, storedIn, type KernelSpec, type Shape } from '../spec.js';
import { LISTED_HEAD_DIMS, listed, unlisted } from '../tuned.js';

/**
 * Rows that a sequence's queries read, and queries of each: a branch with a key for each head, beside a latent that all
 * heads share, divides them.
 */
export function headsOf(s: Shape): Heads {
  const [kvHeads, group, branchHeads] = [field(s, 'kvHeads'), field(s, 'group'), field(s, 'branchHeads')];
  return branchHeads > kvHeads ? { kvHeads: branchHeads, group: group / branchHeads } : { kvHeads, group };
}

/** `operations`: of all tokens. `begun`: see threadsOf. */
function executed(s: Shape, v: string): { operations: number; begun: number } {
  const widths = [field(s, 'keyWidth'), field(s, 'valueWidth'), field(s, 'branchWidth')] as const;
  const { lanes, wide, held, rowsRead, begun } = threadsOf(s, storageOfVariant(v), headsOf(s), widths);
  const tokens = rowsRead * field(s, 'context');
  return { operations: tokens * lanes * 2 * wide * held + unpacking(tokens, v, wide * held), begun };
}

const DIMS = [
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
] as const;

/**
 * Split-KV decode attention of one new token over cached rows that are used as they are stored: full K/V, or latents
 * with an absorbed query. `branchWidth`: rotary key scalars beside the content key (0 without), shared by all KV heads
 * when `branchHeads` is 1. `group`: query heads that read the same cached row. `+scores` also writes every score.
 */
export const spec: KernelSpec<(typeof DIMS)[number]> = {
  dims: DIMS,
  variants: withScores,
  work: (s, v) => {
    const branch = field(s, 'branchWidth');
    const key = field(s, 'keyWidth');
    const value = field(s, 'valueWidth');
    const branchRows = field(s, 'sequences') * field(s, 'branchHeads') * field(s, 'context');
    const product = rows(s) * field(s, 'group') * 2 * (key + branch + value);
    return {
      readBytes:
        rows(s) * (storedIn(s, v, key) + storedIn(s, v, value)) +
        (branch > 0 ? branchRows * storedIn(s, v, branch) : 0) +
        queries(s) * (key + branch) * 4,
      writeBytes: partialBytes(s, value) + scoreBytes(s, v),
      flops: product + unpacking(rows(s), v, key + branch + value),
      matrixFlops: product,
    };
  },
  executed: (s, v) => executed(s, v).operations,
  terms: (s, v) => attendTerms(s, spec.work(s, v), executed(s, v)),
  tuned: (s, v) => {
    const [key, value, branch] = [field(s, 'keyWidth'), field(s, 'valueWidth'), field(s, 'branchWidth')];
    const [batch, kvHeads, group] = [field(s, 'sequences'), field(s, 'kvHeads'), field(s, 'group')];
    // The tables' context counts the new token, which `attend_merge` folds in here.
    const context = field(s, 'context') + 1;
    if ((v === 'f16' || v === 'f8') && branch === 0 && key === value && LISTED_HEAD_DIMS.includes(key)) {
      const shape = { headDim: key, batch, context };
      const fp8 = v === 'f8';
      return group === 1
        ? listed(fp8 ? 'decode-attention-fp8' : 'decode-attention', { ...shape, heads: kvHeads })
        : listed(fp8 ? 'decode-attention-grouped-fp8' : 'decode-attention-grouped', { ...shape, kvHeads, group });
    }
    const { readBytes, matrixFlops } = spec.work(s, v);
    // Queries and results are bf16; scores that H2O wants are written.
    const bytes = readBytes - (queries(s) * (key + branch) * 4) / 2 + queries(s) * value * 2 + scoreBytes(s, v);
    const shared = kvHeads === 1 && group > 1;
    return unlisted(shared ? 'latent-attention' : 'decode-attention', bytes, {
      matrix: matrixFlops,
      rows: batch * kvHeads,
    });
  },
};
