/** What happens when a report's requests arrive, on its page and in its Markdown. */
import type { ServingMost } from '../plan/decide/decide.js';
import type { PlanReport } from '../plan/types.js';
import { formatNumber } from '../numbers/units.js';
import type { Run, RunFigures, SimulatedFleet, SimulationReport } from '../serving/types.js';
import { html, type Html } from './html/html.js';
import { answerLines, type AnswerLine } from './text/answer-text.js';
import { markdownText } from './plan-csv.js';
import { findingWords, knownBetween, limitWords, machineWords, targetWords, verdictWords } from './simulation-words.js';

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
  const { maxNumSeqs, maxModelLen } = served.server;
  const started =
    serve.length === 0
      ? ''
      : ` The command below starts the server that was simulated: at most ${maxNumSeqs} sequences of at most ${maxModelLen} tokens.`;
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

const HEAD = ['plan', 'metric', ...STATISTICS.map(([name]) => name)];

/** `12.3 (11–14)`: estimate, fast end and slow end. */
function cell({ low, estimate, high }: Run, key: keyof RunFigures & `${string}_ms`, unit: number): string {
  return knownBetween(low[key], estimate[key], high[key], unit);
}

const rowsOf = ({ runs }: SimulationReport): string[][] =>
  runs.flatMap((run) =>
    METRICS.map(([name, metric, unit]) => [
      run.id,
      name,
      ...STATISTICS.map(([, statistic]) => cell(run, `${statistic}_${metric}_ms`, unit)),
    ]),
  );

/** What is simulated, then a sentence for each plan. */
function sentences(r: SimulationReport): string[] {
  const { requests, requestsPerSecond: rate, label } = r.workload;
  return [
    `${requests} requests${rate === null ? '' : ` at ${formatNumber(rate)} a second`} (${label}) on ${machineWords(r)}; targets: ${targetWords(r)}.`,
    ...r.runs.map((run) => {
      const sustained = r.candidates?.find((c) => c.id === run.id)?.requestsPerSecond;
      const most = sustained
        ? sustained.estimate === 0
          ? '; it meets them at no rate'
          : `; it meets them up to ${formatNumber(sustained.estimate)} a second, at the slow end up to ${formatNumber(sustained.low)}`
        : '';
      return `${run.id} (${run.servedBy ?? 'attainable'}) ${verdictWords(run, r.targets)}${most}; ${limitWords(run)}.`;
    }),
  ];
}

const NOTE =
  'In parentheses: every iteration takes the fast, or the slow end of its interval. The same from the command line: lla-sim simulate. simulation.json has every figure.';

const left = ({ left: words }: Simulated): string[] => (words === null ? [] : [words]);

export function simulationHtml(simulated: Simulated): Html {
  const { report } = simulated;
  const paragraphs = (texts: readonly string[]): Html => html`${texts.map((t) => html`<p>${t}</p>`)}`;
  if (report === null) return paragraphs(left(simulated));
  return html`${paragraphs(sentences(report))}
<div class="scroll" role="region" aria-label="Latencies" tabindex="0"><table><thead><tr>${HEAD.map((h, i) => html`<th scope="col"${i < 2 ? '' : html` class="number"`}>${h}</th>`)}</tr></thead><tbody>${rowsOf(
    report,
  ).map(
    (
      cells,
    ) => html`<tr>${cells.map((c, i) => (i === 0 ? html`<th scope="row">${c}</th>` : html`<td${i === 1 ? '' : html` class="number"`}>${c}</td>`))}</tr>
`,
  )}</tbody></table></div>
${paragraphs([...left(simulated), `${NOTE} This part is of the report's own question: the controls do not change it.`])}`;
}

/** Begins with a heading of the second level. */
export function simulationMarkdown(simulated: Simulated): string[] {
  const { report } = simulated;
  const row = (cells: readonly string[]): string => `| ${cells.map(markdownText).join(' | ')} |`;
  const paragraphs = (texts: readonly string[]): string[] => texts.flatMap((t) => [markdownText(t), '']);
  return [
    `## ${SIMULATION_TITLE}`,
    '',
    ...(report === null
      ? paragraphs(left(simulated))
      : [
          ...paragraphs(sentences(report)),
          row(HEAD),
          `|---|---|${STATISTICS.map(() => '--:|').join('')}`,
          ...rowsOf(report).map(row),
          '',
          ...paragraphs([...left(simulated), NOTE]),
        ]),
  ];
}
