/** Split-KV decode attention over rows of residual-quant: attend_residual.wgsl. */
import { requireShape } from '../host/errors.js';
import { f32, oneStep, type BufferPlan, type Uniforms } from '../host/plan.js';
import { dimensions, shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import type { KernelCall } from '../registry.js';
import { FOLD_TUNABLES, foldOf } from '../shared/attention/fold.launch.js';
import { readUnit, unitsEach, unitsOf } from '../shared/attention/fold.terms.js';
import {
  anchorGroupOf,
  residualCacheBytes,
  residualTile,
  type ResidualRow,
  type ResidualTile,
} from '../shared/cache/residual.layout.js';
import { ROWS_LIKE } from './terms.js';

/**
 * The row that a call names.
 * @throws GpuError for groups that do not divide it
 */
export function residualRowOf(call: KernelCall): ResidualRow {
  const row = dimensions(call, 'headDim', 'loops', 'anchorBits', 'residualGroup');
  requireShape(
    row.headDim % 16 === 0 &&
      row.headDim % anchorGroupOf(row) === 0 &&
      [16, 32].includes(row.residualGroup) &&
      row.headDim % row.residualGroup === 0 &&
      [2, 4].includes(row.anchorBits),
    `${call.kernel}: codes of ${row.anchorBits} bits in groups of ${row.residualGroup} do not go with ` +
      `${row.headDim} channels`,
  );
  requireShape(row.loops >= 2, `${call.kernel}: ${row.loops} loops do not share an anchor`);
  return row;
}

/** The struct `CachedRow` of storage_residual.wgsl. @param loop whose rows are read */
function rowUniforms(tile: ResidualTile, { headDim }: ResidualRow, loop: number): Uniforms {
  const own = tile.residuals[loop];
  return {
    units: headDim / readUnit({ storage: ROWS_LIKE }),
    tile_words: tile.words,
    anchor_words: tile.anchorWords,
    anchor_pairs_at: tile.anchorPairsAt,
    residual_words: own ? tile.residualWords : 0,
    codes_at: own?.codesAt ?? 0,
    pairs_at: own?.pairsAt ?? 0,
    coefficient_at: own?.coefficientAt ?? 0,
  };
}

/** Buffers: queries, keys, values, partials, spans, scores (a few bytes that are not written). */
const plan: Launch['plan'] = (call, { residual: own = {}, run = {}, tuning }) => {
  const s = shapeOf<'attend_residual'>(call);
  const row = residualRowOf(call);
  const loop = call.variant === 'anchor' ? row.loops - 1 : (own.loop ?? 0);
  const tile = residualTile(row);
  const fold = foldOf(
    { ...call, variant: ROWS_LIKE },
    { ...s, groupSize: 32, keyWidth: s.headDim, valueWidth: s.headDim },
    run,
    tuning,
  );
  const { buffers, launch } = fold;
  const rows = (name: 'keys' | 'values'): BufferPlan => ({
    ...buffers[name],
    bytes: residualCacheBytes(row, fold.capacity, fold.rows),
  });
  const like = { storage: ROWS_LIKE, width: s.headDim } as const;
  const uniforms = rowUniforms(tile, row, loop);
  return oneStep({
    buffers: [
      f32('queries', 'input', s.sequences * s.kvHeads * s.group * s.headDim),
      rows('keys'),
      rows('values'),
      buffers.partials,
      buffers.spans,
      buffers.scores,
    ],
    source: 'attend_residual',
    element: 'f16',
    constants: fold.constants({
      EDGES: unitsOf(like) % launch.wide === 0 ? 0 : 1,
      KEY_EACH: unitsEach(like, launch.wide),
      BRANCH_EACH: 0,
      ANCHOR_BITS: row.anchorBits,
      ANCHOR_GROUP: anchorGroupOf(row),
      RESIDUAL_GROUP: row.residualGroup,
    }),
    uniforms: { ...fold.uniforms(s.headDim ** -0.5), keys: uniforms, values: uniforms, branch: uniforms },
    binds: ['queries', 'keys', 'values', 'partials', 'spans', 'scores', 'keys'],
    workgroups: fold.workgroups,
    tuning: { ...launch },
  });
};

export const launch: Launch = { plan, tunables: FOLD_TUNABLES };
