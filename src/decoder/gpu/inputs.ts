/** Inputs of a step: its tokens, their positions, and the slots of the tokens before them. */
import { chosenKeys } from '../../codecs/flashloop.js';
import { streamsOf } from '../../codecs/registry.js';
import { reindexes } from '../../eviction/policy.js';
import { blocksOf } from '../../geometry/geometry.js';
import type { Span } from '../../../kernels/attention-options.js';
import { CACHED_TOKENS, recentTokens, spansFrom } from '../../schedule/buffers.js';
import { divideSpan, packedSpan, spanOf } from '../../schedule/cache-map.js';
import type { Machine } from './machine.js';

/** Positions of pinned slots, [sequence][slot]: StreamingLLM's give the distances inside the cache. */
function sinkPositions({ c, caches }: Machine, lengths: readonly number[], spans: readonly Span[]): number[] {
  const { pinned, capacity } = caches.slots;
  return lengths.flatMap((length, i) => {
    const { pinned: sinks, ring } = spans[i] as Span;
    const shift = reindexes(c.eviction) ? length - sinks - ring : 0;
    return Array.from({ length: capacity }, (_, slot) => (slot < pinned ? slot + shift : 0));
  });
}

/** @param lengths tokens of each sequence, evicted ones included */
export async function writeInputs(
  m: Machine,
  { tokens, lengths }: { tokens: Uint32Array<ArrayBuffer>; lengths: readonly number[] },
): Promise<void> {
  const { c, caches, allocations } = m;
  const spans = lengths.map((length) => spanOf(c.eviction, caches.slots, length));
  const write = (label: string, words: () => readonly number[]): Promise<void> =>
    allocations.has(label) ? m.device.write(m.buffer(label), Uint32Array.from(words())) : Promise.resolve();
  const streams = streamsOf(c.geometry, c.codec);
  // First sequences of the parts of all caches.
  const firsts = blocksOf(c.geometry).flatMap((block) => caches.parts(block.name).map(({ first }) => first));
  await Promise.all([
    m.device.write(m.buffer('tokens'), tokens),
    write('positions', () => lengths),
    write('places', () => spans.map((span) => span.pinned + span.ring)),
    write('pinned positions', () => sinkPositions(m, lengths, spans)),
    ...[...new Set(firsts)].flatMap((first) =>
      CACHED_TOKENS.map((read) =>
        write(spansFrom(first, read), () =>
          spans.slice(first).flatMap((all) => {
            if (read === 'packed') {
              const { pinned, firstPosition, ring } = packedSpan(c, all.ring);
              return [pinned, firstPosition, ring, streams ? chosenKeys(streams, all.ring) : 0];
            }
            const span = read === 'all' ? all : divideSpan(all, recentTokens(c))[read];
            return [span.pinned, span.firstPosition, span.ring, 0];
          }),
        ),
      ),
    ),
  ]);
}
