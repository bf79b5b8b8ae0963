/** What kernels that nobody has measured must reach for a plan to be worth writing them. */
import { isUncompressed } from '../../codecs/registry.js';
import { isEstimate } from '../../cost/evidence.js';
import type { BreakEven, DecodeFigures, Plan } from '../types.js';

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
