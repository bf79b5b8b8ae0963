/** Basis vectors of every block of a ring: block_basis.wgsl, after block_vectors. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep } from '../host/plan.js';
import { rotaryFrequencies, turns } from '../host/rotary.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { psiTable } from '../shared/block/block-basis.js';
import { blockComponents } from '../block_vectors/terms.js';
import { rotaryOf, tuned, type Launch } from '../launch.js';
import { basisBuffer, basisOf, reachOf, table } from '../shared/block/block.launch.js';
import { spansBuffer, spansOf } from '../shared/attention/fold.launch.js';
import { BLOCKS_EACH } from './terms.js';

/** The most blocks of a thread that the kernel has. */
const MOST_EACH = 8;

/** Positions of a row of the kernels' fine table of angles. */
const FINE = 1024;

/**
 * Basis vectors of every block of a sequence's ring: block_basis.wgsl, after block_vectors. Buffers: vectors,
 * spans, basis; tables angles, psi.
 * @throws GpuError for a block size that there is not, or another number of functions than the rotary base takes
 */
const plan: Launch['plan'] = (call, o) => {
  const { run = {}, tuning } = o;
  const rotary = rotaryOf(call, o);
  const s = shapeOf<'block_basis'>(call);
  requireEven(call, s, 'headDim');
  const basis = basisOf(call, rotary, s.headDim, s.blockTokens);
  const [exact, even, odd] = [basis.exactPairs, basis.even.directions.length, basis.odd.directions.length];
  const [pairs, half, psiQuads] = [s.headDim / 2, s.blockTokens / 2, Math.ceil((even + odd) / 4)];
  const { blocks, positions } = reachOf(run, s.sequences, s.context, s.blockTokens);
  const rows = Math.ceil(Math.max(positions, rotary.positions) / FINE);
  const theta = rotaryFrequencies(rotary.ropeBase, s.headDim);
  /** Of a row of the table of angles. */
  const position = (r: number): number =>
    r < FINE ? r + half - 0.5 : r === FINE ? s.blockTokens : (r - FINE - 1) * FINE;
  const workgroup = tuned(tuning, 'workgroup', 32);
  const each = tuned(tuning, 'each', BLOCKS_EACH);
  requireShape(each <= MOST_EACH, `block_basis: a thread takes at most ${MOST_EACH} blocks, not ${each}`);
  return oneStep({
    buffers: [
      f32('vectors', 'input', s.sequences * s.heads * s.headDim * blockComponents(s.rankK)),
      spansBuffer(spansOf(run, s.sequences, s.context)),
      table('angles', 2 * (FINE + 1 + rows) * pairs, () =>
        turns(FINE + 1 + rows, pairs, (r, m) => position(r) * (theta[m] as number)),
      ),
      table('psi', Math.max(4, (pairs - exact) * 4 * psiQuads), () => psiTable(s.headDim, basis)),
      basisBuffer('output', s.sequences * s.heads, blocks, s.rankK, s.functions),
    ],
    source: 'block_basis',
    constants: {
      WG: workgroup,
      EACH: each,
      HEAD_PAIRS: pairs,
      BLOCK: s.blockTokens,
      FUNCTIONS: s.functions,
      EXACT: exact,
      MORE_EVEN: even,
      MORE_ODD: odd,
      PSI_QUADS: psiQuads,
    },
    uniforms: { rank: s.rankK, blocks, once: 1 },
    workgroups: [
      Math.ceil((Math.ceil(blocks / each) * (Math.ceil(s.rankK / 4) + 1)) / workgroup),
      s.heads,
      s.sequences,
    ],
    tuning: { workgroup, each },
  });
};

export const launch: Launch = {
  plan,
  tunables: [
    { name: 'workgroup', values: [32, 64, 128] },
    { name: 'each', values: [1, 2, 4, 8] },
  ],
};
