/** What kernels that nobody has measured must reach for a plan to be worth writing them. */
import { isUncompressed } from '../codecs/registry.js';
import { isEstimate } from '../cost/evidence.js';
import type { BreakEven, DecodeFigures, Plan } from './types.js';

/** Adds to every plan with unmeasured kernels the share of the attainable rate at which it equals the full cache. */
export function withBreakEven(plans: readonly Plan[]): Plan[] {
  const reference = plans.find((p) => isUncompressed(p.codec) && p.eviction === null);
  if (!reference?.decode.tokensPerSecond || !reference.decode.evidenceShare || isUnmeasured(reference.decode))
    return [...plans];
  return plans.map((plan) => {
    // Both where they are run, or both at their largest batch.
    const [own, full] = plan.knee ? [plan.knee, reference.knee ?? reference.decode] : [plan.decode, reference.decode];
    return isUnmeasured(own) ? { ...plan, breakEven: breakEven(own, full) } : plan;
  });
}

const isUnmeasured = (d: DecodeFigures): boolean => d.evidence !== null && isEstimate(d.evidence);

/** What published implementations of latent attention reached of a GPU's rates. */
export const PUBLISHED_SHARES = [
  // Table absorbed_latency: four loops read 8,320 bytes a token; 131,072 tokens in 2.32 ms are 39 % of an H200's 4.8 TB/s,
  // 262,144 in 4.25 ms 43 %.
  { what: 'absorbed', share: 0.41, of: 'the bandwidth' },
  // Table memory: 108 tokens a second at 21.33×. Ranks 18/30 rebuild 12,288 operations a head, loop, layer and cached
  // token: 7.7e10 a token at 4,096, 0.8 % of an H200's 989 TFLOP/s.
  { what: 'reconstructing', share: 0.01, of: 'the matrix rate' },
] as const;

function breakEven({ batch, unmeasured, secondsPerStep }: DecodeFigures, full: DecodeFigures): BreakEven | null {
  const rate = full.tokensPerSecond;
  if (!rate || !unmeasured || !secondsPerStep) return null;
  const rest = secondsPerStep.estimate - unmeasured.estimate;
  const share = (attainable: number, tokensPerSecond: number): number => {
    const left = batch / tokensPerSecond - rest;
    return left > 0 ? attainable / left : Infinity;
  };
  const estimate = share(unmeasured.estimate, rate.estimate);
  return {
    estimate: Math.min(1, estimate),
    low: Math.min(1, share(unmeasured.low, rate.low)),
    high: Math.min(1, share(unmeasured.high, rate.high)),
    cannot: estimate > 1,
  };
}
