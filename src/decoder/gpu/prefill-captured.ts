/**
 * Rows of a prompt that is captured: the operations that only schedule/prefill-captured.ts lists. What they compute is
 * `prefill(…, 'one-shot')` and `prefill(…, 'by-layer')` of reference/decoder.ts.
 */
import type { CodecAxis } from '../tensors.js';
import { fromOf, keep, kept, load, rotate, type Executor } from './prefill-rows.js';

/** Captured rows of a chunk, where its own were projected. */
const capture =
  (side: CodecAxis): Executor =>
  (p, visit) =>
    Promise.resolve(
      load(p, visit, kept(p, side, visit), fromOf(visit), { rows: p.projections, at: p.m.packed[`${side}s`] }),
    );

/** By label of the operation. */
export const CAPTURE_EXECUTORS: Readonly<Record<string, Executor>> = {
  'capture-k': capture('key'),
  'capture-v': capture('value'),
  'rope-back': rotate(
    (p) => p.buffer('turns back'),
    (p) => ({ data: p.m.packed.keys, buffer: p.projections }),
  ),
  'keep-reconstructed-k': keep('key'),
  'keep-reconstructed-v': keep('value'),
};
