/** Inputs of a step: its tokens, their positions, and the slots of the tokens before them. */
import type { Span } from '../../../kernels/options.js';
import { reindexes } from '../../eviction/policy.js';
import { divideSpan } from './caches.js';
import { CACHED_TOKENS, recentTokens, spansFrom, type DecodeStep } from './step.js';

/**
 * Positions of sinks where keys of latents are rotated as they are read. StreamingLLM's give the distances inside the
 * cache. [sequence][slot], of which the pinned ones are read.
 */
function sinkPositions({ c, caches }: DecodeStep, lengths: readonly number[], spans: readonly Span[]): number[] {
  const { pinned, capacity } = caches.slots;
  return lengths.flatMap((length, i) => {
    const { pinned: sinks, ring } = spans[i] as Span;
    const shift = reindexes(c.eviction) ? length - sinks - ring : 0;
    return Array.from({ length: capacity }, (_, slot) => (slot < pinned ? slot + shift : 0));
  });
}

/** @param lengths tokens of each sequence, evicted ones included */
export async function writeInputs(
  m: DecodeStep,
  { tokens, lengths }: { tokens: Uint32Array<ArrayBuffer>; lengths: readonly number[] },
): Promise<void> {
  const spans = lengths.map((length) => m.spanAt(length));
  const write = (label: string, words: readonly number[]): Promise<void> =>
    m.device.write(m.buffer(label), Uint32Array.from(words));
  await Promise.all([
    m.device.write(m.buffer('tokens'), tokens),
    write('positions', lengths),
    write(
      'places',
      spans.map((span) => span.pinned + span.ring),
    ),
    ...(m.allocations.has('pinned positions') ? [write('pinned positions', sinkPositions(m, lengths, spans))] : []),
    ...m.partStarts.flatMap((first) =>
      CACHED_TOKENS.filter((read) => m.allocations.has(spansFrom(first, read))).map((read) =>
        write(
          spansFrom(first, read),
          spans.slice(first).flatMap((all) => {
            const span = read === 'all' ? all : divideSpan(all, recentTokens(m.c))[read];
            return [span.pinned, span.firstPosition, span.ring, 0];
          }),
        ),
      ),
    ),
  ]);
}
