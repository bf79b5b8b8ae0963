/** Split-KV decode attention with full RoPE straight on latents: attend_block_absorbed.wgsl, after block_basis. */
import { requireShape } from '../host/errors.js';
import { oneStep } from '../host/plan.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { phiTable } from '../shared/block/block-basis.js';
import { rotaryOf, tuned, type Launch } from '../launch.js';
import { basisBuffer, basisOf, reachOf, table } from '../shared/block/block.launch.js';
import { foldOf, requireLatentHeads } from '../shared/attention/fold.launch.js';
import { readUnit } from '../shared/attention/fold.terms.js';

/** Offsets of either sign whose functions a thread holds; the size of the kernel's arrays. */
const MOST_OFFSETS = 8;

/**
 * Launch constants unless tuned. On a software adapter every load of every thread costs, so a thread takes many offsets
 * and gets most basis vectors from its neighbours. That takes ten seconds to compile, so heads of small test models do
 * without. A GPU has fewer registers, and loads of one address by all threads are cheap.
 */
const OWN_LAUNCH = {
  software: { offsets: 8, handed: 1 },
  toy: { offsets: 2, handed: 1 },
  hardware: { offsets: 2, handed: 0 },
};

const TOY_HEAD_DIM = 64;

/** Threads of a stream, as the kernel has it. */
const STREAM = 8;

/**
 * Buffers: basis (of block_basis), keys, values, partials, spans, scores, table phi. The call's tokens are its rings:
 * pinned tokens have no run of positions, and attend_rebuild takes them into other splits of the same partials.
 * `scale` is that of q · k; headDim^-½ unless given.
 * @throws GpuError for a block size that there is not, or another number of functions than the rotary base takes
 */
const plan: Launch['plan'] = (call, o) => {
  const { scale, run = {}, tuning } = o;
  const rotary = rotaryOf(call, o);
  const s = shapeOf<'attend_block_absorbed'>(call, 'groupSize');
  requireEven(call, s, 'headDim');
  requireLatentHeads(call, s);
  const basis = basisOf(call, rotary, s.headDim, s.blockTokens);
  const even = basis.exactPairs + basis.even.directions.length;
  const odd = basis.exactPairs + basis.odd.directions.length;
  const half = s.blockTokens / 2;
  const own = OWN_LAUNCH[o.software ? (s.headDim > TOY_HEAD_DIM ? 'software' : 'toy') : 'hardware'];
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
  const uniforms = fold.uniforms(scale ?? s.headDim ** -0.5, { blocks });
  // Every thread reads whole keys, so EDGES depends on the width of the keys as it does on that of the values.
  const edges = s.rankK % readUnit(fold.keys) === 0 ? {} : { EDGES: 1 };
  return oneStep({
    buffers: [
      basisBuffer('input', s.sequences * s.kvHeads * s.group, blocks, s.rankK, s.functions),
      ...Object.values(buffers),
      table('phi', 4 * (Math.ceil(even / 4) + Math.ceil(odd / 4)) * half, () =>
        phiTable(rotary.ropeBase, s.headDim, basis),
      ),
    ],
    source: handed === 1 ? 'attend_block_components' : 'attend_block_absorbed',
    element: fold.storage,
    constants: { ...fold.constants({ HALF: half, WAYS: ways, OFFSETS: offsets, EVEN: even, ODD: odd }), ...edges },
    uniforms,
    workgroups: fold.workgroups,
    tuning: { ...fold.launch, offsets, ways, handed, even, odd },
  });
};

export const launch: Launch = {
  plan,
  // `offsets`: of a block, that a thread takes; `ways`: blocks at a time; `handed`: whether threads hand each other
  // basis vectors.
  tunables: [
    { name: 'offsets', values: [1, 2, 4, 8] },
    { name: 'ways', values: [1, 2, 4] },
    { name: 'handed', values: [0, 1] },
  ],
};
