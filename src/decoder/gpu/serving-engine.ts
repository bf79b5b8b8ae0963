/** The bundled decoder under a serving loop. */
import type { GpuDecoder } from './interface.js';
import type { SequenceEngine } from '../serving/loop.js';

/** @param decoder of which nothing else takes sequences meanwhile */
export const decoderEngine = (decoder: GpuDecoder, contextTokens: number): SequenceEngine => ({
  sequences: decoder.lengths.length,
  contextTokens,
  extend: (sequence, tokens, ends) => decoder.extend(sequence, tokens, ends),
  step: (tokens, joins) => decoder.step(tokens, joins),
  forget: (sequence, stream, draw) => decoder.forget(sequence, stream, draw),
});
