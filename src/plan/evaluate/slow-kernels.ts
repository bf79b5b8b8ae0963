/** Says where measured kernels are far slower than tuned ones: then they are the finding, not the hardware. */
import { isUncompressed } from '../../codecs/registry.js';
import { isEstimate, type Interval } from '../../cost/evidence.js';
import { priceStep, type Pricer, type StepPrice } from '../../cost/latency.js';
import { listedAs, servedBy } from '../../stacks/serving.js';
import { formatMilliseconds } from '../../numbers/units.js';
import { candidateOf } from '../ask/candidates.js';
import { choicesOf } from '../decide/decide.js';
import { configurationOf } from './evaluate.js';
import { planName } from '../words/words.js';
import type { Answer, Warning } from '../answer-types.js';
import type { Plan, PlanRequest } from '../types.js';

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
  const candidate = candidateOf(r, p.id);
  if (!r.tuned || !candidate || !time || evidence === null || isEstimate(evidence)) return null;
  const priced = (pricer: Pricer): StepPrice =>
    priceStep(configurationOf(r, candidate), pricer, batch, r.contextTokens);
  const tuned = priced(r.tuned());
  if (!isMuchSlower(time, tuned)) return null;
  const memory = floor ? `, reading memory alone ${formatMilliseconds(floor.memory)} ms` : '';
  const others = (r.otherStacks?.() ?? [])
    .map(({ stack, pricer }) => ({ stack, name: pricer.source, step: priced(pricer) }))
    .filter(({ step }) => !isEstimate(step.evidence) && isMuchSlower(time, step))
    .sort((a, b) => a.step.estimate - b.step.estimate);
  const [fastest] = others;
  const served = others.find(({ stack }) => servedBy(listedAs(r), stack)) ?? null;
  const ms = ({ step }: { readonly step: Interval }): string => `${formatMilliseconds(step.estimate)} ms`;
  const other = served
    ? `; ${served.name} takes ${ms(served)}: --stack ${served.stack}`
    : fastest
      ? `; ${fastest.name} would take ${ms(fastest)}, but does not run ${r.geometry.name}`
      : '';
  return {
    code: 'slow-kernels',
    message:
      `${r.pricer?.source ?? ''} is slow at this shape: a step of ${planName(p)} takes ` +
      `${formatMilliseconds(time.estimate)} ms where tuned kernels take about ${formatMilliseconds(tuned.estimate)} ` +
      `ms${memory}${other}${isUncompressed(p.codec) ? '. Other rows are compared with it' : ''}`,
  };
}

const isMuchSlower = (time: Interval, than: Interval): boolean =>
  time.estimate >= SLOW * than.estimate && time.low >= than.high;
