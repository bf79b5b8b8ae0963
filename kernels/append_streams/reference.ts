/** The float64 reference of append_streams, and the comparison of its outputs with it. */
import { cacheRow, capacityOf } from '../host/cache-layout.js';
import { dim, type Checker } from '../reference.js';
import { usualSpans } from './launch.js';
import { GROUP_SIZE } from '../spec.js';
import { streamsGroup, streamsRowOf } from '../shared/cache/streams.launch.js';
import { rebuilt, storedCodes, toHalf } from '../shared/cache/streams.reference.js';

/** How near a value may come to a rounding boundary in f32 arithmetic before its other neighbour is right as well. */
const CLOSE = 1e-3;
const CLOSE_SCALE = 1e-6;

/** Pairs and codes of the first group that a row packs. */
export const reference: Checker = {
  outputs: ['cache'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, of) => {
    const { shape, variant } = s.call;
    const [heads, loop] = [dim(shape, 'heads'), dim(shape, 'loops') - 1];
    const { appendStreams: o } = s.options;
    const row = streamsRowOf(s.call, o?.loops ?? loop + 1);
    const axis = variant as 'keys' | 'values';
    const capacity = o?.capacity ?? capacityOf(row.group);
    const { channels, bits } = streamsGroup(row, axis);
    const most = 2 ** (bits[loop] as number) - 1;
    const first = o && o.full > 0 ? (o.spans?.[Math.floor(of / heads)]?.pinned ?? 0) : 0;
    const cached = (o?.firstSequence ?? 0) * heads + of;
    const source = cacheRow(s.inputWords('rows'), 'f16', row.headDim, GROUP_SIZE, o?.slots ?? capacity);
    const stored = storedCodes(s.outputWords('cache'), row, axis, capacity);
    const wanted = (t: number, c: number): number => {
      const x = source(of, (first + t) % (o?.slots ?? capacity), c);
      return loop === 0 ? x : toHalf(x - rebuilt(stored, loop, cached, first + t, c));
    };
    const [expected, actual]: [number[], number[]] = [[], []];
    const sequence = Math.floor(of / heads);
    const span = (o?.spans ?? usualSpans(sequence + 1, row.group))[sequence];
    const full = o?.full ?? row.group;
    if (span && span.ring + 1 < full) {
      // Nothing is packed: the codes of its first token are as they were.
      const before = storedCodes(s.inputWords('cache'), row, axis, capacity);
      for (let c = 0; c < row.headDim; c++) {
        expected.push(before(cached, loop, 0, c).code);
        actual.push(stored(cached, loop, 0, c).code);
      }
      return { expected, actual: (i) => actual[i] as number };
    }
    const inner = axis === 'keys' ? row.group : channels;
    for (let p = 0; p < (row.group * row.headDim) / inner; p++) {
      const places = Array.from({ length: inner }, (_, i): [number, number] => {
        const each = row.headDim / channels;
        return axis === 'keys' ? [i, p] : [Math.floor(p / each), (p % each) * channels + i];
      });
      const values = places.map(([t, c]) => wanted(t, c));
      const low = Math.min(...values);
      const scale = (Math.max(...values) - low) / most || 1;
      const own = places.map(([t, c]) => stored(cached, loop, first + t, c));
      const near = [scale, scale * (1 - CLOSE_SCALE), scale * (1 + CLOSE_SCALE)].map(toHalf);
      for (const { scale: found, low: lowest } of own.slice(0, 1)) {
        expected.push(near.includes(found) ? found : (near[0] as number), toHalf(low));
        actual.push(found, lowest);
      }
      own.forEach(({ code }, i) => {
        const at = ((values[i] as number) - low) / scale;
        expected.push(Math.abs(code - at) < 0.5 + CLOSE ? code : Math.round(at));
        actual.push(code);
      });
    }
    return { expected, actual: (i) => actual[i] as number };
  },
};
