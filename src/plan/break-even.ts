/** What kernels that nobody has measured must reach for a plan to be worth writing them. */
import { isEstimate } from '../cost/evidence.js';
import type { BreakEven, DecodeFigures, Plan } from './types.js';

/** Adds to every plan with unmeasured kernels the share of the attainable rate at which it equals the full cache. */
export function withBreakEven(plans: readonly Plan[]): Plan[] {
  const full = plans.find((p) => p.codec.kind === 'full' && p.eviction === null)?.decode;
  if (!full?.tokensPerSecond || !full.evidenceShare || isUnmeasured(full)) return [...plans];
  return plans.map((plan) => (isUnmeasured(plan.decode) ? { ...plan, breakEven: breakEven(plan.decode, full) } : plan));
}

const isUnmeasured = (d: DecodeFigures): boolean => d.evidence !== null && isEstimate(d.evidence);

/** What published implementations of latent attention reached of a GPU's rates. */
export const PUBLISHED_SHARES = [
  // From Table absorbed_latency: bytes of one layer × four loops over its time and the H200's 4.8 TB/s.
  { what: "the paper's absorbed kernels", share: 0.41, of: 'the bandwidth' },
  // From Table memory: the products of one step over its time and the H200's 989 TFLOP/s.
  { what: 'its reconstructing path', share: 0.01, of: 'the matrix rate' },
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
