/** The main question: what fits, how fast, how good, and what to take. */
import { parameterCount } from '../geometry/geometry.js';
import { weightBytes } from '../cost/memory.js';
import { contradictionsFor } from '../quality/contradictions.js';
import { withBreakEven } from './break-even.js';
import { evaluate } from './evaluate.js';
import { markPareto } from './pareto.js';
import { promptPricer } from './prompt-time.js';
import { recommend } from './recommend.js';
import { applyTargets } from './targets.js';
import type { Plan, PlanReport, PlanRequest, Removed } from './types.js';

/**
 * Plans every candidate of a request.
 *
 * Plans that miss a target are left out of `plans` and listed in `removed` with the reason; without targets every
 * candidate stays, also one of which not a single sequence fits.
 */
export function makePlan(r: PlanRequest, refused: PlanReport['refused'] = []): PlanReport {
  const prompts = promptPricer(r);
  const evaluated = withBreakEven(r.candidates.map((c) => evaluate(r, c, prompts)));
  const { kept, removed } = hasTargets(r) ? applyTargets(r, evaluated) : { kept: evaluated, removed: [] as Removed[] };
  const plans = markPareto(kept);
  const g = r.geometry;
  return {
    schema: 'lla-sim/plan',
    schemaVersion: 1,
    scenario: r.scenario,
    model: { ...g, parameters: parameterCount(g), weightsBytes: weightBytes(g, 1) },
    device: { ...r.device, pricing: r.pricer?.source ?? 'none', stack: r.stack },
    contextTokens: r.contextTokens,
    settings: {
      cacheType: r.cacheType,
      groupSize: r.choice.groupSize,
      utilization: r.utilization,
      reserveBytes: r.reserveBytes,
      pageTokens: r.pageTokens,
      gpus: r.gpus,
      prefill: r.prefill,
      batch: r.batch,
      usdPerHour: r.usdPerHour,
      targets: r.targets,
    },
    plans,
    recommendation: recommend(r, plans),
    removed,
    refused,
    contradictions: r.publishedAs === null ? [] : contradictionsFor(r.publishedAs),
    notes: r.notes,
  };
}

const hasTargets = (r: PlanRequest): boolean =>
  r.batch !== null ||
  r.targets.minimums.length > 0 ||
  r.targets.retrievalTokens !== null ||
  r.targets.secondsPerToken !== null ||
  r.targets.secondsToFirstToken !== null;

/** True when the question has an answer: at least one plan that holds a sequence. */
export const hasSolution = (report: PlanReport): boolean => report.plans.some((p: Plan) => p.maxBatch.exact >= 1);
