/**
 * Split-KV decode attention with full RoPE straight on latents: attend_block_absorbed.wgsl, after block_vectors
 * and block_basis.
 */
import { BLOCK_SIZES, blockPlan } from '../../schedule/block-absorbed.js';
import { phiTable, psiTable, type BlockBasis } from '../../schedule/block-basis.js';
import { blockBasisScalars } from '../../kernels/block_basis/terms.js';
import { blockComponents } from '../../kernels/block_vectors/terms.js';
import type { KernelCall } from '../../kernels/registry.js';
import { capacityOf } from '../cache-layout.js';
import { requireShape } from '../errors.js';
import { read, u32, write, type BufferPlan, type OperationPlan } from '../plan.js';
import { rotaryFrequencies, type RotaryOptions } from '../rotary.js';
import { dimensions, requireEven, requirePositive, requireVariant } from '../shape.js';
import { foldOf, readUnit, spansBuffer, spansOf, type RunOptions } from './fold.js';
import { tuned, type Tuning } from './tuning.js';

/** Offsets of either sign whose functions a thread holds; the size of the kernel's arrays. */
const MOST_OFFSETS = 8;
/**
 * Launch constants unless tuned. A software adapter pays for every load of every thread, so a thread takes many offsets
 * and has most basis vectors from its neighbours; it compiles that for ten seconds, so not for heads of toy models. A
 * GPU has fewer registers, and loads of one address by all threads are cheap.
 */
const OWN_LAUNCH = {
  software: { offsets: 8, handed: 1 },
  toy: { offsets: 2, handed: 1 },
  hardware: { offsets: 2, handed: 0 },
};
const TOY_HEAD_DIM = 64;
/** Blocks of a thread that writes the basis: more of them make fewer vectors to read; the most that the kernel has. */
const OWN_EACH = 4;
const MOST_EACH = 8;
/** Threads of a stream, as the kernel has it. */
const STREAM = 8;
/** Positions of a row of the kernels' fine table of angles. */
const FINE = 1024;
/** Index of `spare0` among the uniforms of attend_rows.wgsl. */
const SPARE = 17;

/** (cos, sin) by [row][pair] of angles θ_m · position(row), from float64. */
function turns(rows: number, theta: Float64Array, position: (row: number) => number): Float32Array<ArrayBuffer> {
  const table = new Float32Array(2 * rows * theta.length);
  for (let r = 0; r < rows; r++) {
    theta.forEach((t, m) => {
      table[2 * (r * theta.length + m)] = Math.cos(t * position(r));
      table[2 * (r * theta.length + m) + 1] = Math.sin(t * position(r));
    });
  }
  return table;
}

const table = (name: string, words: number, data: () => Float32Array<ArrayBuffer>): BufferPlan => ({
  name,
  role: 'table',
  content: 'f32',
  bytes: words * 4,
  data,
});

/** Blocks that a sequence's ring may have, and the last position that a call meets. */
function reachOf(
  run: RunOptions,
  sequences: number,
  context: number,
  blockTokens: number,
): { blocks: number; positions: number } {
  const { pinned = 0 } = run;
  const spans = spansOf(run, sequences, context);
  const ring = capacityOf(run.capacity ?? pinned + spans.reduce((most, s) => Math.max(most, s.ring), 1)) - pinned;
  return {
    blocks: Math.ceil(ring / blockTokens),
    positions: spans.reduce((most, s) => Math.max(most, s.firstPosition + s.ring), 1),
  };
}

function basisOf(call: KernelCall, rotary: RotaryOptions, headDim: number, blockTokens: number): BlockBasis {
  requireShape(
    (BLOCK_SIZES as readonly number[]).includes(blockTokens),
    `${call.kernel}: blocks have ${BLOCK_SIZES.join(', ')} positions, not ${blockTokens}`,
  );
  const { basis, functions } = blockPlan(rotary.ropeBase, headDim, blockTokens);
  requireShape(
    functions === call.shape.functions,
    `${call.kernel}: rotary base ${rotary.ropeBase} takes ${functions} functions for blocks of ${blockTokens}, not ${call.shape.functions}`,
  );
  return basis;
}

/** f32 [query head][block][quad of components, then the mean][function] (x 4). */
const basisBuffer = (
  role: 'input' | 'output',
  queries: number,
  blocks: number,
  rankK: number,
  functions: number,
): BufferPlan => ({
  name: 'basis',
  role,
  content: 'f32',
  bytes: 4 * queries * blockBasisScalars(blocks, rankK, { blockTokens: 1, functions }),
});

/**
 * Basis vectors of every block of a sequence's ring: block_basis.wgsl, after block_vectors. Buffers: vectors,
 * spans, basis; tables angles, psi.
 * @throws GpuError for a block size that there is not, or another number of functions than the rotary base takes
 */
export function planBlockBasis(
  call: KernelCall,
  rotary: RotaryOptions,
  run: RunOptions = {},
  tuning?: Tuning,
): OperationPlan {
  requireVariant(call);
  const s = dimensions(
    call,
    'sequences',
    'heads',
    'context',
    'rankK',
    'headDim',
    'blockTokens',
    'functions',
    'setupPerRank',
  );
  requirePositive(call, s);
  requireEven(call, s, 'headDim');
  const basis = basisOf(call, rotary, s.headDim, s.blockTokens);
  const [exact, even, odd] = [basis.exactPairs, basis.even.directions.length, basis.odd.directions.length];
  const [pairs, half, psiQuads] = [s.headDim / 2, s.blockTokens / 2, Math.ceil((even + odd) / 4)];
  const { blocks, positions } = reachOf(run, s.sequences, s.context, s.blockTokens);
  const rows = Math.ceil(Math.max(positions, rotary.positions) / FINE);
  const theta = rotaryFrequencies(rotary.ropeBase, s.headDim);
  const workgroup = tuned(tuning, 'workgroup', 32);
  const each = tuned(tuning, 'each', OWN_EACH);
  requireShape(each <= MOST_EACH, `block_basis: a thread takes at most ${MOST_EACH} blocks, not ${each}`);
  return {
    buffers: [
      {
        name: 'vectors',
        role: 'input',
        content: 'f32',
        bytes: s.sequences * s.heads * s.headDim * blockComponents(s.rankK) * 4,
      },
      spansBuffer(spansOf(run, s.sequences, s.context)),
      table('angles', 2 * (FINE + 1 + rows) * pairs, () =>
        turns(FINE + 1 + rows, theta, (r) =>
          r < FINE ? r + half - 0.5 : r === FINE ? s.blockTokens : (r - FINE - 1) * FINE,
        ),
      ),
      table('psi', Math.max(4, (pairs - exact) * 4 * psiQuads), () => psiTable(s.headDim, basis)),
      basisBuffer('output', s.sequences * s.heads, blocks, s.rankK, s.functions),
    ],
    steps: [
      {
        source: 'block_basis',
        element: 'f32',
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
        uniforms: [s.rankK, blocks, 1].map(u32),
        buffers: [...read('vectors', 'spans', 'angles', 'psi'), ...write('basis')],
        workgroups: [
          Math.ceil((Math.ceil(blocks / each) * (Math.ceil(s.rankK / 4) + 1)) / workgroup),
          s.heads,
          s.sequences,
        ],
      },
    ],
    tuning: { workgroup, each },
  };
}

/**
 * Buffers: basis (of block_basis), keys, values, partials, spans, scores, table phi. The call's tokens are its rings:
 * pinned tokens have no run of positions, and attend_rebuild takes them into other splits of the same partials.
 * @param scale of q · k; headDim^-½ unless given
 * @throws GpuError for a block size that there is not, or another number of functions than the rotary base takes
 */
export function planAttendBlockAbsorbed(
  call: KernelCall,
  rotary: RotaryOptions & { software?: boolean },
  scale?: number,
  run: RunOptions = {},
  tuning?: Tuning,
): OperationPlan {
  requireVariant(call);
  const s = dimensions(
    call,
    'sequences',
    'kvHeads',
    'latentHeads',
    'group',
    'context',
    'rankK',
    'rankV',
    'headDim',
    'blockTokens',
    'functions',
    'groupSize',
    'splits',
  );
  requirePositive(call, s, 'groupSize');
  requireEven(call, s, 'headDim');
  requireShape(
    s.latentHeads === 1 || s.latentHeads === s.kvHeads,
    `attend_block_absorbed: latentHeads must be 1 or kvHeads (${s.kvHeads}), not ${s.latentHeads}`,
  );
  const basis = basisOf(call, rotary, s.headDim, s.blockTokens);
  const even = basis.exactPairs + basis.even.directions.length;
  const odd = basis.exactPairs + basis.odd.directions.length;
  const half = s.blockTokens / 2;
  const own = OWN_LAUNCH[rotary.software ? (s.headDim > TOY_HEAD_DIM ? 'software' : 'toy') : 'hardware'];
  const offsets = tuned(tuning, 'offsets', Math.min(own.offsets, half / STREAM));
  const ways = tuned(tuning, 'ways', 1);
  const handed = tuned(tuning, 'handed', own.handed);
  requireShape(
    Number.isInteger(half / (STREAM * offsets)) && offsets <= MOST_OFFSETS,
    `attend_block_absorbed: ${offsets} offsets a thread do not share out ${half}`,
  );
  const workgroup = (ways * half) / offsets;
  const fold = foldOf(call, { ...s, keyWidth: s.rankK, valueWidth: s.rankV }, { ...run, only: 'ring' }, tuning, {
    unit: s.blockTokens,
    launch: { workgroup, lanes: 1, stream: STREAM },
  });
  const { blocks } = reachOf(run, s.sequences, s.context, s.blockTokens);
  const { buffers } = fold;
  const uniforms = fold.uniforms(scale ?? s.headDim ** -0.5);
  uniforms.splice(SPARE, 1, u32(blocks));
  // Keys are read whole by every thread: EDGES has to know of their width alone what it knows of the values'.
  const edges = s.rankK % readUnit(fold.keys) === 0 ? {} : { EDGES: 1 };
  return {
    buffers: [
      basisBuffer('input', s.sequences * s.kvHeads * s.group, blocks, s.rankK, s.functions),
      buffers.keys,
      buffers.values,
      buffers.partials,
      buffers.spans,
      buffers.scores,
      table('phi', 4 * (Math.ceil(even / 4) + Math.ceil(odd / 4)) * half, () =>
        phiTable(rotary.ropeBase, s.headDim, basis),
      ),
    ],
    steps: [
      {
        source: handed === 1 ? 'attend_block_components' : 'attend_block_absorbed',
        element: fold.storage,
        constants: { ...fold.constants({ HALF: half, WAYS: ways, OFFSETS: offsets, EVEN: even, ODD: odd }), ...edges },
        uniforms,
        buffers: [
          ...read('basis', 'keys', 'values'),
          ...write('partials'),
          ...read('spans'),
          ...write('scores'),
          ...read('phi'),
        ],
        workgroups: fold.workgroups,
      },
    ],
    tuning: { ...fold.launch, offsets, ways, handed, even, odd },
  };
}
