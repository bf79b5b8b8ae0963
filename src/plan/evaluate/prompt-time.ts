/** Time of one prompt's prefill, as a plan states it. */
import { pathSpec } from '../../codecs/paths.js';
import { over } from '../../cost/evidence.js';
import { firstTokenOf } from '../../cost/first-token.js';
import { pricePrompt } from '../../cost/latency.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { Plan, PlanRequest, PromptFigures } from '../types.js';

/** @param room what the prompt and its cache find beside the weights: nothing is priced that does not fit */
export type PromptPricer = (c: Configuration, room: Room) => PromptFigures;

/** The parts of a plan that say whether a prompt can be taken in. */
interface Room {
  readonly maxBatch: Pick<Plan['maxBatch'], 'exact'>;
  readonly prefill: Pick<Plan['prefill'], 'fits'>;
}

const notPriced = (reason: string): PromptFigures => ({
  secondsPerPrompt: null,
  secondsToFirstToken: null,
  tokensPerSecond: null,
  evidence: null,
  evidenceShare: null,
  pricedBy: null,
  octavesOutside: null,
  notPriced: reason,
});

export const UNPRICED: PromptPricer = () => notPriced('it was not asked for');

/** Equal for configurations whose prompts take the same calls: paths that read the same latents are filled alike. */
export function promptKey(c: Pick<Configuration, 'codec' | 'eviction' | 'path'>): string {
  const { restores, branch } = pathSpec(c.path);
  return JSON.stringify([c.codec, c.eviction, restores, branch]);
}

/** Prices the prompts of one request, those that take the same calls once. */
export function promptPricer(r: PlanRequest): PromptPricer {
  const known = new Map<string, PromptFigures>();
  return (c, { maxBatch, prefill }) => {
    if (maxBatch.exact < 1 || !prefill.fits) return notPriced('it does not fit');
    const key = promptKey(c);
    const figures = known.get(key) ?? figuresOf(r, c);
    known.set(key, figures);
    return figures;
  };
}

function figuresOf(r: PlanRequest, c: Configuration): PromptFigures {
  const { pricer, prefill, contextTokens: promptTokens, promptChunkTokens: chunkTokens } = r;
  if (!pricer) return notPriced('nothing is known about the speed of this device');
  // A server takes a long prompt iteration by iteration, and exchanges in each.
  const method = prefill === 'accumulated' && promptTokens > (chunkTokens ?? Infinity) ? 'chunked' : prefill;
  const price = pricePrompt(c, pricer, { method, promptTokens, ...(chunkTokens === undefined ? {} : { chunkTokens }) });
  const { estimate, low, high, evidence, evidenceShare, pricedBy, octavesOutside } = price;
  return {
    secondsPerPrompt: { estimate, low, high },
    secondsToFirstToken: firstTokenOf(price, pricer),
    tokensPerSecond: over(promptTokens, { estimate, low, high }),
    evidence,
    evidenceShare,
    pricedBy,
    octavesOutside,
    notPriced: null,
  };
}
