/**
 * Greedy self-speculation in float64: the first loops propose tokens, one pass of all loops verifies them, and the
 * accepted ones are kept with the token that all loops say after them. The tokens are those of greedy decoding.
 */
import { requireVerifiable, type Draft } from '../../src/codecs/verification.js';
import { greedy } from '../../src/decoder/sampler.js';
import type { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';

/** What a round gave: the accepted proposals, then the verifier's own token. */
export interface Round {
  readonly proposed: readonly number[];
  readonly tokens: readonly number[];
}

/**
 * A round after a token that the decoder does not hold yet.
 * @throws UserError for a cache whose proposals cannot be verified in one pass (codecs/verification.ts)
 */
export function speculate(decoder: ReferenceDecoder, token: number, draft: Draft): Round {
  requireVerifiable(decoder.geometry, decoder.options.codec, decoder.options.eviction, draft);
  const proposed: number[] = [];
  for (let last = token; proposed.length < draft.draftTokens; last = proposed.at(-1)!)
    proposed.push(greedy(decoder.draft(last, draft.draftLoops)));
  let tokens: number[] = [];
  decoder.verify([token, ...proposed], (logits) => {
    const said = logits.map(greedy);
    const accepted = proposed.findIndex((proposal, i) => proposal !== said[i]);
    tokens = said.slice(0, (accepted < 0 ? proposed.length : accepted) + 1);
    return tokens.length - 1;
  });
  return { proposed, tokens };
}
