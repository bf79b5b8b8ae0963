/** The decision in words, for every printer: ten lines at 140 columns, eleven where nothing can be left out. */
import { testedText, UNTESTED } from '../../plan/ask/tested.js';
import { isUncompressed, LATENT_KINDS } from '../../codecs/registry.js';
import { isBuilt } from '../../plan/evaluate/as-published.js';
import type { Alternative, Choice } from '../../plan/answer-types.js';
import type { AsPublished, BreakEven, Plan, PlanReport, Score } from '../../plan/types.js';
import { measuredWords, shareLabel } from '../../plan/evaluate/fidelity.js';
import { guessMark, shownDecode } from '../../plan/words/words.js';
import { formatCount, formatTokens } from '../../numbers/units.js';
import { isFullCache, isRuined } from '../../plan/decide/representatives.js';
import { TWO_PASSES } from '../plan-rows.js';
import { present } from '../../present.js';
import { shareText, wrap } from './text.js';

/** One labelled paragraph of the answer. */
export interface AnswerLine {
  readonly label:
    | 'Deploy'
    | 'Best'
    | 'Enough'
    | 'Cheapest'
    | 'Fastest'
    | 'Largest'
    | 'Upside'
    | 'Estimate'
    | 'Instead'
    | 'Others'
    | 'Fails'
    | 'Serve'
    | 'Workload'
    | 'Tested'
    | 'Risk';
  readonly text: string;
}

/** A paragraph; null where there is nothing to say. */
export const answerLine = (label: AnswerLine['label'], text: string | null | undefined): AnswerLine | null =>
  text ? { label, text } : null;

const LABEL_WIDTH = 9;
/** The answer is cut to this many lines at this width; where it is narrower, the same words wrap. */
const MOST_LINES = 10;
const FULL_WIDTH = 140;

/** The plan that an answer puts first; null where nothing is recommended. */
export const chosenId = ({ answer }: PlanReport): string | null => (answer.deploy ?? answer.upside)?.planId ?? null;

/** Paragraphs of the answer, in the order in which they are read. */
export function answerLines(report: PlanReport): AnswerLine[] {
  const { answer } = report;
  const lines = (alternatives: number, risks: number, scores: number): AnswerLine[] =>
    present([
      answerLine('Deploy', deployWords(report)),
      answerLine(fallbackLabel(report), answer.fallback && fallbackWords(report, answer.fallback, scores + 1)),
      answerLine(upsideLabel(report), upsideLine(report, scores)),
      answerLine(
        'Instead',
        firstOf(answer.alternatives, alternatives, (a) => alternativeWords(report, a), '  ·  '),
      ),
      answerLine('Fails', answer.fails && failsWords(report, answer.fails)),
      answerLine('Serve', answer.serve),
      answerLine('Tested', testedWords(report)),
      answerLine(
        'Risk',
        firstOf(answer.risks, risks, (w) => w.message, '; '),
      ),
    ]);
  const fits = (list: AnswerLine[]): boolean =>
    wrap(answer.question, FULL_WIDTH, '  ').length +
      list.reduce((n, line) => n + paragraph(line, FULL_WIDTH).length, 0) <=
    MOST_LINES;
  // What matters least is left out until the answer has its number of lines.
  for (const [alternatives, risks, scores] of SHORTENED) {
    const list = lines(alternatives, risks, scores);
    if (fits(list)) return list;
  }
  return lines(0, 1, 1);
}

const firstOf = <T>(list: readonly T[], most: number, words: (one: T) => string, between: string): string =>
  list.slice(0, most).map(words).join(between);

/** How many alternatives, risks and scores are named, from all to fewest. */
const SHORTENED = [
  [3, 3, 3],
  [3, 2, 2],
  [2, 2, 1],
  [2, 1, 1],
  [1, 1, 1],
] as const;

/** The answer as lines of a terminal; the question is the first. */
export function answerText(report: PlanReport, width: number): string[] {
  return [
    ...wrap(report.answer.question, width, '  '),
    ...answerLines(report).flatMap((line) => paragraph(line, width)),
  ];
}

export function paragraph({ label, text }: AnswerLine, width: number): string[] {
  const lines = wrap(text, Math.max(20, width - LABEL_WIDTH));
  return lines.map((line, i) => `${(i === 0 ? label : '').padEnd(LABEL_WIDTH)}${line}`);
}

/** `published steps, tok/s of vLLM 0.26 on a100-80, looped models: 9 of 16 in the interval, …`. */
export function testedWords({ tested, device }: PlanReport): string | null {
  if (device.pricing === 'none' || device.stack === 'lla-sim') return null;
  return tested ? testedText(tested) : UNTESTED;
}

const rowOf = (report: PlanReport, { planId }: Choice): Plan => report.plans.find((p) => p.id === planId) as Plan;

function deployWords(report: PlanReport): string {
  const { answer } = report;
  if (answer.deploy) {
    const { servedBy } = rowOf(report, answer.deploy);
    return chosenWords(report, answer.deploy, ` on ${servedBy ?? 'kernels measured on this device'}`);
  }
  if (answer.verdict === 'estimates-only')
    return (
      `nothing with confidence: ${answer.reason}; ` +
      (report.device.pricing === 'none' ? 'only memory is counted' : 'times below are estimates')
    );
  return answer.reason === 'nothing fits' ? answer.reason : `not recommended: ${answer.reason}`;
}

/** Where no speed is known the plan that holds most is named. */
const fallbackLabel = (report: PlanReport): 'Fastest' | 'Largest' => {
  const { fallback } = report.answer;
  return fallback && shownDecode(rowOf(report, fallback)).tokensPerSecond ? 'Fastest' : 'Largest';
};

const sureSpeed = (p: Plan): number => shownDecode(p).tokensPerSecond?.low ?? 0;

/** `, rows that ruin quality and rows that forget tokens aside`: faster ones of the table, which no answer names. */
function asideWords(report: PlanReport, choice: Choice): string {
  const least = sureSpeed(rowOf(report, choice));
  const faster = report.plans.filter((p) => p.maxBatch.exact >= 1 && sureSpeed(p) > least);
  const kinds = present([
    faster.some((p) => isRuined(p)) && 'rows that ruin quality',
    faster.some((p) => p.beside && !isRuined(p)) && 'rows that forget tokens',
  ]);
  return kinds.length === 0 ? '' : `, ${kinds.join(' and ')} aside`;
}

/** `that runs today (it loses too much): lla-4x on vLLM 0.24.0: 5 fit. …`. */
function fallbackWords(report: PlanReport, choice: Choice, scores: number): string {
  const why = { kept: '', lost: ' (it loses too much)', unknown: '' }[choice.quality];
  const { servedBy } = rowOf(report, choice);
  const which = servedBy === null ? `that fits${asideWords(report, choice)}` : 'that runs today';
  return `${which}${why}: ${chosenWords(report, choice, servedBy === null ? '' : ` on ${servedBy}`, scores)}`;
}

/** `full cache on vLLM 0.24.0: 42 fit. At 29: 30 ms a token (27–34, interpolated), 33 tok/s a user, 963 tok/s …`. */
function chosenWords(report: PlanReport, choice: Choice, on = '', scores = 3): string {
  const p = rowOf(report, choice);
  const d = shownDecode(p);
  const start = `${choice.name}${on}: ${p.maxBatch.exact} fit`;
  const loss = lossWords(p, choice, scores);
  if (!d.secondsPerStep || !d.tokensPerSecond) return `${start}; its speed is not known. ${loss}`;
  const { estimate, low, high } = d.secondsPerStep;
  return (
    `${start}. At ${d.batch}: ${guessMark(d.secondsPerStep)}${milliseconds(estimate)} ms a token ` +
    `(${milliseconds(low)}–${milliseconds(high)}, ${d.evidence}), ${brief(1 / estimate)} tok/s a user, ` +
    `${brief(d.tokensPerSecond.estimate)} ` +
    `tok/s${restWords(p)}${builtWords(p)}${loss === 'No loss' ? '' : `. ${loss}`}`
  );
}

/** `lla-10.67x by block-absorbed: 451 fit. At 162: 2827 tok/s (2070–3330, attainable), 17 a user …`. */
function upsideWords(
  report: PlanReport,
  choice: Choice & { readonly breakEven: BreakEven | null },
  scores: number,
): string {
  const p = rowOf(report, choice);
  const { batch, tokensPerSecond: rate, secondsPerStep, evidence } = shownDecode(p);
  if (!rate || !secondsPerStep) return chosenWords(report, choice, '', scores);
  const { breakEven } = choice;
  const rests = evidence === 'attainable' ? ' with tuned kernels' : `, ${evidence}`;
  const beats =
    breakEven === null || breakEven.cannot
      ? ''
      : `; pays from ${Math.ceil(breakEven.estimate * 100)} % of a tuned speed`;
  return (
    `${choice.name}: ${p.maxBatch.exact} fit. At ${batch}: ${guessMark(rate)}${brief(rate.estimate)} tok/s${rests} ` +
    `(${brief(rate.low)}–${brief(rate.high)}), ${brief(1 / secondsPerStep.estimate)} a ` +
    `user${restWords(p)}${beats}${builtWords(p)}. ${lossWords(p, choice, scores)}`
  );
}

/** `7–14 % of the full cache's`: the speed that existing kernels had. */
export function hadWords({ implementations }: AsPublished): string {
  const known = implementations.filter((i) => i.ofFull !== null);
  const shares = known.map((i) => i.ofFull ?? 0);
  return `${range(Math.min(...shares), Math.max(...shares))} % of the full cache's`;
}

/**
 * `. Existing kernels: about 97 tok/s; they had 7–14 % of the full cache's (A100, vLLM 0.26; H200, paper)`:
 * what latents are as they have been built. Empty where no latents are meant.
 */
function builtWords(p: Plan): string {
  const { asPublished: a } = p;
  if (!a) return LATENT_KINDS.includes(p.codec.kind) && !isBuilt(p) ? '. Nobody has published such kernels' : '';
  const where = [...new Set(a.implementations.flatMap((i) => (i.ofFull === null ? [] : [i.where])))].join('; ');
  return `. Existing kernels: about ${brief(a.tokensPerSecond.estimate)} tok/s; they had ${hadWords(a)} (${where})`;
}

/** `7–14`, whole per cent. */
const range = (low: number, high: number): string =>
  [...new Set([low, high].map((share) => String(Math.round(share * 100))))].join('–');

/** Nothing is gained by the full cache itself: what nobody has measured of it is an estimate of what there is. */
export const upsideLabel = (report: PlanReport): 'Upside' | 'Estimate' =>
  report.answer.upside && isFullCache(rowOf(report, report.answer.upside)) ? 'Estimate' : 'Upside';

/** The upside, and what may be faster where that is no compressed cache. */
function upsideLine(report: PlanReport, scores: number): string | null {
  const { answer } = report;
  const { upside, unsure } = answer;
  const maybe = unsure && upsideWords(report, unsure, scores);
  if (upside)
    return `${upsideWords(report, upside, scores)}${maybe ? `. Faster by the estimate, not surely: ${maybe}` : ''}`;
  return maybe ? `${noUpside(report)} ${maybe}` : unknownWords(report);
}

const noUpside = ({ answer, settings: { keep } }: PlanReport): string =>
  answer.chosenBy === 'simulation'
    ? `none for this workload: of the plans that keep ${shareText(keep)} of the scores, by simulation none whose ` +
      'kernels have to be written serves more requests. By one decode step'
    : 'none is certain. By the estimate';

/** Why compression is not recommended where nobody has published what it costs this model; null elsewhere. */
function unknownWords({ answer, plans, model }: PlanReport): string | null {
  const compressed = plans.filter((p) => !isUncompressed(p.codec) && p.maxBatch.exact >= 1);
  if (!answer.deploy || compressed.length === 0 || compressed.some((p) => p.quality.length > 0 || p.measured))
    return null;
  return (
    `none is recommended: no accuracy of ${model.name}${model.quantised ? ` in ${model.quantised.name}` : ''} with ` +
    'any of these compressed caches is published'
  );
}

/** First token and price, where they are known. */
function restWords(p: Plan): string {
  const first = p.prefill.secondsToFirstToken?.estimate;
  const usd = shownDecode(p).usdPerMillionTokens;
  return [
    first === undefined ? '' : `; first token ${first >= 1 ? `${brief(first)} s` : `${milliseconds(first)} ms`}`,
    usd ? `; $${brief(usd.estimate)}/Mtok (${brief(usd.low)}–${brief(usd.high)})` : '',
  ].join('');
}

function failsWords(report: PlanReport, choice: Choice): string {
  const [worst] = choice.qualityLost;
  const p = rowOf(report, choice);
  return `${p.codec.label}: ${rate(p)}, but ${worst ? scoreWords(worst) : 'unknown'}`;
}

function alternativeWords(report: PlanReport, choice: Alternative): string {
  const p = rowOf(report, choice);
  const [worst] = choice.qualityLost;
  const loss = worst ? `, ${worst.metric} ${shareText(worst.share)}` : ', no loss';
  return (
    `${choice.kind} ${p.codec.label}: ${p.maxBatch.exact} ` +
    `fit${shownDecode(p).tokensPerSecond ? `, ${rate(p)}` : ''}${loss}`
  );
}

const rate = (p: Plan): string => {
  const { tokensPerSecond } = shownDecode(p);
  return tokensPerSecond
    ? `${guessMark(tokensPerSecond)}${brief(tokensPerSecond.estimate)} tok/s`
    : `${p.maxBatch.exact} sequences`;
};

/**
 * `Loses: math500 0.69 against 0.74 (93 %), worst of 3, with the checkpoint of Table onpolicy, on-policy; others keep
 * 87 %`.
 */
export function lossWords(
  { measured, qualityKept }: Pick<Plan, 'measured' | 'qualityKept'>,
  { quality, qualityLost, checkpoint }: Pick<Choice, 'quality' | 'qualityLost' | 'checkpoint'>,
  most = 3,
): string {
  if (measured && quality !== 'unknown') {
    const [worst] = qualityLost;
    const lost = quality === 'lost' && worst ? `; too little: ${scoreWords(worst, false)}` : '';
    return `Quality ${measuredWords(measured)}${lost}`;
  }
  if (quality === 'unknown') return 'Its quality is unknown';
  const lost = qualityLost.filter((s) => s.share < 1);
  const needs = checkpoint === null ? '' : `, with the checkpoint of ${checkpoint}${othersWords(qualityKept)}`;
  const many = qualityLost.length;
  if (lost.length === 0)
    return many === 0
      ? 'No loss'
      : many === 1
        ? `No loss in the only score: ${scoreWords(qualityLost[0]!)}${needs}`
        : `No loss in ${many} scores${needs}`;
  const shown = lost.slice(0, most);
  const of = qualityLost.length > shown.length ? `, worst of ${qualityLost.length}` : '';
  return `Loses: ${shown.map((s) => scoreWords(s, checkpoint === null)).join(', ')}${of}${needs}`;
}

const othersWords = (kept: Plan['qualityKept']): string => {
  const [worst] = kept?.others ?? [];
  return kept && worst && worst.share < kept.share ? `; others keep ${shareText(worst.share)}` : '';
};

/** `math500 0.69 against 0.74 (93 %, Table onpolicy, on-policy)`. */
export function scoreWords(score: Score, withSource = true): string {
  const { metric, contextTokens, teacher, source, twoPasses, times } = score;
  if (times) return `an error ${score.value} times that of lla (${source})`;
  const at = contextTokens === null ? '' : ` at ${formatTokens(contextTokens)} tokens`;
  return (
    `${metric}${at} ${valueWords(score)} against ${teacher} ` +
    `(${shareText(score.share)}${twoPasses ? TWO_PASSES : ''}${withSource ? `, ${source}` : ''})`
  );
}

/** `0.69`; measured here `0.92 (0.89–0.95)`. */
export const valueWords = ({ value, interval }: Score): string => (interval ? shareLabel(interval) : String(value));

/** Two significant digits, whole from 100 on; `12.4k` from ten thousand. */
export const brief = (value: number): string =>
  value >= 10_000
    ? formatCount(value)
    : value >= 100
      ? String(Math.round(value))
      : String(Number(value.toPrecision(2)));

export const milliseconds = (seconds: number): string => brief(seconds * 1e3);
