/** Split-KV decode attention with full RoPE straight on latents: kernels/attend_block_absorbed.wgsl, after block_vectors. */
import { BLOCK_SIZES, blockPlan } from '../../schedule/block-absorbed.js';
import { phiTable, psiTable } from '../../schedule/block-basis.js';
import { blockComponents } from '../../schedule/attention-kernels.js';
import type { KernelCall } from '../../schedule/kernels.js';
import { requireShape } from '../errors.js';
import { read, write, type BufferPlan, type OperationPlan } from '../plan.js';
import { rotaryFrequencies, type RotaryOptions } from '../rotary.js';
import { dimensions, requireEven, requirePositive, requireVariant } from '../shape.js';
import { foldOf, readUnit, unitsEach, type RunOptions } from './fold.js';
import { tuned, type Tuning } from './tuning.js';

/** Offsets of either sign whose functions a thread holds; the size of the kernel's arrays. */
const MOST_OFFSETS = 8;
/** Offsets of a thread unless tuned: four are no faster and take a software adapter three times as long to compile. */
const OWN_OFFSETS = 2;
/** Words of workgroup memory for basis vectors. */
const BASIS_WORDS = 4096;
/** Positions of a row of the kernel's fine table of angles. */
const FINE = 1024;

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

function joined(...parts: readonly Float32Array[]): Float32Array<ArrayBuffer> {
  const all = new Float32Array(parts.reduce((sum, p) => sum + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}

/**
 * Buffers: vectors (of block_vectors), keys, values, partials, spans; scores (not written), tables angles, functions. The call's tokens are its
 * rings: pinned tokens have no run of positions, and attend_rebuild takes them into other splits of the same partials.
 * @param scale of q · k; headDim^-½ unless given
 * @throws GpuError for a block size that there is not, or spans beyond the table of positions
 */
export function planAttendBlockAbsorbed(call: KernelCall, rotary: RotaryOptions, scale?: number, run: RunOptions = {}, tuning?: Tuning): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'blockTokens', 'groupSize', 'splits');
  requirePositive(call, s, 'groupSize');
  requireEven(call, s, 'headDim');
  requireShape(s.latentHeads === 1 || s.latentHeads === s.kvHeads, `attend_block_absorbed: latentHeads must be 1 or kvHeads (${s.kvHeads}), not ${s.latentHeads}`);
  const block = tuned(tuning, 'block', s.blockTokens);
  requireShape((BLOCK_SIZES as readonly number[]).includes(block), `attend_block_absorbed: blocks have ${BLOCK_SIZES.join(', ')} positions, not ${block}`);
  const { basis } = blockPlan(rotary.ropeBase, s.headDim, block);
  const [exact, even, odd] = [basis.exactPairs, basis.even.directions.length, basis.odd.directions.length];
  const functions = 2 * exact + even + odd;
  const psiQuads = Math.ceil((even + odd) / 4);
  const [evenQuads, oddQuads] = [Math.ceil((exact + even) / 4), Math.ceil((exact + odd) / 4)];
  const half = block / 2;
  const least = tuned(tuning, 'offsets', Math.min(OWN_OFFSETS, half / 8));
  const fold = foldOf(call, { ...s, keyWidth: s.rankK, valueWidth: s.rankV }, { ...run, only: 'ring' }, tuning, { unit: block, launch: { workgroup: half / least, tile: block, lanes: 1, stream: 8 } });
  const { workgroup, wide } = fold.launch;
  const offsets = half / workgroup;
  requireShape(Number.isInteger(offsets) && offsets <= MOST_OFFSETS, `attend_block_absorbed: ${workgroup} threads do not share ${half} offsets by at most ${MOST_OFFSETS}`);
  const unitVecs = readUnit(fold.keys) / 4;
  // Whole units; no fewer for a small rank, so that one pipeline serves all ranks.
  const chunk = Math.max(1, Math.floor(tuned(tuning, 'basis', BASIS_WORDS) / (4 * functions * unitVecs))) * unitVecs;
  const pairs = s.headDim / 2;
  const theta = rotaryFrequencies(rotary.ropeBase, s.headDim);
  const reach = run.spans?.reduce((most, x) => Math.max(most, x.firstPosition + x.ring), 1) ?? (run.firstPosition ?? 0) + s.context;
  const rows = Math.ceil(Math.max(reach, rotary.positions) / FINE);
  const table = (name: string, words: number, data: () => Float32Array<ArrayBuffer>): BufferPlan => ({ name, role: 'table', content: 'f32', bytes: words * 4, data });
  const { buffers } = fold;
  return {
    buffers: [
      { name: 'vectors', role: 'input', content: 'f32', bytes: s.sequences * s.kvHeads * s.group * s.headDim * blockComponents(s.rankK) * 4 },
      buffers.keys,
      buffers.values,
      buffers.partials,
      buffers.spans,
      buffers.scores,
      table('angles', 2 * (FINE + rows) * pairs, () => turns(FINE + rows, theta, (r) => (r < FINE ? r + half - 0.5 : (r - FINE) * FINE))),
      table('functions', (pairs - exact) * 4 * psiQuads + 4 * (evenQuads + oddQuads) * half, () => joined(psiTable(s.headDim, basis), phiTable(rotary.ropeBase, s.headDim, basis))),
    ],
    steps: [
      {
        source: 'attend_block_absorbed',
        element: fold.storage,
        constants: fold.constants({
          SCRATCH: Math.max(block, workgroup * unitsEach(fold.values, wide) * readUnit(fold.values)),
          HEAD_PAIRS: pairs,
          HALF: half,
          OFFSETS: offsets,
          EXACT: exact,
          MORE_EVEN: even,
          MORE_ODD: odd,
          EVEN: exact + even,
          ODD: exact + odd,
          EVEN_QUADS: evenQuads,
          ODD_QUADS: oddQuads,
          FUNCTIONS: functions,
          PSI_QUADS: psiQuads,
          CHUNK: chunk,
          BASIS: (chunk + 1) * functions,
        }),
        uniforms: fold.uniforms(scale ?? s.headDim ** -0.5),
        buffers: [...read('vectors', 'keys', 'values'), ...write('partials'), ...read('spans'), ...write('scores'), ...read('angles', 'functions')],
        workgroups: fold.workgroups,
      },
    ],
    tuning: { ...fold.launch, block, offsets, chunk, exact, even, odd },
  };
}
