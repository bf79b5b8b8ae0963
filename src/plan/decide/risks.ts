/** What can go wrong with the plans that an answer names, gravest first. */
import { isUncompressed, LATENT_KINDS } from '../../codecs/registry.js';
import { isEstimate } from '../../cost/evidence.js';
import { formatTokens } from '../../numbers/units.js';
import { planName } from '../words/words.js';
import type { Answer, Warning } from '../answer-types.js';
import type { Plan, PlanRequest, QualityKept } from '../types.js';

/** Below this rate a user waits for words. */
const SLOW_TOKENS_PER_SECOND = 10;

/** The risks of these plans; each once. */
export function risksOf(
  r: Pick<PlanRequest, 'contextTokens' | 'device' | 'geometry' | 'publishedAs' | 'meanLoops'>,
  plans: readonly Plan[],
): Warning[] {
  const risks: Warning[] = [];
  const add = (code: string, message: string): void => {
    if (!risks.some((w) => w.code === code && w.message === message)) risks.push({ code, message });
  };
  if (r.device.calibration?.software === true)
    add('software-adapter', `times are those of a software adapter: they say nothing about a GPU`);
  if (r.geometry.quantised?.whenLoaded)
    add(
      'weights-unknown',
      `nothing is published about ${r.geometry.name} with weights in ${r.geometry.quantised.name}`,
    );
  if (r.meanLoops !== undefined)
    add(
      'exits-early',
      'tokens leave before their last loop (--depth), and scores are those of all loops; lla-sim simulate ' +
        '--find-rate --ways says what is known of answers with it',
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
    if (kept === null)
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
    if (point.evidence === 'extrapolated')
      add('extrapolated', `part of the time of ${short(p)} lies outside the sizes that were measured`);
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

/**
 * The answer with the length of users' answers from which what runs today keeps to --tpot beside prompts. Sequences
 * wait while others' prompts are read, and each brings one of --ctx tokens an answer.
 */
export function withPrompts({ targets }: Pick<PlanRequest, 'targets'>, plans: readonly Plan[], answer: Answer): Answer {
  const p = plans.find(({ id }) => id === answer.deploy?.planId);
  const target = targets.secondsPerToken;
  const { batch, secondsPerStep: step } = p?.knee ?? { batch: 0, secondsPerStep: null };
  const prompt = p?.prefill.secondsPerPrompt;
  if (!p || target === null || !step || !prompt || step.estimate >= target) return answer;
  // At the slow end, where a step of it leaves time for prompts.
  const end = step.high < target ? 'high' : 'estimate';
  const tokens = (batch * prompt[end]) / (target - step[end]);
  if (tokens <= SHORT_ANSWER) return answer;
  const digit = 10 ** Math.max(0, Math.floor(Math.log10(tokens)) - 1);
  const own: Warning = {
    code: 'prompts-between',
    message:
      `beside prompts ${short(p)} keeps to --tpot ${end === 'high' ? '' : 'by the estimate '}where answers have ` +
      `${digit * Math.ceil(tokens / digit)} tokens or more`,
  };
  const [gravest, ...others] = answer.risks;
  return { ...answer, risks: [...(gravest ? [gravest] : []), own, ...others] };
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
