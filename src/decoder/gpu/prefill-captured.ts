/**
 * Rows of a prompt that is captured: the operations that only schedule/prefill-captured.ts lists. What they compute is
 * `prefill(…, 'one-shot')` and `prefill(…, 'by-layer')` of reference/decoder.ts.
 */
import type { CodecAxis } from '../tensors.js';
import type { Executor, Executors } from './dense.js';
import { keep, load } from './prefill-rows.js';
import { fromOf, type Prompt } from './prompt.js';
import { rotate } from './rows.js';

/** Captured rows of a chunk, where its own were projected. */
const capture =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) =>
    load(p, visit, p.kept(axis, visit), fromOf(visit), p.projected(axis));

const rotateBack: Executor<Prompt> = (p, visit) =>
  rotate(p, visit, p.projected('key'), p.c.geometry.headDim, {}, { turns: p.buffer('turns back') });

export const CAPTURE_EXECUTORS: Executors<Prompt> = {
  'capture-k': capture('key'),
  'capture-v': capture('value'),
  'rope-back': rotateBack,
  'keep-reconstructed-k': keep('key'),
  'keep-reconstructed-v': keep('value'),
};
