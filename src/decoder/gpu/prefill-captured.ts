/**
 * Rows of a prompt that is captured: the operations that only schedule/prefill-captured.ts lists. What they compute is
 * `prefill(…, 'one-shot')` and `prefill(…, 'by-layer')` of reference/decoder.ts.
 */
import type { CodecAxis } from '../tensors.js';
import { anchoredIn } from '../../schedule/configuration.js';
import type { Executor, Executors } from './dense.js';
import { loopOf, placed } from './machine.js';
import { keep, load } from './prefill-rows.js';
import { fromOf, type Prompt } from './prompt.js';
import { rotate } from './rows.js';

/** Captured rows of a chunk, where its own were projected. */
const capture =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) =>
    load(p, visit, p.kept(axis, visit), fromOf(visit), p.projected(axis));

/** Captured rows of a loop, beside those of the loops that are stored with it. */
const hold =
  (axis: CodecAxis): Executor<Prompt> =>
  (p, visit) => {
    const { rows, at, loopStride } = p.waiting(visit);
    const anchored = anchoredIn(p.c, placed(visit).block);
    const offset = at.offset + (loopOf(visit) % anchored) * loopStride;
    return load(p, visit, p.kept(axis, visit), fromOf(visit), { rows, at: { ...at, offset } });
  };

const rotateBack: Executor<Prompt> = (p, visit) =>
  rotate(p, visit, p.projected('key'), p.c.geometry.headDim, {}, { turns: p.buffer('turns back') });

export const CAPTURE_EXECUTORS: Executors<Prompt> = {
  'capture-k': capture('key'),
  'capture-v': capture('value'),
  'hold-k': hold('key'),
  'hold-v': hold('value'),
  'rope-back': rotateBack,
  'keep-reconstructed-k': keep('key'),
  'keep-reconstructed-v': keep('value'),
};
