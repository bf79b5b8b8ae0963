/**
 * Prefill of whole prompts by captures: the operations of schedule/prefill-captured.ts. What it computes is `prefill(…, 'one-shot')` and
 * `prefill(…, 'by-layer')` of reference/decoder.ts; what all kinds have in common is executed by prefill.ts.
 */
import { capturedPrefillSchedule } from '../../schedule/prefill-captured.js';
import type { CapturingKind } from '../../schedule/prefill.js';
import { keep, load, rotate, type Executor, type PrefillKind } from './prefill.js';
import { keptSlots } from './prompt.js';

/** Captured rows of a chunk, where its own were projected. */
const capture =
  (side: 'keys' | 'values'): Executor =>
  (p, visit) =>
    Promise.resolve([load(p, visit, { cache: p.kept(side, visit), capacity: keptSlots(p.longest), firstSequence: 0 }, { rows: p.projections, at: p.m.packed[side] })]);

const EXECUTORS: Readonly<Record<string, Executor>> = {
  'capture-k': capture('keys'),
  'capture-v': capture('values'),
  'rope-back': rotate((p) => p.buffer('turns back'), (p) => ({ data: p.m.packed.keys, buffer: p.projections })),
  'keep-reconstructed-k': keep('keys'),
  'keep-reconstructed-v': keep('values'),
};

export const capturing = (kind: CapturingKind): PrefillKind => ({
  captures: kind,
  schedule: (c, tokens, chunkTokens) => capturedPrefillSchedule(c, kind, tokens, 1, chunkTokens),
  executors: EXECUTORS,
});
