/** Rounding of a row by the cache's storage. */
import { codeLoops } from '../../codecs/residual.js';
import { quantisationScale, quantise } from '../../codecs/quantise.js';
import { halfBits, halfValue } from '../../../kernels/host/half.js';
import { STORAGE_BITS, type Storage } from '../../../kernels/spec.js';
import { anchorGroupOf, type ResidualRow } from '../../../kernels/shared/cache/residual.layout.js';
import { split, type Vector } from './arithmetic.js';

/** Element type of cached rows; `f64` keeps them exact, for equivalence tests that rounding would disturb. */
export type CacheType = Storage | 'f64';

const lastKept = new WeakMap<Vector, { readonly type: CacheType; readonly row: Vector }>();

/** `stored` without scales, of a row that does not change: every later query reads the same. */
export function kept(row: Vector, type: CacheType): Vector {
  const last = lastKept.get(row);
  if (last?.type === type) return last.row;
  const rounded = stored(row, type, row.length);
  lastKept.set(row, { type, row: rounded });
  return rounded;
}

const roundToHalf = (value: number): number => halfValue(halfBits(value));

/** The rows of loops that are stored together, end to end, as they are read back. */
export function storedTogether(row: Vector, { headDim, anchorBits, residualGroup }: ResidualRow): Vector {
  const loops = split(row, headDim).map((x) => [...x]);
  return Float64Array.from(
    codeLoops(loops, { anchorBits, anchorGroup: anchorGroupOf({ headDim }), residualGroup }).rows.flat(),
  );
}

/** A row as it is read back from the cache. `groupSize`: scalars that share a scale, in quantised storage. */
export function stored(row: Vector, type: CacheType, groupSize: number): Vector {
  if (type === 'f64') return row.slice();
  if (type === 'f32') return row.map(Math.fround);
  if (type === 'f16') return row.map(roundToHalf);
  const bits = STORAGE_BITS[type];
  const out = new Float64Array(row.length);
  for (let start = 0; start < row.length; start += groupSize) {
    const group = [...row.subarray(start, start + groupSize)];
    const scale = quantisationScale(group, bits, roundToHalf);
    group.forEach((x, i) => (out[start + i] = scale * (quantise(x, scale, bits) - (2 ** bits - 1) / 2)));
  }
  return out;
}
