/** What can go wrong with the plans that an answer names, gravest first. */
import { isUncompressed, LATENT_KINDS } from '../../codecs/registry.js';
import { isEstimate, type Interval } from '../../cost/evidence.js';
import { formatTokens } from '../../numbers/units.js';
import { present } from '../../present.js';
import { leavesEarly } from '../evaluate/evaluate.js';
import { isMostlyOutside, testedText } from '../ask/tested.js';
import { planName } from '../words/words.js';
import type { Answer, Warning } from '../answer-types.js';
import type { Plan, PlanRequest, QualityKept } from '../types.js';

/** Below this rate a user waits for words. */
const SLOW_TOKENS_PER_SECOND = 10;

/** The risks of these plans; each once. */
export function risksOf(r: PlanRequest, plans: readonly Plan[]): Warning[] {
  const risks: Warning[] = [];
  const add = (code: string, message: string): void => {
    if (!risks.some((w) => w.code === code && w.message === message)) risks.push({ code, message });
  };
  if (r.device.calibration?.software === true)
    add('software-adapter', `times are those of a software adapter: they say nothing about a GPU`);
  if (r.geometry.quantised)
    add(
      'weights-unknown',
      `nothing is published about ${r.geometry.name} with weights in ${r.geometry.quantised.name}`,
    );
  if (r.testedFirst && isMostlyOutside(r.testedFirst))
    add('first-tokens-outside', `--ttft is not sure: ${testedText(r.testedFirst)}`);
  if (leavesEarly(r))
    add(
      'exits-early',
      'published scores are those of all loops; lla-sim simulate --find-rate --ways says what is known of answers ' +
        'whose tokens leave early',
    );
  const estimated = plans.find(
    (p) => p.servedBy === null && p.decode.evidence !== null && isEstimate(p.decode.evidence),
  );
  if (estimated)
    add(
      'no-kernels',
      isUncompressed(estimated.codec)
        ? `kernels of the ${short(estimated)} were not measured on this device`
        : LATENT_KINDS.includes(estimated.codec.kind)
          ? `no server has ${estimated.codec.kind} kernels`
          : `no ${estimated.codec.kind} kernels were measured`,
    );
  for (const p of plans) {
    const kept = p.qualityKept;
    const retrieval = retrievalRisk(p, r.contextTokens);
    if (retrieval !== null) add('retrieval-unknown', retrieval);
    if (kept?.generationTasks === 0 && r.geometry.trained)
      add(
        'generation-unknown',
        `nothing that the model writes was scored with ${r.geometry.loops} loops, only the choice among given answers`,
      );
    if (kept === null && !leavesEarly(r))
      add(
        'quality-unknown',
        p.measured === undefined
          ? `nothing is published about the quality of ${short(p)}`
          : `the quality of ${short(p)} was not measured at ${formatTokens(r.contextTokens)}`,
      );
  }
  for (const p of plans) {
    const { qualityKept: kept } = p;
    const point = p.knee ?? p.decode;
    const user = p.knee?.tokensPerSecondPerUser?.estimate ?? Infinity;
    if (user < SLOW_TOKENS_PER_SECOND) add('slow', `${short(p)} gives a user under ${SLOW_TOKENS_PER_SECOND} tok/s`);
    const { batchBesidePrefill: room, fits } = p.prefill;
    if (fits && point.batch > room)
      add('prefill-room', `beside a prompt ${short(p)} holds ${room} of ${point.batch} sequences`);
    const share = point.evidenceShare;
    if (p.servedBy !== null && share && share.attainable + share.roofline > ESTIMATED)
      add(
        'partly-estimated',
        `${Math.round((share.attainable + share.roofline) * 100)} % of the time of ${short(p)} is estimated`,
      );
    const { secondsPerStep: step } = point;
    if (
      r.tested?.mostly === 'too fast' &&
      p.servedBy !== null &&
      step &&
      1 + r.tested.medianError > step.high / step.estimate
    )
      add(
        'tested-beyond',
        `half of the figures under Tested are ${Math.round(100 * r.tested.medianError)} % off or more, too fast: ` +
          `further than the slow end of ${short(p)}`,
      );
    if (point.evidence === 'extrapolated')
      add(
        'extrapolated',
        point.octavesOutside
          ? `part of the time of ${short(p)} lies outside the sizes that were measured`
          : `the times of ${short(p)} were measured on another card with this chip`,
      );
    const [other] = kept?.others ?? [];
    if (kept && other && other.share < kept.share)
      add(
        'checkpoints-differ',
        `${short(p)} is meant with the checkpoint of ${kept.checkpoint}; its other checkpoints keep ` +
          `${percent(other.share)} (${other.scores[0]?.metric}, ${other.checkpoint})`,
      );
  }
  return risks;
}

/** Every answer is longer than this. */
const SHORT_ANSWER = 32;

/** How long answers must be so that --tpot is kept beside prompts. */
export interface AnswersBesidePrompts {
  /** Tokens of each; infinite where a step leaves no time for prompts. */
  readonly tokens: number;
  /** At the slow end of times where such an answer fits --ctx, else by the estimate. */
  readonly end: 'high' | 'estimate';
}

/**
 * Sequences wait while others' prompts are read, and each brings one of --ctx tokens an answer.
 * @param step of so many sequences
 * @returns null where a time is unknown
 */
export function answersBesidePrompts(
  { targets, contextTokens }: Pick<PlanRequest, 'targets' | 'contextTokens'>,
  sequences: number,
  step: Interval | null,
  prompt: Interval | null,
): AnswersBesidePrompts | null {
  const target = targets.secondsPerToken;
  if (target === null || !step || !prompt) return null;
  const at = (end: AnswersBesidePrompts['end']): AnswersBesidePrompts => {
    const left = target - step[end];
    return { tokens: left > 0 ? (sequences * prompt[end]) / left : Infinity, end };
  };
  const sure = at('high');
  return sure.tokens <= contextTokens ? sure : at('estimate');
}

/** The risk of what runs today beside prompts; null where every answer is long enough. */
export function promptsRisk(name: string, answers: AnswersBesidePrompts | null, contextTokens: number): Warning | null {
  if (answers === null || answers.tokens <= SHORT_ANSWER) return null;
  const { tokens, end } = answers;
  const digit = 10 ** Math.max(0, Math.floor(Math.log10(tokens)) - 1);
  const shown = Math.min(contextTokens, digit * Math.ceil(tokens / digit));
  return {
    code: 'prompts-between',
    message:
      tokens > contextTokens
        ? `beside prompts of ${formatTokens(contextTokens)} tokens no answer that fits --ctx keeps ${name} to ` +
          '--tpot: ask lla-sim simulate with your lengths'
        : `beside prompts ${name} keeps to --tpot ${end === 'high' ? '' : 'by the estimate '}where answers have ` +
          `${shown} tokens or more${end === 'high' ? '' : ', and at the slow end with none that fits --ctx'}`,
  };
}

/** The answer with the length of users' answers from which what runs today keeps to --tpot beside prompts. */
export function withPrompts(r: PlanRequest, plans: readonly Plan[], answer: Answer): Answer {
  const p = plans.find(({ id }) => id === answer.deploy?.planId);
  if (!p?.knee) return answer;
  const { batch, secondsPerStep } = p.knee;
  const answers = answersBesidePrompts(r, batch, secondsPerStep, p.prefill.secondsPerPrompt);
  const own = promptsRisk(short(p), answers, r.contextTokens);
  if (own === null) return answer;
  const [gravest, ...others] = answer.risks;
  return { ...answer, risks: present([gravest, own, ...others]) };
}

/** Whether anything is known of what a compressed cache finds again at a context; null where it is. */
export function retrievalRisk(p: Plan, contextTokens: number): string | null {
  const kept = p.qualityKept;
  if (isUncompressed(p.codec) || kept === null || kept.retrievalKnown) return null;
  return `retrieval of ${short(p)} at ${formatTokens(contextTokens)} is ${boundWords(kept)}`;
}

/** More of a served plan's time than this is worth a word when nobody has measured it. */
const ESTIMATED = 0.1;

/** What a loss at a shorter context says of this one. */
function boundWords({ scores }: QualityKept): string {
  const bound = scores.find((s) => s.atMost);
  return bound ? `at most the ${bound.value} of ${formatTokens(bound.contextTokens ?? 0)}` : 'unknown';
}

const short = (p: Plan): string => (isUncompressed(p.codec) ? planName(p) : p.codec.label);

const percent = (share: number): string => `${Math.floor(100 * share + 1e-9)} %`;
