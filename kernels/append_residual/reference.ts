/** The float64 reference of append_residual, and the comparison of its outputs with it. */
import { TILE_TOKENS } from '../spec.js';
import type { AppendResidualOptions } from '../cache-options.js';
import {
  anchorOf,
  coefficientOf,
  nearestCode,
  rangeOf,
  residualOf,
  residualPosition,
  type CodedGroup,
} from '../../src/codecs/residual.js';
import { toBf16, toFp8 } from '../../src/codecs/small-floats.js';
import { capacityOf } from '../host/cache-layout.js';
import { rebuiltLoops, storedLoops, type StoredLoops } from '../../src/gpu/residual-layout.js';
import { residualRowOf } from '../attend_residual/launch.js';
import { DEFAULTS } from '../launch.js';
import { dim, type Checker } from '../reference.js';
import { anchorGroupOf, RESIDUAL_BITS, type ResidualRow } from '../shared/cache/residual.layout.js';

/** How near a value may come to a rounding boundary in f32 arithmetic before its other neighbour is right as well. */
const CLOSE = 1e-5;

/** The stored value where it is the rounding of one close to `exact`; else the rounding of that. */
function accepted(stored: number, exact: number, size: number, round: (x: number) => number): number {
  const near = [exact - CLOSE * size, exact + CLOSE * size].map(round);
  return near.includes(stored) ? stored : round(exact);
}

/** A row as it should be stored; what f32 arithmetic may round either way is taken as it is stored. */
function groupsOf(row: readonly number[], stored: readonly CodedGroup[], bits: number, size: number): CodedGroup[] {
  return stored.map((own, g) => {
    const values = row.slice(g * size, (g + 1) * size);
    const exact = rangeOf(values, bits);
    const most = Math.max(...values.map(Math.abs));
    const pair = {
      scale: accepted(own.scale, exact.scale, exact.scale, toFp8),
      offset: accepted(own.offset, exact.offset, most, toFp8),
    };
    const slack = pair.scale === 0 ? 0 : (CLOSE * most) / pair.scale;
    const codes = values.map((x, i) => {
      const at = residualPosition(x, pair);
      const near = [at - slack, at + slack].map((p) => nearestCode(p, bits));
      return near.includes(own.codes[i] as number) ? (own.codes[i] as number) : nearestCode(at, bits);
    });
    return { ...pair, codes };
  });
}

/**
 * What should be stored of a token's rows.
 * @param rows one a loop, the anchor's last
 * @param stored what is stored, which decides where two roundings are as near
 */
export function expectedLoops(rows: readonly (readonly number[])[], stored: StoredLoops, of: ResidualRow): StoredLoops {
  const anchor = groupsOf(rows.at(-1) as readonly number[], stored.anchor, of.anchorBits, anchorGroupOf(of));
  const read = anchorOf(anchor);
  const residuals = stored.residuals.map((own, loop) => {
    const row = rows[loop] as readonly number[];
    const exact = coefficientOf(row, read);
    const length = (x: readonly number[]): number => Math.hypot(...x);
    const size = length(read) === 0 ? 0 : length(row) / length(read);
    const coefficient = accepted(own.coefficient, exact, size, toBf16);
    return {
      coefficient,
      groups: groupsOf(residualOf(row, read, coefficient), own.groups, RESIDUAL_BITS, of.residualGroup),
    };
  });
  return { anchor, residuals };
}

/** The tile of a cached row that its new token lies in, loop by loop. */
export const reference: Checker = {
  outputs: ['cache'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, of) => {
    const heads = dim(s.call.shape, 'heads');
    const row = residualRowOf(s.call);
    const options: AppendResidualOptions = s.options.appendResidual ?? DEFAULTS.append;
    const capacity = capacityOf(options.capacity);
    const { chunk = 1, rowOffset = 0, first = 0, firstSequence = 0, firstStart = 0 } = options;
    const { loopStride = heads * row.headDim } = options;
    const { rowStride = row.loops * loopStride } = options;
    const [token, head] = [Math.floor(of / heads), of % heads];
    const sequence = Math.floor(token / chunk);
    const start = s.input('tokens')(firstStart + sequence) + first;
    const slot = start + (token % chunk);
    const cached = (firstSequence + sequence) * heads + head;
    const before = storedLoops(s.inputWords('cache'), row, capacity);
    const after = storedLoops(s.outputWords('cache'), row, capacity);
    const rows = Array.from({ length: row.loops }, (_, loop) =>
      Array.from({ length: row.headDim }, (_, i) =>
        s.input('rows')(rowOffset + token * rowStride + loop * loopStride + head * row.headDim + i),
      ),
    );
    // Its own token, and one of the tile that is not new, if there is any.
    const own = rebuiltLoops(expectedLoops(rows, after(cached, slot), row));
    const tile = slot - (slot % TILE_TOKENS);
    const other = Array.from({ length: TILE_TOKENS }, (_, i) => tile + ((slot + 1 + i) % TILE_TOKENS)).find(
      (t) => t < start || t >= start + chunk,
    );
    const tokensCompared = other === undefined ? [slot] : [slot, other];
    const found = tokensCompared.flatMap((t) => rebuiltLoops(after(cached, t)));
    return {
      expected: [...own, ...(other === undefined ? [] : rebuiltLoops(before(cached, other)))],
      actual: (i) => found[i] as number,
    };
  },
};
