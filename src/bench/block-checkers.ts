/** Checkers of block-absorbed attention and of both steps of its set-up. */
import { DEFAULTS } from '../kernels/launch.js';
import { bufferOf } from '../gpu/plan.js';
import { blockPlan } from '../schedule/block-absorbed.js';
import { blockBasisScalars } from '../kernels/block_basis/terms.js';
import { phiTable, type BlockBasis } from '../schedule/block-basis.js';
import { dim, type Checker, type Subject } from './checker.js';
import { cachedRows, queryHeads, runOf, withScores } from './latent-checkers.js';
import { attendBlockRow, blockBasisRow, blockVectorsRow } from './reference/block.js';

const block_vectors: Checker = {
  outputs: ['vectors'],
  rows: (shape) => (dim(shape, 'heads') * dim(shape, 'headDim')) / 2,
  row: (s, row) => {
    const { shape } = s.call;
    const pairs = dim(shape, 'headDim') / 2;
    const expected = blockVectorsRow(
      shape,
      s.options.pairing === 'adjacent',
      s.options.blockVectors?.group ?? dim(shape, 'heads') / dim(shape, 'kvHeads'),
      s.input,
      Math.floor(row / pairs),
      row % pairs,
    );
    return { expected, actual: (i) => s.output('vectors')(row * expected.length + i) };
  },
};

const basisOf = (s: Subject): BlockBasis =>
  blockPlan(s.options.ropeBase ?? DEFAULTS.ropeBase, dim(s.call.shape, 'headDim'), dim(s.call.shape, 'blockTokens'))
    .basis;

const block_basis: Checker = {
  outputs: ['basis'],
  // A row is a quad, or the mean, of a block that the ring touches, of the longest ring: shorter ones leave the rest
  // unwritten.
  rows: (shape) =>
    dim(shape, 'sequences') *
    dim(shape, 'heads') *
    Math.ceil(dim(shape, 'context') / dim(shape, 'blockTokens')) *
    (Math.ceil(dim(shape, 'rankK') / 4) + 1),
  row: (s, row) => {
    const { shape } = s.call;
    const [heads, tokens, functions] = [dim(shape, 'heads'), dim(shape, 'blockTokens'), dim(shape, 'functions')];
    const quads = Math.ceil(dim(shape, 'rankK') / 4);
    const most = Math.ceil(dim(shape, 'context') / tokens);
    const [head, block, quad] = [
      Math.floor(row / (most * (quads + 1))),
      Math.floor(row / (quads + 1)) % most,
      row % (quads + 1),
    ];
    const { firstPosition, ring } = runOf(s).span(Math.floor(head / heads));
    if (block * tokens >= ring) return { expected: [], actual: () => 0 };
    const stride = blockBasisScalars(1, dim(shape, 'rankK'), { blockTokens: 1, functions });
    const blocks = bufferOf(s.plan, 'basis').bytes / (4 * stride * dim(shape, 'sequences') * heads);
    const centre = firstPosition + (block + 0.5) * tokens - 0.5;
    const expected = blockBasisRow(
      shape,
      s.options.ropeBase ?? DEFAULTS.ropeBase,
      basisOf(s),
      s.input('vectors'),
      head,
      centre,
      quad,
    );
    const at = (head * blocks + block) * stride + quad * functions * 4;
    const step = quad === quads ? 4 : 1;
    return { expected, actual: (i) => s.output('basis')(at + step * i) };
  },
};

/** phi of a call, as its table has it. */
function phiOf(s: Subject): (offset: number) => { even: number[]; odd: number[] } {
  const basis = basisOf(s);
  const [even, odd] = [basis.even, basis.odd].map((f) => basis.exactPairs + f.directions.length) as [number, number];
  const table = phiTable(s.options.ropeBase ?? DEFAULTS.ropeBase, dim(s.call.shape, 'headDim'), basis);
  const padded = (n: number): number => Math.ceil(n / 4) * 4;
  const width = padded(even) + padded(odd);
  return (offset) => ({
    even: [...table.subarray(offset * width, offset * width + even)],
    odd: [...table.subarray(offset * width + padded(even), offset * width + padded(even) + odd)],
  });
}

const attend_block_absorbed: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const [rankK, rankV] = [dim(shape, 'rankK'), dim(shape, 'rankV')];
    const run = runOf(s);
    const caches = { keys: cachedRows(s, 'keys', rankK, run), values: cachedRows(s, 'values', rankV, run) };
    const blocks =
      bufferOf(s.plan, 'basis').bytes /
      (4 * blockBasisScalars(1, rankK, { blockTokens: 1, functions: dim(shape, 'functions') }) * queryHeads(shape));
    return withScores(
      s,
      row,
      run,
      attendBlockRow(
        shape,
        s.options.scale ?? dim(shape, 'headDim') ** -0.5,
        phiOf(s),
        s.input('basis'),
        blocks,
        caches,
        run,
        row,
      ),
    );
  },
};

export const BLOCK_CHECKERS = { block_vectors, block_basis, attend_block_absorbed } as const satisfies Record<
  string,
  Checker
>;
