/** The bundled decoder under a serving loop. */
import type { Draft } from '../../codecs/verification.js';
import type { GpuDecoder } from './decoder.js';
import type { SequenceEngine } from '../serving/loop.js';

/**
 * @param decoder of which nothing else takes sequences meanwhile
 * @param draft of a decoder that was opened for speculation; tokens come one by one without
 * @param accepted proposals of a round that are kept whatever was verified, by the number of the request and of the
 *   output token that the round begins with: for times with made-up weights
 */
export function decoderEngine(
  decoder: GpuDecoder,
  contextTokens: number,
  draft?: Draft,
  accepted?: (request: number, token: number) => number,
): SequenceEngine {
  const { length: sequences } = decoder.lengths;
  const of = Array.from({ length: sequences }, () => ({ request: 0, tokens: 0 }));
  return {
    sequences,
    contextTokens,
    ...(draft ? { draft } : {}),
    extend: (sequence, tokens, ends) => {
      if (ends) of[sequence]!.tokens++;
      return decoder.extend(sequence, tokens, ends);
    },
    step: async (last, joins) => {
      if (!draft) {
        const { tokens, seconds } = await decoder.step(last, joins);
        return { tokens: Array.from(tokens, (token) => [token]), seconds };
      }
      const accept = accepted && ((sequence: number) => accepted(of[sequence]!.request, of[sequence]!.tokens));
      const { tokens, draftSeconds, verifySeconds } = await decoder.speculate(last, joins, accept);
      tokens.forEach((own, sequence) => (of[sequence]!.tokens += own.length));
      return { tokens, seconds: draftSeconds + verifySeconds };
    },
    forget: (sequence, stream, draw) => {
      of[sequence] = { request: stream, tokens: draw };
      decoder.forget(sequence, stream, draw);
    },
  };
}
