/** What happens when a report's requests arrive, on its page and in its Markdown. */
import type { ServingMost } from '../plan/decide/decide.js';
import type { PlanReport } from '../plan/types.js';
import { present } from '../present.js';
import { counted, formatNumber } from '../numbers/units.js';
import type { Run, SimulatedFleet, SimulationReport, WayRow } from '../serving/types.js';
import { html, type Html } from './html/html.js';
import { answerLines, type AnswerLine } from './text/answer-text.js';
import { htmlTable, markdownTable, markdownText } from './tables.js';
import { waysColumns, waysNote, waysShown, waysWords } from './text/ways-table.js';
import { left, right, type Column } from './text/text.js';
import {
  findingWords,
  limitWords,
  longestTokens,
  machineWords,
  shownBetween,
  isJudged,
  jobWords,
  targetWords,
  unsureWords,
  verdictWords,
} from './simulation-words.js';

export interface Simulated {
  /** The answer's plans; null where none is simulated. */
  readonly report: SimulationReport | null;
  /** What is not simulated, and why; null where all is. */
  readonly left: string | null;
  /** What the answer names by simulation; null where one decode step decides. */
  readonly chosen: ServingMost | null;
  /** How many GPUs serve the scenario's users, where it names users. */
  readonly fleet?: SimulatedFleet;
}

export const SIMULATION_TITLE = 'When requests arrive';

/** The answer on a report's first page; alternatives and risks have places of their own below. */
export function firstPage(report: PlanReport, simulated: Simulated | null): AnswerLine[] {
  const lines = answerLines(report).filter(({ label }) => label !== 'Instead' && label !== 'Risk');
  const served = simulated?.report;
  const found = served ? findingWords(served, report.settings.usdPerHour) : null;
  if (!served || found === null) return lines;
  const serve = lines.filter(({ label }) => label === 'Serve');
  const started =
    serve.length === 0
      ? ''
      : ` The command below starts the server that was simulated: at most ${served.server.maxNumSeqs} sequences ` +
        `of at most ${longestTokens(served)} tokens.`;
  return [
    ...lines.filter(({ label }) => label !== 'Serve'),
    { label: 'Workload', text: `${found}${started}` },
    ...serve,
  ];
}

/** Name with its unit, key, and milliseconds of the unit. */
const METRICS = [
  ['TTFT, ms', 'ttft', 1],
  ['TPOT, ms', 'tpot', 1],
  ['E2EL, s', 'e2el', 1000],
] as const;
const STATISTICS = [
  ['mean', 'mean'],
  ['p50', 'median'],
  ['p90', 'p90'],
  ['p99', 'p99'],
] as const;

type Row = readonly [Run, (typeof METRICS)[number]];

const COLUMNS: readonly Column<Row>[] = [
  left('plan', ([run]) => run.id),
  left('metric', ([, [name]]) => name),
  // Estimate, fast end and slow end: `12.3 (11–14)`.
  ...STATISTICS.map(([title, statistic]) =>
    right<Row>(title, ([run, [, metric, unit]]) => shownBetween(run, statistic, metric, unit)),
  ),
];

const rowsOf = ({ runs }: SimulationReport): Row[] => runs.flatMap((run) => METRICS.map((m): Row => [run, m]));

/** What is simulated, then a sentence for each plan. */
function sentences(r: SimulationReport): string[] {
  const { requests, requestsPerSecond: rate, label } = r.workload;
  const unsure = unsureWords(r);
  return [
    `${counted(requests, 'request')}${rate === null ? '' : ` at ${formatNumber(rate)} a second`} (${label}) on ` +
      `${machineWords(r)}${isJudged(r) ? `; targets: ${targetWords(r)}` : ''}.`,
    ...r.runs.map((run) => {
      const sustained = r.candidates?.find((c) => c.id === run.id)?.requestsPerSecond;
      const most = sustained
        ? sustained.estimate === 0
          ? '; it meets them at no rate'
          : `; it meets them up to ${formatNumber(sustained.estimate)} a second, at the slow end ` +
            (sustained.low === 0 ? 'at no rate' : `up to ${formatNumber(sustained.low)}`) +
            (unsure === null ? ', surely' : `; no rate is sure: ${unsure}`)
        : '';
      const by = run.servedBy ?? 'no server runs it';
      const words = present([jobWords(r, run), isJudged(r) && verdictWords(run, r) + most, limitWords(run, r)]);
      return `${run.id} (${by}): ${words.join('; ')}.`;
    }),
  ];
}

const NOTE =
  'In parentheses: every iteration takes the fast, or the slow end of its interval. simulation.json has every ' +
  'figure.';

const WAYS_TITLE = 'Early exit, speculation, compression';

/** What no row shows, what the columns mean, and what the ways rest on. */
const waysNotes = ({ notes }: SimulationReport, ways: readonly WayRow[]): string[] => [
  ...waysShown(ways).others,
  waysNote(ways),
  ...notes,
];

const leftWords = ({ left: words }: Simulated): string[] => (words === null ? [] : [words]);

export function simulationHtml(simulated: Simulated): Html {
  const { report } = simulated;
  const paragraphs = (texts: readonly string[]): Html => html`${texts.map((t) => html`<p>${t}</p>`)}`;
  if (report === null) return paragraphs(leftWords(simulated));
  const last = `${NOTE} This part is of the report's own question: the controls do not change it.`;
  return html`${paragraphs(sentences(report))}
${htmlTable('Latencies', COLUMNS, rowsOf(report))}
${
  report.ways
    ? html`<h3>${WAYS_TITLE}</h3>
${paragraphs(waysWords(report.ways))}
${htmlTable(WAYS_TITLE, waysColumns(report.ways), waysShown(report.ways).rows)}
${paragraphs(waysNotes(report, report.ways))}`
    : ''
}
${paragraphs([...leftWords(simulated), last])}`;
}

/** Begins with a heading of the second level. */
export function simulationMarkdown(simulated: Simulated): string[] {
  const { report } = simulated;
  const paragraphs = (texts: readonly string[]): string[] => texts.flatMap((t) => [markdownText(t), '']);
  const lines = [`## ${SIMULATION_TITLE}`, ''];
  if (report) lines.push(...paragraphs(sentences(report)), ...markdownTable(COLUMNS, rowsOf(report)), '');
  if (report?.ways)
    lines.push(
      ...[`### ${WAYS_TITLE}`, '', ...paragraphs(waysWords(report.ways))],
      ...[...markdownTable(waysColumns(report.ways), waysShown(report.ways).rows), ''],
      ...paragraphs(waysNotes(report, report.ways)),
    );
  return [...lines, ...paragraphs([...leftWords(simulated), ...(report ? [NOTE] : [])])];
}
