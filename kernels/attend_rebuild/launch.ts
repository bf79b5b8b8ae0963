/** Split-KV decode attention over latents with K rebuilt and rotated inside: attend_rebuild.wgsl. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep, stored } from '../host/plan.js';
import { rotaryTable } from '../host/rotary.js';
import { requireEven, shapeOf } from '../host/shape.js';
import { rotaryOf, tuned, type Launch } from '../launch.js';
import { foldOf, pinnedPositions, requireLatentHeads } from '../shared/attention/fold.launch.js';
import { readUnit, unitsEach } from '../shared/attention/fold.terms.js';
import { evenRow } from '../spec.js';
import { ownTokens, unitsAtOnce } from './terms.js';

/** Sizes of the kernel's arrays. */
const MOST_LATENT_VECS = 128;

const MOST_TOKENS = 32;

const MOST_WEIGHT_VECS = 32;

/**
 * Buffers: queries (rotated), keys, values, partials, spans, scores, positions (of pinned tokens), weights, means,
 * turns.
 * @throws GpuError for a shape that the kernel does not handle
 */
const plan: Launch['plan'] = (call, o) => {
  const { run = {}, tuning } = o;
  const rotary = rotaryOf(call, o);
  const s = shapeOf<'attend_rebuild'>(call, 'groupSize');
  requireEven(call, s, 'headDim');
  requireLatentHeads(call, s);
  requireShape(
    !run.pinnedQuery,
    'attend_rebuild: pinned tokens take their distance from their positions, not from a second query',
  );
  const shape = { ...s, keyWidth: s.rankK, valueWidth: s.rankV };
  const fold = foldOf(call, shape, run, tuning);
  const { buffers, launch } = fold;
  const vecs = readUnit(fold.keys) / 4;
  const longest = Math.ceil(fold.capacity / s.splits);
  const each = unitsEach(fold.keys, launch.wide);
  const rows = launch.workgroup / launch.wide;
  const tokens = tuned(tuning, 'tokens', ownTokens(longest, rows, each, vecs));
  const keyEach = unitsAtOnce(tokens, each, vecs);
  requireShape(
    tokens <= MOST_TOKENS && tokens * keyEach * vecs <= MOST_LATENT_VECS && keyEach * vecs <= MOST_WEIGHT_VECS,
    `attend_rebuild: ${tokens} tokens of ${keyEach} units a thread want more registers than there are`,
  );
  const whole = s.rankK % readUnit(fold.keys) === 0 && each % keyEach === 0;
  const uniforms = fold.uniforms(o.scale ?? s.headDim ** -0.5, {
    head_pairs: s.headDim / 2,
    adjacent_pairs: o.pairing === 'adjacent' ? 1 : 0,
    positions_by_head: o.positionsByHead ? 1 : 0,
  });
  return oneStep({
    buffers: [
      f32('queries', 'input', s.sequences * s.kvHeads * s.group * s.headDim),
      ...Object.values(buffers),
      pinnedPositions(
        s.sequences * (o.positionsByHead ? s.kvHeads : 1),
        fold.capacity,
        run.pinned ?? 0,
        rotary.positions,
      ),
      stored('weights', 'input', 'f16', Math.ceil((s.kvHeads * s.headDim * evenRow(s.rankK)) / 8) * 16),
      f32('means', 'input', s.kvHeads * s.headDim),
      rotaryTable(s.headDim, rotary),
    ],
    source: 'attend_rebuild',
    element: fold.storage,
    // A last chunk of units that is not whole has threads without a unit.
    constants: {
      ...fold.constants({ KEY_EACH: keyEach, TOKENS: tokens, ALIGNED: s.rankK % 8 === 0 ? 1 : 0 }),
      ...(whole ? {} : { EDGES: 1 }),
    },
    uniforms,
    workgroups: fold.workgroups,
    tuning: { ...launch, tokens },
  });
};

export const launch: Launch = {
  plan,
  tunables: [
    { name: 'workgroup', values: [64, 128] },
    { name: 'wide', values: [2, 4, 8] },
    { name: 'stream', values: [8, 32] },
    { name: 'lanes', values: [1, 2, 4] },
    { name: 'tokens', values: [1, 2, 4, 8] },
  ],
};
