/** Time of one prompt's prefill, as a plan states it. */
import type { Evidence } from '../cost/evidence.js';
import { pricePrompt } from '../cost/latency.js';
import { wholePromptObstacle } from '../schedule/prefill-calls.js';
import type { Configuration } from '../schedule/schedule.js';
import type { EvidenceLabel, PlanRequest, PromptFigures } from './types.js';

/** Evidence that rests on imported times says so. */
export const evidenceLabel = (r: Pick<PlanRequest, 'imported'>, evidence: Evidence): EvidenceLabel => (r.imported && evidence !== 'roofline' ? `${evidence} (imported)` : evidence);

/** @param fits the prompt can be taken in beside the weights and its cache */
export function promptFigures(r: PlanRequest, c: Configuration, fits: boolean): PromptFigures {
  const { pricer, prefill: method, contextTokens: promptTokens } = r;
  const obstacle = wholePromptObstacle(c, method);
  if (!fits) return notPriced('it does not fit');
  if (obstacle !== null) return notPriced(obstacle);
  if (!pricer) return notPriced('nothing is known about the speed of this device');
  const { estimate, low, high, evidence, evidenceShare, octavesOutside } = pricePrompt(c, pricer, { method, promptTokens });
  return {
    secondsPerPrompt: { estimate, low, high },
    tokensPerSecond: { estimate: promptTokens / estimate, low: promptTokens / high, high: promptTokens / low },
    evidence: evidenceLabel(r, evidence), evidenceShare, octavesOutside, notPriced: null,
  };
}

const notPriced = (reason: string): PromptFigures => ({ secondsPerPrompt: null, tokensPerSecond: null, evidence: null, evidenceShare: null, octavesOutside: null, notPriced: reason });
