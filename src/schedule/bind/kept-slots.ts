/** Buffers of rows that attention of each pass, layer and loop reads, used again after their last operation. */
import type { Visit } from '../configuration.js';

export interface SlotPlan {
  /** The buffer of each operation that works on such rows. */
  readonly of: ReadonlyMap<Visit, number>;
  /** Buffers in all: the most rows that are alive at once. */
  readonly count: number;
}

/** Operations on such rows, in the pass that attends to them, or of that pass. */
const IN_THAT_PASS = new Set(['keep-k', 'keep-v', 'attend', 'prompt-mass']);
const PASS_OF = new Map([
  ...['capture-k', 'capture-v', 'hold-k', 'hold-v'].map((label) => [label, 1] as const),
  ...['keep-reconstructed-k', 'keep-reconstructed-v'].map((label) => [label, 2] as const),
]);

/** The rows that an operation works on: those that a pass (1 or 2) attends to at a place. */
function rowsOf({ op, place }: Visit, pass: number): string | undefined {
  const own = IN_THAT_PASS.has(op.label) ? pass : PASS_OF.get(op.label);
  const loop = op.loop ?? (place?.loop ?? 0) - (op.loopsBack ?? 0);
  return own === undefined ? undefined : `${own} ${place?.block.name} ${place?.layer}.${loop}`;
}

/** Plans buffers of operations in order. @param untilPass2 rows of pass 1 in the core stay until pass 2, used or not */
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
