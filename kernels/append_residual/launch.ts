/** Coding rows of all loops that share an anchor, and writing them to a cache: append_residual.wgsl. */
import { TILE_TOKENS } from '../spec.js';
import type { AppendResidualOptions } from '../cache-options.js';
import { capacityOf } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep, stored, u32 } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import { residualRowOf } from '../attend_residual/launch.js';
import { DEFAULTS, type Launch } from '../launch.js';
import { anchorGroupOf, residualCacheBytes, residualTile } from '../shared/cache/residual.layout.js';

/** Buffers: tokens (position of each sequence's first new token), rows, cache. */
const plan: Launch['plan'] = (call, { appendResidual: options = DEFAULTS.append as AppendResidualOptions }) => {
  const s = shapeOf<'append_residual'>(call);
  const row = residualRowOf(call);
  const { chunk = 1, rowOffset = 0, first = 0, firstSequence = 0, firstStart = 0 } = options;
  const { loopStride = s.heads * s.headDim } = options;
  const { rowStride = s.loops * loopStride } = options;
  const capacity = capacityOf(options.capacity);
  requireShape(s.rows % chunk === 0, `append_residual: ${s.rows} rows are not whole chunks of ${chunk} tokens`);
  const sequences = s.rows / chunk;
  const tile = residualTile(row);
  const of = (at: 'codesAt' | 'pairsAt' | 'coefficientAt'): number => tile.residuals[0]![at];
  const each = (at: 'codesAt' | 'pairsAt'): number => (tile.residuals[1]?.[at] ?? of(at)) - of(at);
  return oneStep({
    buffers: [
      u32('tokens', 'input', firstStart + sequences, { below: capacity - chunk + 1 }),
      f32('rows', 'input', rowOffset + (s.rows - 1) * rowStride + (s.loops - 1) * loopStride + s.heads * s.headDim),
      stored('cache', 'state', 'f16', residualCacheBytes(row, capacity, (firstSequence + sequences) * s.heads)),
    ],
    source: 'append_residual',
    constants: {
      WIDTH: s.headDim,
      ANCHOR_BITS: row.anchorBits,
      ANCHOR_GROUP: anchorGroupOf(row),
      RESIDUAL_GROUP: row.residualGroup,
    },
    uniforms: {
      loops: s.loops,
      chunk,
      tiles: capacity / TILE_TOKENS,
      tile_words: tile.words,
      anchor_words: tile.anchorWords,
      anchor_pairs_at: tile.anchorPairsAt,
      residual_words: tile.residualWords,
      codes_at: of('codesAt'),
      codes_each: each('codesAt'),
      pairs_at: of('pairsAt'),
      pairs_each: each('pairsAt'),
      row_offset: rowOffset,
      row_stride: rowStride,
      loop_stride: loopStride,
      first,
      first_row: firstSequence * s.heads,
      first_start: firstStart,
    },
    workgroups: [Math.floor((chunk + TILE_TOKENS - 2) / TILE_TOKENS) + 1, s.heads, sequences],
    tuning: { workgroup: 64 },
  });
};

export const launch: Launch = { plan };
