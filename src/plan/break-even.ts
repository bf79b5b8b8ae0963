/** What kernels that nobody has measured must reach for a plan to be worth writing them. */
import type { BreakEven, DecodeFigures, Plan } from './types.js';

/** Adds to every plan with unmeasured kernels the share of the attainable rate at which it equals the full cache. */
export function withBreakEven(plans: readonly Plan[]): Plan[] {
  const full = plans.find((p) => p.codec.kind === 'full' && p.eviction === null)?.decode;
  if (!full?.tokensPerSecond || !full.evidenceShare || isUnmeasured(full)) return [...plans];
  return plans.map((plan) => (isUnmeasured(plan.decode) ? { ...plan, breakEven: breakEven(plan.decode, full) } : plan));
}

/** More than a twentieth of the time is of kernels that nobody measured. */
const isUnmeasured = (d: DecodeFigures): boolean => d.evidence === 'attainable' || d.evidence === 'roofline';

function breakEven({ batch, unmeasured, secondsPerStep }: DecodeFigures, full: DecodeFigures): BreakEven | null {
  const rate = full.tokensPerSecond;
  if (!rate || !unmeasured || !secondsPerStep) return null;
  const rest = secondsPerStep.estimate - unmeasured.estimate;
  const share = (attainable: number, tokensPerSecond: number): number | null => {
    const left = batch / tokensPerSecond - rest;
    const s = attainable / left;
    return left > 0 && s <= 1 ? s : null;
  };
  return {
    share: share(unmeasured.estimate, rate.estimate),
    low: share(unmeasured.low, rate.low),
    high: share(unmeasured.high, rate.high),
  };
}
