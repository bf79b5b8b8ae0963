/** Checkers of block-absorbed attention and of its set-up. */
import { DEFAULTS } from '../gpu/operations/index.js';
import { dim, type Checker } from './checker.js';
import { cachedRows, merged, queryHeads, runOf } from './latent-checkers.js';
import { attendBlockRow, blockVectorsRow } from './reference/block.js';

const block_vectors: Checker = {
  outputs: ['vectors'],
  rows: (shape) => (dim(shape, 'heads') * dim(shape, 'headDim')) / 2,
  row: (s, row) => {
    const { shape } = s.call;
    const pairs = dim(shape, 'headDim') / 2;
    const expected = blockVectorsRow(shape, s.options.pairing === 'adjacent', s.options.blockVectors?.group ?? dim(shape, 'heads') / dim(shape, 'kvHeads'), s.input, Math.floor(row / pairs), row % pairs);
    return { expected, actual: (i) => s.output('vectors')(row * expected.length + i) };
  },
};

const attend_block_absorbed: Checker = {
  outputs: ['partials'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const [rankK, rankV] = [dim(shape, 'rankK'), dim(shape, 'rankV')];
    const run = runOf(s);
    const caches = { keys: cachedRows(s, 'keys', rankK, run), values: cachedRows(s, 'values', rankV, run) };
    const expected = attendBlockRow(shape, s.options.scale ?? dim(shape, 'headDim') ** -0.5, s.options.ropeBase ?? DEFAULTS.ropeBase, s.input('vectors'), caches, run, row);
    return { expected, actual: merged(s, row, rankV) };
  },
};

export const BLOCK_CHECKERS = { block_vectors, attend_block_absorbed } as const satisfies Record<string, Checker>;
