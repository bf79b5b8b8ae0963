/** Says where measured kernels are the finding, not the hardware: far slower than tuned ones, or than in 16 bits. */
import { isUncompressed } from '../../codecs/registry.js';
import { isEstimate, type Evidence, type Interval } from '../../cost/evidence.js';
import { priceStep, type Pricer, type StepPrice } from '../../cost/latency.js';
import { listedAs, servedBy } from '../../stacks/serving.js';
import { counted, formatMilliseconds, formatNumber } from '../../numbers/units.js';
import { choicesOf } from '../decide/decide.js';
import { configurationOfPlan } from './evaluate.js';
import { promptPricer } from './prompt-time.js';
import { planName } from '../words/words.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { Answer, Warning } from '../answer-types.js';
import type { Plan, PlanRequest } from '../types.js';

/** A step that takes so many times that of tuned kernels is slow because of its kernels. */
const SLOW = 2;
/** Times another kernel of attention, of a step or a first token, from which the usual one is slow. */
const SLOW_ATTENTION = 1.5;
/** Times those of 16 bits from which steps over a cache in 8 bits are slow. */
const SLOW_IN_8_BITS = 1.1;

/** A plan's step where it is run. */
interface Step {
  readonly p: Plan;
  readonly c: Configuration;
  readonly batch: number;
  readonly time: Interval;
  readonly evidence: Evidence;
  readonly floor: StepPrice['floor'];
}

/**
 * The answer with a risk where a step of measured kernels surely takes more than twice the time of tuned ones, where
 * one over a cache in 8-bit floats takes longer than over 16 bits, or where a server has a faster kernel of attention.
 */
export function withSlowKernels(r: PlanRequest, plans: readonly Plan[], answer: Answer): Answer {
  const named = choicesOf(answer).map((c) => c.planId);
  // Every row is compared with the full cache, also where the answer does not name it.
  const looked = plans
    .filter((p) => isUncompressed(p.codec) || named.includes(p.id))
    .flatMap((p): Step[] => {
      const { batch, secondsPerStep: time, evidence, floor } = p.knee ?? p.decode;
      const c = configurationOfPlan(r, p.id);
      return c && time && evidence ? [{ p, c, batch, time, evidence, floor }] : [];
    });
  const first = (risk: (r: PlanRequest, step: Step) => Warning | null): Warning[] =>
    looked.flatMap((step) => risk(r, step) ?? []).slice(0, 1);
  const risks = [...first(slowKernels), ...first(slowCache), ...first(slowAttention)];
  return risks.length === 0 ? answer : { ...answer, risks: [...risks, ...answer.risks] };
}

function slowCache(r: PlanRequest, { p, c, batch, time, evidence }: Step): Warning | null {
  if (r.choice.storage !== 'f8' || !r.pricer || isEstimate(evidence)) return null;
  // In 16 bits as many have to fit, so that in 8 there is room for more.
  if (2 * batch > p.maxBatch.exact) return null;
  const wide: Configuration = { ...c, choice: { ...c.choice, storage: 'f16' } };
  const than = priceStep(wide, r.pricer, batch, r.contextTokens);
  if (isEstimate(than.evidence) || time.estimate < SLOW_IN_8_BITS * than.estimate) return null;
  return {
    code: 'slow-cache',
    message:
      `${r.pricer.source} is slower over a cache in 8-bit floats here: a step of ${counted(batch, 'sequence')} ` +
      `takes ${formatMilliseconds(time.estimate)} ms, over 16 bits ${formatMilliseconds(than.estimate)}. More ` +
      'sequences may turn that: --batch',
  };
}

function slowAttention(r: PlanRequest, { p, c, batch, time }: Step): Warning | null {
  const other = isUncompressed(p.codec) ? (r.otherAttention?.() ?? null) : null;
  if (!other || !r.runtime) return null;
  const step = priceStep(c, other.pricer, batch, r.contextTokens);
  const firstBy = (pricer: Pricer | null) => promptPricer({ ...r, pricer })(c, p).secondsToFirstToken;
  const [first, than] = [firstBy(r.pricer), firstBy(other.pricer)];
  if (!first || !than || Math.max(time.estimate / step.estimate, first.estimate / than.estimate) < SLOW_ATTENTION)
    return null;
  const { attentionName } = r.runtime.choice;
  return {
    code: 'slow-attention',
    message:
      `the server’s default attention, ${attentionName}, is slow here: ${formatMilliseconds(time.estimate)} ms ` +
      `a token, the first after ${formatNumber(first.estimate)} s; with --attention ${other.name} ` +
      `${formatMilliseconds(step.estimate)} ms, and ${formatNumber(than.estimate)} s`,
  };
}

function slowKernels(r: PlanRequest, { p, c, batch, time, evidence, floor }: Step): Warning | null {
  if (!r.tuned || isEstimate(evidence)) return null;
  const priced = (pricer: Pricer): StepPrice => priceStep(c, pricer, batch, r.contextTokens);
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
