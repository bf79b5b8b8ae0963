/** Says where measured kernels are far slower than tuned ones: then they are the finding, not the hardware. */
import { isUncompressed } from '../codecs/registry.js';
import { isEstimate } from '../cost/evidence.js';
import { priceStep } from '../cost/latency.js';
import { formatMilliseconds } from '../units.js';
import { candidateId } from './candidates.js';
import { choicesOf } from './decide.js';
import { configurationOf } from './evaluate.js';
import { planName } from './names.js';
import type { Answer, Plan, PlanRequest, Warning } from './types.js';

/** A step that takes so many times that of tuned kernels is slow because of its kernels. */
const SLOW = 2;

/** The answer with a risk where a step of measured kernels surely takes more than twice the time of tuned ones. */
export function withSlowKernels(r: PlanRequest, plans: readonly Plan[], answer: Answer): Answer {
  if (!r.tuned) return answer;
  const named = choicesOf(answer).map((c) => c.planId);
  // Every row is compared with the full cache, also where the answer does not name it.
  const looked = plans.filter((p) => isUncompressed(p.codec) || named.includes(p.id));
  const slow = looked.flatMap((p) => slowKernels(r, p) ?? []);
  return slow.length === 0 ? answer : { ...answer, risks: [...slow.slice(0, 1), ...answer.risks] };
}

function slowKernels(r: PlanRequest, p: Plan): Warning | null {
  const { batch, secondsPerStep: time, evidence, floor } = p.knee ?? p.decode;
  const candidate = r.candidates.find((c) => candidateId(r.geometry, c, r.cacheType) === p.id);
  if (!r.tuned || !candidate || !time || evidence === null || isEstimate(evidence)) return null;
  const tuned = priceStep(configurationOf(r, candidate), r.tuned(), batch, r.contextTokens);
  if (time.estimate < SLOW * tuned.estimate || time.low < tuned.high) return null;
  const memory = floor ? `, reading memory alone ${formatMilliseconds(floor.memory)} ms` : '';
  return {
    code: 'slow-kernels',
    message: `${r.pricer?.source ?? ''} is slow at this shape: a step of ${planName(p)} takes ${formatMilliseconds(time.estimate)} ms where tuned kernels take about ${formatMilliseconds(tuned.estimate)} ms${memory}; compare other stacks with --stack${isUncompressed(p.codec) ? ', and mind that other rows are compared with it' : ''}`,
  };
}
