/** Kernels that nobody has measured: what they must reach, and the speed of those that were built so far. */
import { codecSpec, isHybrid } from '../../codecs/registry.js';
import { isEstimate, over, type Interval } from '../../cost/evidence.js';
import { IMPLEMENTATIONS, UNPRICED, type Implementation } from '../../quality/implementations.js';
import { pathLabel, shownDecode } from '../words/words.js';
import { isFullCache, isUseless, settingOf } from '../decide/representatives.js';
import type { AsPublished, BreakEven, DecodeFigures, Plan } from '../types.js';

/** Adds to every plan of latents what published implementations would make of it; where there is none, null. */
export function withAsPublished(plans: readonly Plan[]): Plan[] {
  const full = plans.find(isFullCache);
  const rate = full ? shownDecode(full).tokensPerSecond : null;
  const own = plans.map((p) => asPublished(p, rate));
  // A codec by a path that nobody has built is built by another: the fastest one that reads the cache faithfully.
  const best = new Map<string, AsPublished>();
  plans.forEach((p, i) => {
    const [found, known] = [own[i] ?? null, best.get(settingOf(p))];
    const better = !known || (found && found.tokensPerSecond.estimate > known.tokensPerSecond.estimate);
    if (found && !isUseless(p) && better) best.set(settingOf(p), found);
  });
  return plans.map((p, i) => ({
    ...p,
    asPublished: own[i] ?? (isBuilt(p) && !savesNothing(p) ? (best.get(settingOf(p)) ?? null) : null),
  }));
}

/** It reads rows of full width, and no latents. */
export const savesNothing = (p: Pick<Plan, 'marks'>): boolean => p.marks.some((m) => m.code === 'no-memory-saved');

/** Whether anybody has built kernels of these latents: of those of each head and of rotated ones. */
export const isBuilt = ({ codec }: Pick<Plan, 'codec'>): boolean =>
  codecSpec(codec).latentFor === 'one-head' || isHybrid(codec);

/**
 * T = T_rest + T_att / s: T_att what tuned kernels take for the latents' part of the step, s the share of their speed
 * that implementations of the path reached. The estimate is by those at the nearest ratio; the interval holds all.
 */
function asPublished(p: Plan, full: Interval | null): AsPublished | null {
  const { batch, secondsPerStep, unmeasured } = shownDecode(p);
  if (!isBuilt(p) || !secondsPerStep || !unmeasured || batch < 1) return null;
  const path = pathLabel(p);
  const built = IMPLEMENTATIONS.flatMap((i) => {
    const share = i.reached[path];
    return share === undefined ? [] : [{ i, share }];
  });
  if (built.length === 0) return null;
  const distance = ({ i }: { i: Implementation }): number => Math.abs(Math.log(i.ratio / p.codec.ratio));
  const nearest = Math.min(...built.map(distance));
  const near = built.filter((b) => distance(b) === nearest).map(({ share }) => Math.log(share));
  const shares = built.map(({ share }) => share);
  const [low, high] = [Math.min(...shares), Math.max(...shares)];
  const mean = Math.exp(near.reduce((a, b) => a + b, 0) / near.length);
  // The mean of one share is rounded.
  const reached = { estimate: Math.min(high, Math.max(low, mean)), low, high };
  const after = (end: keyof Interval, share: number): number =>
    secondsPerStep[end] - unmeasured[end] + unmeasured.estimate / share;
  const seconds = {
    estimate: after('estimate', reached.estimate),
    low: after('low', reached.high),
    high: after('high', reached.low),
  };
  const tokens = over(batch, seconds);
  return {
    path,
    batch,
    reached,
    secondsPerStep: seconds,
    tokensPerSecond: tokens,
    ofFull: full ? tokens.estimate / full.estimate : null,
    implementations: [
      ...built.map(({ i, share }) => ({
        source: i.source,
        where: i.where,
        reached: share,
        ofFull: i.tokensPerSecond === undefined ? null : i.tokensPerSecond / i.full,
      })),
      ...UNPRICED.filter((u) => u.path === path).map(({ path: _path, ...u }) => ({ ...u, reached: null })),
    ],
  };
}

/** Adds to every plan with unmeasured kernels the share of the attainable rate at which it equals the full cache. */
export function withBreakEven(plans: readonly Plan[]): Plan[] {
  const reference = plans.find(isFullCache);
  if (!reference?.decode.tokensPerSecond || !reference.decode.evidenceShare || isUnmeasured(reference.decode))
    return [...plans];
  return plans.map((plan) => {
    // Both where they are run, or both at their largest batch.
    const [own, full] = plan.knee ? [plan.knee, reference.knee ?? reference.decode] : [plan.decode, reference.decode];
    if (!isUnmeasured(own)) return plan;
    const decode = { ...plan.decode, breakEven: shareOf(breakEven(plan.decode, reference.decode)) };
    const found = breakEven(own, full);
    const knee = plan.knee && { ...plan.knee, breakEven: shareOf(found) };
    return { ...plan, decode, knee, breakEven: found };
  });
}

const shareOf = (found: BreakEven | null): number | null => (found && !found.cannot ? found.estimate : null);

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
