/** Split-KV decode attention with full RoPE straight on latents: kernels/block_vectors.wgsl, then attend_block_absorbed.wgsl. */
import type { KernelCall } from '../../schedule/kernels.js';
import { BLOCK_TOKENS, blockBasis, blockPhases } from '../block-basis.js';
import { capacityOf } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { read, u32, write, type OperationPlan } from '../plan.js';
import { bytesOfPairs, dimensions, elementOf, requireEven, requirePositive } from '../shape.js';
import { foldConstants, foldUniforms, partialsBytes } from './fold.js';

/** Basis vectors of at most this many latent components are in workgroup memory at a time. */
const MOST_CHUNK = 64;
/** Threads of a block: each takes four of its tokens. */
const BLOCK_THREADS = BLOCK_TOKENS / 8;
/** Bytes of workgroup memory for the basis vectors: leaves room for scores and reductions in 32 KiB. */
const MOST_BASIS_BYTES = 22 * 1024;

export interface BlockAbsorbedOptions {
  ropeBase: number;
  /** Position of the first cached token; the others follow in order. */
  firstPosition: number;
  /** Factor of q · k; headDim^-½ unless given. */
  scale?: number;
}

/** Buffers: queries (rotated), keys, values, partials, weights, means; tables phases, psi, phi; scratch vectors. */
export function planAttendBlockAbsorbed(call: KernelCall, { ropeBase, firstPosition, scale }: BlockAbsorbedOptions): OperationPlan {
  const s = dimensions(call, 'sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'splits');
  requirePositive(call, s);
  requireEven(call, s, 'rankK', 'rankV', 'headDim');
  requireShape(s.latentHeads === 1 || s.latentHeads === s.kvHeads, `attend_block_absorbed: latentHeads must be 1 or kvHeads (${s.kvHeads}), not ${s.latentHeads}`);
  const element = elementOf(call);
  const heads = s.sequences * s.kvHeads;
  const rows = s.sequences * s.latentHeads;
  const capacity = capacityOf(s.context);
  const shape = { ...s, keyWidth: s.rankK, valueWidth: s.rankV };
  const basis = blockBasis(ropeBase, s.headDim);
  const quads = basis.evenQuads + basis.oddQuads;
  const components = s.rankK + 2;
  const chunk = Math.min(MOST_CHUNK, 2 * Math.floor(MOST_BASIS_BYTES / (32 * quads)));
  const pairs = s.headDim / 2;
  return {
    buffers: [
      { name: 'queries', role: 'input', content: 'f32', bytes: heads * s.group * s.headDim * 4 },
      { name: 'keys', role: 'stream', content: element, bytes: rows * capacity * (s.rankK / 2) * bytesOfPairs(element) },
      { name: 'values', role: 'stream', content: element, bytes: rows * capacity * (s.rankV / 2) * bytesOfPairs(element) },
      { name: 'partials', role: 'output', content: 'f32', bytes: partialsBytes(heads * s.group, shape) },
      { name: 'weights', role: 'input', content: 'f16', bytes: s.kvHeads * s.headDim * (s.rankK / 2) * 4 },
      { name: 'means', role: 'input', content: 'f32', bytes: s.kvHeads * s.headDim * 4 },
      { name: 'vectors', role: 'scratch', content: 'f32', bytes: heads * s.group * pairs * components * 8 },
      { name: 'phases', role: 'table', content: 'f32', bytes: Math.ceil(s.context / BLOCK_TOKENS) * pairs * 8, data: () => blockPhases(ropeBase, s.headDim, firstPosition, s.context) },
      { name: 'psi', role: 'table', content: 'f32', bytes: basis.psi.byteLength, data: () => basis.psi },
      { name: 'phi', role: 'table', content: 'f32', bytes: basis.phi.byteLength, data: () => basis.phi },
    ],
    steps: [
      {
        source: 'block_vectors',
        element,
        constants: { HEAD_PAIRS: pairs },
        uniforms: [u32(s.rankK), u32(s.group), u32(s.kvHeads)],
        buffers: [...read('queries', 'weights', 'means'), ...write('vectors')],
        workgroups: [pairs, heads * s.group, 1],
      },
      {
        source: 'attend_block_absorbed',
        element,
        constants: {
          ...foldConstants(shape, BLOCK_THREADS, BLOCK_TOKENS, 1),
          HEAD_PAIRS: pairs,
          EXACT: basis.exact,
          EVEN_QUADS: basis.evenQuads,
          ODD_QUADS: basis.oddQuads,
          CHUNK: chunk,
          BASIS: chunk * quads,
        },
        uniforms: foldUniforms(shape, BLOCK_THREADS, scale ?? s.headDim ** -0.5, BLOCK_TOKENS),
        buffers: [...read('vectors', 'keys', 'values'), ...write('partials'), ...read('phases', 'psi', 'phi')],
        workgroups: [s.splits, s.kvHeads, s.sequences],
      },
    ],
    tuning: { workgroup: BLOCK_THREADS, block: BLOCK_TOKENS, exact: basis.exact, even: basis.even, odd: basis.odd, macsPerRank: basis.macsPerRank },
  };
}
