/** The float64 reference of block_basis, and the comparison of its outputs with it. */
import { bufferOf } from '../host/plan.js';
import { rotaryFrequencies } from '../host/rotary.js';
import { psiTable } from '../shared/block/block-basis.js';
import { blockComponents } from '../block_vectors/terms.js';
import { DEFAULTS } from '../launch.js';
import { dim, dimsOf, type Checker } from '../reference.js';
import { runOf } from '../shared/attention/attention.reference.js';
import { basisOf } from '../shared/block/block.reference.js';
import { blockBasisScalars } from './terms.js';

/**
 * Basis vectors of one block and quad of components of a query head, [function][component of the quad], or past the
 * last quad its mean, [function], from its vectors: every pair's vectors rotated to the block's centre, and combined
 * into the functions (psi, as the kernel reads it).
 */
export const reference: Checker = {
  outputs: ['basis'],
  // A row is a quad, or the mean, of a block that the ring touches, of the longest ring: shorter ones leave the rest
  // unwritten.
  rows: (shape) =>
    dim(shape, 'sequences') *
    dim(shape, 'heads') *
    Math.ceil(dim(shape, 'context') / dim(shape, 'blockTokens')) *
    (Math.ceil(dim(shape, 'rankK') / 4) + 1),
  row: (s, row) => {
    const { sequences, heads, context, rankK, headDim, blockTokens, functions } = dimsOf<'block_basis'>(s);
    const quads = Math.ceil(rankK / 4);
    const most = Math.ceil(context / blockTokens);
    const [head, block, quad] = [
      Math.floor(row / (most * (quads + 1))),
      Math.floor(row / (quads + 1)) % most,
      row % (quads + 1),
    ];
    const { firstPosition, ring } = runOf(s).span(Math.floor(head / heads));
    if (block * blockTokens >= ring) return { expected: [], actual: () => 0 };
    const stride = blockBasisScalars(1, rankK, { blockTokens: 1, functions });
    const blocks = bufferOf(s.plan, 'basis').bytes / (4 * stride * sequences * heads);
    /** Position of the middle of the block. */
    const centre = firstPosition + (block + 0.5) * blockTokens - 0.5;
    const vectors = s.input('vectors');
    const basis = basisOf(s);
    const { exactPairs, even, odd } = basis;
    const components = blockComponents(rankK);
    const psi = psiTable(headDim, basis);
    const more = even.directions.length + odd.directions.length;
    const width = Math.ceil(more / 4) * 4;
    const mean = quad === quads;
    const own = Array.from({ length: 2 * exactPairs + more }, () => (mean ? [0] : [0, 0, 0, 0]));
    rotaryFrequencies(s.options.ropeBase ?? DEFAULTS.ropeBase, headDim).forEach((t, m) => {
      const [cosine, sine] = [Math.cos(t * centre), Math.sin(t * centre)];
      for (let e = 0; mean ? e < 1 : e < 4 && 4 * quad + e < rankK; e++) {
        const at = 2 * (((head * headDim) / 2 + m) * components + (mean ? rankK : 4 * quad + e));
        const [a, b] = [vectors(at), vectors(at + 1)];
        const [turnedA, turnedB] = [cosine * a + sine * b, cosine * b - sine * a];
        const add = (j: number, x: number): void =>
          void ((own[j] as number[])[e] = ((own[j] as number[])[e] as number) + x);
        if (m < exactPairs) {
          add(m, turnedA);
          add(exactPairs + even.directions.length + m, turnedB);
          continue;
        }
        const share = (j: number): number => psi[(m - exactPairs) * width + j] as number;
        even.directions.forEach((_, j) => add(exactPairs + j, share(j) * turnedA));
        odd.directions.forEach((_, j) =>
          add(2 * exactPairs + even.directions.length + j, share(even.directions.length + j) * turnedB),
        );
      }
    });
    const at = (head * blocks + block) * stride + quad * functions * 4;
    const step = mean ? 4 : 1;
    return { expected: own.flat(), actual: (i) => s.output('basis')(at + step * i) };
  },
};
