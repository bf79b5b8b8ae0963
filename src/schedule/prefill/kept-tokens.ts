/** Eviction by position (StreamingLLM): kept tokens are written after the last read of the rows that they replace. */
import { takesTwoPasses } from '../../codecs/registry.js';
import { weighsTokens } from '../../eviction/policy.js';
import { fromOf, into, type PromptFrame } from '../bind/prompt.js';
import type { Placed } from '../bind/refs.js';
import { AXES, groupSizeOf, NAME, storageOf, type Axis, type Visit } from '../configuration.js';
import { branchWidth, closingTime } from '../facts.js';
import { op, withMore, type Bind, type Op } from '../op.js';
import { append, appendOp } from '../rows.js';
import { joiningTime, prefillRowType, setsRowsAside, keptIn, type Chunk, type Pass } from './pass.js';
import { cachedShape, load, roleOf } from './rows.js';

/**
 * Rows that were set aside, and kept rows that layers share, are loaded and written, through the buffer of results,
 * which the projection of attention's output has read by then. Others are written from their projection, which still
 * holds them: such a run has one pass.
 */
export function keptTokenOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, pass2 } = p;
  if (c.eviction === null || weighsTokens(c.eviction) || pass2 !== takesTwoPasses(c.codec)) return [];
  const when = joiningTime(c, block);
  const aside = setsRowsAside(c);
  const read = aside || closingTime(c, block) === 'closing-layer';
  const [type, groupSize] = aside ? [storageOf(c), groupSizeOf(c)] : [prefillRowType(c), 0];
  const cached = branchWidth(c, block) > 0 ? ([...AXES, 'rotary-key'] as const) : AXES;
  return keptIn(p, chunk).flatMap(({ from, tokens: rows }) =>
    cached.flatMap((what): Op[] => {
      const role = roleOf(c, block, what);
      const { heads, width } = cachedShape(c, block, what);
      const through = (f: PromptFrame): Placed => ({ rows: f.results, at: { offset: 0, stride: heads * width } });
      const loads: Bind = (f: PromptFrame, visit: Visit) => {
        const from = aside ? f.ownRows(role, visit) : f.kept(what as Axis, visit);
        return load(visit, from, fromOf(visit), through(f));
      };
      const writes: Bind = (f: PromptFrame, visit: Visit) => {
        const to = into(visit, f.inCache(role, visit), fromOf(visit), f.caches.slots);
        return read ? append(f, to, through(f)) : append(f, { ...to, row: f.rowOf(visit) }, f.projected(what as Axis));
      };
      const label = `${NAME[what]}-staying`;
      return [
        ...(read ? [op(`load-${label}`, 'load', type, { rows, heads, width, groupSize }, loads, when)] : []),
        appendOp(c, `append-${label}`, rows, heads, width, writes, when),
      ].map((o) => withMore(o, { from }));
    }),
  );
}
