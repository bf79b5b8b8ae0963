/** A plan report for a terminal: the answer, the table, the notes. */
import pc from 'picocolors';
import { shortName } from '../../codecs/paths.js';
import { evictionLabel } from '../../eviction/policy.js';
import { layersTimesLoops } from '../../geometry/geometry.js';
import { choicesOf } from '../../plan/decide/decide.js';
import { klLabel } from '../../plan/evaluate/fidelity.js';
import { guessMark, guessWords, pathLabel, shownDecode, timeLabel } from '../../plan/words/words.js';
import { representatives } from '../../plan/decide/representatives.js';
import type { Plan, PlanReport } from '../../plan/types.js';
import { present } from '../../present.js';
import { formatCount, formatDecimalBytes, formatNumber } from '../../numbers/units.js';
import { answerText, upsideLabel } from './answer-text.js';
import {
  asPublishedLabel,
  FIELDS,
  keepsLabel,
  kernelsLabel,
  qualityLabel,
  shortList,
  shownMetric,
  titled,
  TWO_PASSES,
  runWords,
} from '../plan-rows.js';
import { fitting, left, right, wrap, type Column } from './text.js';

/** Where the width of a terminal is not known. */
export const WIDTH = 100;
const NARROWEST = 60;

/** How a report is printed; width in columns. */
export interface TableOptions {
  readonly all: boolean;
  readonly colour: boolean;
  /** What the columns mean, and every note; else what a reader needs to act. */
  readonly notes?: boolean;
  /** Columns of the terminal; 60 at least. */
  readonly width?: number | undefined;
}

export function planTable(report: PlanReport, options: TableOptions): string {
  const c = pc.createColors(options.colour);
  const width = Math.max(NARROWEST, options.width ?? WIDTH);
  const shown = options.all ? report.plans : shortList(report);
  const [question = '', ...answer] = answerText(report, width);
  const forms = squeezes(shown, report.fidelity !== undefined).map((form) => tableColumns(report, shown, form));
  const { spec, lines: body } = fitting(forms, shown, width);
  const head = spec.map((c) => c.title);
  const marked = markOf(report);
  const printed = report.warnings.filter((w) => options.notes || w.code === 'input');
  const lines = [
    ...title(report, width).map(c.bold),
    c.bold(question),
    ...answer.map((l) => (/^(Deploy|Upside|Estimate) /.test(l) ? c.green(l) : l)),
    '',
    ...wrap(shapeLine(report), width).map(c.dim),
    '',
    ...body.map((line, i) => {
      const plan = shown[i - 1];
      if (!plan) return c.bold(line);
      if (['>', '+'].includes(marked(plan))) return c.green(line);
      return plan.maxBatch.exact < 1 ? c.dim(line) : line;
    }),
    '',
    ...wrap(legendBelow(report, shown, head, options.notes === true), width).map(c.dim),
    ...(printed.length > 0 ? [''] : []),
    ...printed.flatMap(({ message }) => wrap(`- ${message}`, width, '  ')).map(c.dim),
  ];
  return `${lines.join('\n')}\n`;
}

/** The scenario's name and description. */
function title(r: PlanReport, width: number): string[] {
  const { name, description } = r.scenario;
  const words = present([name, description]).join(': ');
  return words === '' ? [] : [...wrap(words, width), ''];
}

/** The model's shape, and what is kept for others in memory. */
function shapeLine(r: PlanReport): string {
  const m = r.model;
  // A codec that shares rows needs fewer projections; the head is about the model.
  const perGpu = r.plans.reduce((most, p) => Math.max(most, p.memory.weightsBytes), 0) || m.weightsBytes;
  const each = r.settings.gpus > 1 ? ' a GPU' : '';
  return (
    `${layersTimesLoops(m)} layers × loops, ${m.kvHeads} KV heads × ${m.headDim}; weights ` +
    `${formatDecimalBytes(perGpu)}${each}${m.quantised ? ` in ${m.quantised.name}` : ''}, ${reserveWords(r)}, cache ` +
    `${r.settings.cacheType}`
  );
}

/** What is kept of the memory, and for whom. */
function reserveWords({ plans, settings }: PlanReport): string {
  const kept = formatDecimalBytes(plans[0]?.memory.reservedBytes ?? settings.reserveBytes);
  return settings.server ? `${settings.server.server} reserves ${kept}` : `reserve ${kept}`;
}

/** `>` to deploy, `+` the upside, `*` Pareto-optimal. */
const markOf =
  ({ answer }: PlanReport) =>
  (p: Plan): string =>
    p.id === answer.deploy?.planId
      ? '>'
      : p.id === answer.upside?.planId || p.id === answer.unsure?.planId
        ? '+'
        : p.pareto
          ? '*'
          : ' ';

/**
 * How a table is shortened until it fits: names first, then these columns in turn. Codec, KV at 1M, the two batches and
 * the time stay. `interval` leaves the estimate of the time alone.
 */
const DROPPED_IN_TURN = [
  'limit',
  'path',
  '$/Mtok',
  'tuned',
  'task of keeps',
  'a user',
  'pays at',
  'kernels',
  'interval of KL',
  'interval',
  'sure',
  'published',
  'keeps',
  'tok/s',
];

interface Squeeze {
  readonly shortNames: boolean;
  readonly without: readonly string[];
}

function squeezes(shown: readonly Plan[], measured: boolean): Squeeze[] {
  // Where one codec has rows of several paths, the path tells them apart; what was measured is that of a path.
  const several = measured || representatives(shown).length < shown.length;
  const turn = several ? [...DROPPED_IN_TURN.filter((t) => t !== 'path'), 'path'] : DROPPED_IN_TURN;
  return [
    { shortNames: false, without: [] },
    ...Array.from({ length: turn.length + 1 }, (_, n) => ({ shortNames: true, without: turn.slice(0, n) })),
  ];
}

/** Columns of the table; where `shortNames`, and without some, for a narrow terminal. */
export function tableColumns(r: PlanReport, shown: readonly Plan[], { shortNames, without }: Squeeze): Column<Plan>[] {
  const mark = markOf(r);
  const each = r.settings.gpus > 1 ? '/GPU' : '';
  const timed = r.settings.targets.secondsPerToken !== null || r.settings.targets.secondsToFirstToken !== null;
  const metric = r.settings.targets.minimums.length > 0 ? shownMetric(r) : null;
  const withoutInterval = (text: string, dropped: string): string =>
    without.includes(dropped) ? (text.split(' ')[0] as string) : text;
  return present<Column<Plan>>([
    left(' ', mark),
    left('codec', (p) => codecCell(p, shortNames)),
    left('path', (p) => (shortNames ? shortName(pathLabel(p)) : pathLabel(p))),
    titled(`KV at 1M${each}`, FIELDS.kvMillion),
    right('fits', (p) => String(p.maxBatch.exact)),
    titled('run', FIELDS.run),
    right('ms/token', (p) => withoutInterval(FIELDS.time.cell(p), 'interval')),
    r.plans.some((p) => p.decode.attainable) && right('tuned', tunedLabel),
    titled('tok/s', FIELDS.rate),
    right('a user', userLabel),
    shown.some((p) => p.asPublished) && titled('published', FIELDS.published),
    timed && right('sure', sureLabel),
    r.settings.usdPerHour !== null && titled('$/Mtok', FIELDS.usd),
    r.plans.some((p) => p.decode.pricedBy) &&
      left('kernels', (p) => (shortNames ? kernelsLabel(p).replace(/ [\d.]+(?=\)?$)/, '') : kernelsLabel(p))),
    r.plans.some((p) => p.breakEven) && titled('pays at', FIELDS.paysAt),
    right('keeps', (p) => keepsLabel(p, without.includes('task of keeps'))),
    r.fidelity &&
      right(r.contextTokens <= r.fidelity.contextTokens ? 'KL here' : `KL to ${r.fidelity.contextTokens}`, (p) =>
        withoutInterval(klLabel(p.measured?.kl ?? null), 'interval of KL'),
      ),
    metric !== null && right(metric, (p) => qualityLabel(p, metric, r.contextTokens)),
    titled('limit', FIELDS.limit),
  ]).filter((c) => !without.includes(c.title));
}

/** `lla-4x`, `lla-21.33x streaming:4+1020`. */
function codecCell({ id, eviction }: Plan, short: boolean): string {
  const label = evictionLabel(eviction);
  return present([id.split('/')[0], eviction && (short ? label.replace('streaming', 'str') : label)]).join(' ');
}

/** Milliseconds a step of tuned kernels. */
const tunedLabel = (p: Plan): string => {
  const { attainable } = shownDecode(p);
  return attainable ? formatNumber(attainable.estimate * 1e3) : '–';
};

const userLabel = (p: Plan): string => {
  const time = shownDecode(p).secondsPerStep;
  return time ? `${guessMark(time)}${formatCount(1 / time.estimate)}` : '–';
};

/** Probability of the time targets together: the smallest. */
function sureLabel({ chances }: Plan): string {
  const known = present([chances.tpot, chances.ttft]);
  return known.length === 0 ? '–' : `${Math.floor(Math.min(...known) * 100)} %`;
}

/** What the mark of a guess means, where a cell has it. */
const guessLegend = (shown: readonly Plan[], head: readonly string[]): string[] =>
  guessWords([
    ...shown.map((p) => timeLabel(shownDecode(p).secondsPerStep)),
    ...(head.includes('published') ? shown.map(asPublishedLabel) : []),
  ]);

/** What the mark of a score means, where one is shown. */
const twoPassWords = ({ answer }: PlanReport, shown: readonly Plan[]): string[] =>
  [...shown.map((p) => p.qualityKept), ...choicesOf(answer).flatMap((c) => c.qualityLost)].some((s) => s?.twoPasses)
    ? [
        `${TWO_PASSES}: scored by a decoder that kept a full-width cache and ran every token twice, not on the ` +
          'compressed cache whose time is given.',
      ]
    : [];

/** What a table says, with `--notes` of all its columns, and where the rest is said. */
function legendBelow(r: PlanReport, shown: readonly Plan[], head: readonly string[], notes: boolean): string {
  const hidden = r.plans.length - shown.length;
  const rest = hidden > 0 ? `--all adds ${hidden} rows` : null;
  if (notes) return present([legend(r, shown, head), rest && `${rest}.`]).join(' ');
  const more = r.warnings.filter((w) => w.code !== 'input').length;
  const explains = `--notes explains the columns${more > 0 ? ` and has ${more} more notes` : ''}`;
  return `${actLegend(r, shown, head)} ${present([explains, rest]).join('; ')}.`;
}

const markWords = (r: PlanReport): string => `> deploy, + ${upsideLabel(r).toLowerCase()}, * Pareto-optimal`;

/** What a reader needs to act on the table. @param head titles of its columns */
const actLegend = (r: PlanReport, shown: readonly Plan[], head: readonly string[]): string =>
  present([
    `${markWords(r)} in batch, speed and quality.`,
    head.includes('published') && 'published: tok/s with kernels of latents as fast as those that exist.',
    head.includes('keeps') &&
      `keeps: worst score; below ${Math.round(r.settings.keep * 100)} % nothing is recommended.`,
    ...guessLegend(shown, head),
    ...twoPassWords(r, shown),
  ]).join(' ');

/** What the columns say, of those that are shown. */
export function legend(r: PlanReport, shown: readonly Plan[], head: readonly string[]): string {
  const has = (title: string): boolean => head.includes(title);
  const kernels = new Set(shown.map(kernelsLabel));
  const share = `${Math.round(r.settings.keep * 100)} %`;
  return present([
    `${markWords(r)} in batch, speed and quality. fits: most sequences. run: ${runWords(r)}; ` +
      'all times are at this batch, with their 90 % interval. a user: tok/s of each.',
    ...guessLegend(shown, head),
    has('tuned') &&
      'tuned: ms/token of tuned kernels; a row far above it has slow kernels, which is no fault of the codec.',
    has('sure') && 'sure: probability that the time targets are met.',
    has('kernels') &&
      kernels.has('attainable') &&
      'attainable: nobody has measured such kernels; the time is what tuned ones reach.',
    has('kernels') &&
      [...kernels].some((k) => k.startsWith('(')) &&
      'In parentheses: kernels of a stack that does not run this plan.',
    has('published') &&
      'published: tok/s at the share of a tuned speed that published kernels of latents reached (none: nobody ' +
        'has built such); the path may be another.',
    has('pays at') &&
      'pays at: faster than the full cache only if its kernels reach at least this share of the speed of tuned ones.',
    has('keeps') &&
      (r.fidelity
        ? 'keeps: worst score measured here (top-1: same most likely next token as the uncompressed model; ' +
          `passkey, recall, sums; low end of its interval) as a share of the uncompressed model's; below ` +
          `${share} nothing is recommended.`
        : `keeps: worst published score of one checkpoint as a share of the uncompressed model's; others: the ` +
          `worst of the codec's other checkpoints; below ${share} nothing is ` +
          'recommended.' +
          (shown.some((p) => p.qualityKept?.times)
            ? ' Lost (20 × the error): its published error is 20 times that of lla at the same size, and no ' +
              'score is known.'
            : '')),
    ...twoPassWords(r, shown),
    has('KL here') &&
      `KL here: measured on this model, nats a token, on sequences of up to ${r.fidelity?.contextTokens ?? 0} ` +
        'tokens.',
    has('limit') && 'limit: what the largest batch is limited by.',
  ]).join(' ');
}
