/** Split-KV decode attention over latents with K rebuilt and rotated inside: kernels/attend_rebuild.wgsl. */
import { evenRow, type KernelCall } from '../../schedule/kernels.js';
import { requireShape } from '../errors.js';
import { read, u32, write, type BufferPlan, type OperationPlan } from '../plan.js';
import { rotaryTable, type Pairing, type RotaryOptions } from '../rotary.js';
import { dimensions, requireEven, requirePositive, requireVariant } from '../shape.js';
import { foldOf, readUnit, unitsEach, type RunOptions } from './fold.js';
import { tuned, type Tuning } from './tuning.js';

/** What a call over latents needs beside its run: the scale, and how pairs and the positions of pinned tokens lie. */
export interface AttendRebuildOptions {
  /** Factor of q · k; headDim^-½ unless given. */
  readonly scale?: number;
  /** Half-split unless given. */
  readonly pairing?: Pairing;
  /** Each KV head has positions of its own for the pinned tokens (H2O); those of a sequence are alike unless given. */
  readonly positionsByHead?: boolean;
}

/** Vec4 registers that a thread may spend on latents, and the size of the kernel's array. */
const LATENT_VECS = 64;
const MOST_LATENT_VECS = 128;
/** Sizes of the kernel's other arrays. */
const MOST_TOKENS = 32;
const MOST_UNIT_VECS = 32;
/** Tokens of a thread. */
const DEFAULT_TOKENS = 16;
/** Rotary pairs whose weights are staged at a time. */
const DEFAULT_PAIRS = 4;
/** Floats of workgroup memory for staged weights and angles, beside those of the fold. */
const STAGE_FLOATS = 2048;
/** Index of `spare0` among the uniforms of attend_fold.wgsl. */
const SPARE = 17;

/** Positions of pinned tokens, [sequence, or sequence and KV head][pinned]. */
export const pinnedPositions = (rows: number, pinned: number, below: number): BufferPlan => ({ name: 'positions', role: 'input', content: 'u32', bytes: Math.max(16, rows * pinned * 4), below });

/**
 * Buffers: queries (rotated), keys, values, partials, spans, scores, positions (of pinned tokens), weights, means, turns.
 * @throws GpuError for a shape that the kernel does not handle
 */
export function planAttendRebuild(call: KernelCall, rotary: RotaryOptions, options: AttendRebuildOptions = {}, run: RunOptions = {}, tuning?: Tuning): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'sequences', 'kvHeads', 'latentHeads', 'group', 'context', 'rankK', 'rankV', 'headDim', 'groupSize', 'splits');
  requirePositive(call, s, 'groupSize');
  requireEven(call, s, 'headDim');
  requireShape(s.latentHeads === 1 || s.latentHeads === s.kvHeads, `attend_rebuild: latentHeads must be 1 or kvHeads (${s.kvHeads}), not ${s.latentHeads}`);
  requireShape(!run.pinnedQuery, 'attend_rebuild: pinned tokens take their distance from their positions, not from a second query');
  const shape = { ...s, keyWidth: s.rankK, valueWidth: s.rankV };
  // Once to learn how rows are shared out, once more with the tile that follows.
  const first = foldOf(call, shape, run, tuning);
  const { workgroup, wide, lanes } = first.launch;
  const rows = workgroup / wide;
  const vecs = readUnit(first.keys) / 4;
  const each = unitsEach(first.keys, wide);
  const longest = Math.ceil(first.capacity / s.splits);
  let tokens = tuned(tuning, 'tokens', DEFAULT_TOKENS);
  while (tokens > 2 && (tokens * vecs > LATENT_VECS || (tokens * rows) / 2 >= longest || tokens * rows * lanes * wide > 2 * STAGE_FLOATS)) tokens /= 2;
  const keyEach = Math.min(each, Math.max(1, Math.floor(LATENT_VECS / (tokens * vecs))));
  const stepVecs = keyEach * wide * vecs;
  let pairs = tuned(tuning, 'pairs', DEFAULT_PAIRS);
  while (pairs > 1 && pairs * (8 * stepVecs + 2 * tokens * rows) > 2 * STAGE_FLOATS) pairs /= 2;
  requireShape(tokens % 2 === 0 && tokens <= MOST_TOKENS && tokens * keyEach * vecs <= MOST_LATENT_VECS && keyEach * vecs <= MOST_UNIT_VECS, `attend_rebuild: ${tokens} tokens of ${keyEach} units a thread want more registers than there are`);
  const fold = foldOf(call, shape, run, tuning, { launch: { workgroup, wide, lanes, tile: tokens * rows } });
  const { buffers, launch } = fold;
  const uniforms = fold.uniforms(options.scale ?? s.headDim ** -0.5);
  uniforms.splice(SPARE, 3, u32(s.headDim / 2), u32(options.pairing === 'adjacent' ? 1 : 0), u32(options.positionsByHead ? 1 : 0));
  return {
    buffers: [
      { name: 'queries', role: 'input', content: 'f32', bytes: s.sequences * s.kvHeads * s.group * s.headDim * 4 },
      buffers.keys,
      buffers.values,
      buffers.partials,
      buffers.spans,
      buffers.scores,
      pinnedPositions(s.sequences * (options.positionsByHead ? s.kvHeads : 1), run.pinned ?? 0, rotary.positions),
      { name: 'weights', role: 'input', content: 'f16', bytes: s.kvHeads * s.headDim * evenRow(s.rankK) * 2 },
      { name: 'means', role: 'input', content: 'f32', bytes: s.kvHeads * s.headDim * 4 },
      rotaryTable(s.headDim, rotary),
    ],
    steps: [
      {
        source: 'attend_rebuild',
        element: fold.storage,
        constants: fold.constants({ KEY_EACH: keyEach, TOKENS: tokens, PAIR_STEP: pairs, STEP_VECS: stepVecs, STAGED: 2 * pairs * stepVecs, TURNS: (pairs * tokens * rows) / 2 }),
        uniforms,
        buffers: [...read('queries', 'keys', 'values'), ...write('partials'), ...read('spans'), ...write('scores'), ...read('positions', 'weights', 'means', 'turns')],
        workgroups: fold.workgroups,
      },
    ],
    tuning: { ...launch, tokens, pairs },
  };
}
