/**
 * Assigns buffers to the rows that attention of each pass, layer and loop reads, where several are needed at once. A
 * buffer is used again after the last operation on its rows.
 */
import type { Visit } from '../configuration.js';

export interface SlotPlan {
  /** The buffer of each operation that works on such rows. */
  readonly of: ReadonlyMap<Visit, number>;
  /** Buffers in all: the most rows that are alive at once. */
  readonly count: number;
}

/** The rows that an operation works on: those that a pass (1 or 2) attends to at a place. */
function rowsOf({ op, place }: Visit, pass: number): string | undefined {
  const of = (own: number, loop = op.loop ?? (place?.loop ?? 0) - (op.loopsBack ?? 0)): string =>
    `${own} ${place?.block.name} ${place?.layer}.${loop}`;
  switch (op.label) {
    case 'keep-k':
    case 'keep-v':
    case 'attend':
    case 'prompt-mass':
      return of(pass);
    case 'capture-k':
    case 'capture-v':
    case 'hold-k':
    case 'hold-v':
      return of(1);
    case 'keep-reconstructed-k':
    case 'keep-reconstructed-v':
      return of(2);
    default:
      return undefined;
  }
}

/**
 * Plans buffers for the operations of a prompt, in order.
 * @param untilPass2 rows that pass 1 attended to in the core stay until pass 2 begins, used or not
 */
export function planSlots(visits: readonly Visit[], untilPass2: boolean): SlotPlan {
  const rows: (string | undefined)[] = [];
  const last = new Map<string, number>();
  let pass = 0;
  for (const [i, visit] of visits.entries()) {
    if (visit.op.label === 'embedding' && visit.part === 0) {
      pass++;
      if (untilPass2 && pass === 2) for (const own of last.keys()) if (own.startsWith('1 core')) last.set(own, i);
    }
    const own = rowsOf(visit, pass);
    rows.push(own);
    if (own !== undefined) last.set(own, i);
  }
  const ends = new Map<number, string[]>();
  for (const [own, i] of last) ends.set(i, [...(ends.get(i) ?? []), own]);
  const held = new Map<string, number>();
  const free: number[] = [];
  const of = new Map<Visit, number>();
  let count = 0;
  for (const [i, visit] of visits.entries()) {
    const own = rows[i];
    if (own !== undefined) {
      const slot = held.get(own) ?? free.pop() ?? count++;
      held.set(own, slot);
      of.set(visit, slot);
    }
    for (const ended of ends.get(i) ?? []) {
      free.push(held.get(ended) as number);
      held.delete(ended);
    }
  }
  return { of, count };
}
