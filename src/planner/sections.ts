/** What the page shows of an answer: the words and the tables of `plan`, in HTML. */
import { isUncompressed } from '../codecs/registry.js';
import { testedText, type JudgedFigure, type JudgedGroup } from '../plan/ask/tested.js';
import type { Plan } from '../plan/types.js';
import { shownDecode, timeWords } from '../plan/words/words.js';
import { brief, chosenId, upsideLabel } from '../report/text/answer-text.js';
import type { FleetRow } from '../plan/decide/fleet.js';
import { fleetColumns, shownRows } from '../report/text/fleet-table.js';
import { fleetLegend } from '../report/text/fleet-text.js';
import { html, type Html } from '../report/html/html.js';
import { answerSection, questionSection, sheetSection } from '../report/html/sections.js';
import { keepsLabel, kernelsLabel, rateLabel, shortList } from '../report/plan-rows.js';
import { legend, tableColumns } from '../report/text/plan-table.js';
import { qualityByTask } from '../report/pictures/quality-by-task.js';
import type { Picture } from '../report/pictures/picture.js';
import { usersAgainstSpeed } from '../report/pictures/users-against-speed.js';
import { numberClass } from '../report/tables.js';
import { left, right, type Column } from '../report/text/text.js';
import { commandLine } from '../report/command-line.js';
import { formatError } from '../numbers/units.js';
import type { Answered } from './answer.js';

/** The question, and the answer in paragraphs. */
export const answerHtml = ({ view, failure }: Answered): Html =>
  html`<div class="asked">${questionSection(view, null)}</div>${
    failure === null
      ? answerSection(view, null)
      : html`<div class="verdict not-recommended"><p class="lines">${failure.message}; ${failure.hint}</p></div>`
  }`;

/** Numbers, losses by task, risks and checks of one answer. */
export const sheetHtml = ({ view, failure }: Answered): Html => (failure === null ? sheetSection(view, null) : html``);

/** Pictures of one answer: users against speed, and quality by task. */
export const picturesOfAnswer = ({ view, failure }: Answered): Picture[] =>
  failure === null ? [usersAgainstSpeed(view), qualityByTask(view)].filter((p) => p !== null) : [];

function columnsHtml<T>(
  label: string,
  spec: readonly Column<T>[],
  rows: readonly T[],
  classOf: (row: T) => string,
): Html {
  const title = (c: Column<T>): Html | string => (c.title === ' ' ? html`<span class="unseen">mark</span>` : c.title);
  const cell = (c: Column<T>, row: T): Html =>
    c.title === 'codec' ? html`<th scope="row">${c.cell(row)}</th>` : html`<td${numberClass(c)}>${c.cell(row)}</td>`;
  const head = spec.map((c) => html`<th scope="col"${numberClass(c)}>${title(c)}</th>`);
  const body = rows.map(
    (row) => html`<tr class="${classOf(row)}">${spec.map((c) => cell(c, row))}</tr>
`,
  );
  return html`<div class="scroll" role="region" aria-label="${label}" tabindex="0">\
<table class="rows"><thead><tr>${head}</tr></thead>
<tbody>${body}</tbody></table></div>`;
}

/** The table of `plan`. @param all every combination that answers, not one row a codec */
export function tableHtml({ view }: Answered, all: boolean): Html {
  const { report, fleet } = view;
  if (fleet) {
    const { fleet: own } = fleet;
    const classOf = (row: FleetRow): string => (row === own.deploy ? 'recommended' : '');
    const table = columnsHtml('GPUs by codec', fleetColumns(own), shownRows(own), classOf);
    return html`${table}<p class="units">${fleetLegend(own, report)}</p>`;
  }
  const shown = all ? report.plans : shortList(report);
  if (shown.length === 0) return html`<p>No combination is left.</p>`;
  const spec = tableColumns(report, shown, { shortNames: false, without: [] });
  const chosen = chosenId(report);
  const classOf = (p: Plan): string =>
    `${p.id === chosen ? 'recommended' : ''}${p.maxBatch.exact < 1 ? ' empty' : ''}`.trim();
  return html`${columnsHtml('Combinations', spec, shown, classOf)}<p class="units">${legend(
    report,
    shown,
    spec.map((c) => c.title),
  )}</p>`;
}

/** A published figure beside its prediction, with the server and the GPU of its group. */
type NearRow = JudgedFigure & Pick<JudgedGroup, 'server' | 'version' | 'device'>;

const NEAR_COLUMNS: readonly Column<NearRow>[] = [
  left('source', (r) => `${r.source}: ${r.id}`),
  left('GPU', (r) => r.device),
  left('server', (r) => (r.version === null ? r.server : `${r.server} ${r.version}`)),
  left('model', (r) => r.model),
  left('figure', (r) => r.kind),
  right('error', (r) => formatError(r.error)),
  left('inside', (r) => (r.inside ? 'yes' : 'no')),
];
/** More are counted. */
const MOST_NEAR = 24;

/** Published figures nearest to the question, those of its model first. */
export function nearHtml({ view, nearest }: Answered): Html {
  const { tested, model } = view.report;
  const rows = nearest
    .flatMap(({ server, version, device, figures }) => figures.map((f): NearRow => ({ ...f, server, version, device })))
    .sort((a, b) => Number(b.model === model.name) - Number(a.model === model.name));
  if (tested === null || rows.length === 0)
    return html`<p>No published figure of these kernels judges this answer. \
<code>lla-sim accuracy</code> has those of others.</p>`;
  const hidden = rows.length - MOST_NEAR;
  const table = columnsHtml('Nearest published figures', NEAR_COLUMNS, rows.slice(0, MOST_NEAR), () => '');
  const more = html`<p class="units">${hidden} more: <code>lla-sim accuracy --format csv</code> has all.</p>`;
  return html`<p class="units">${testedText(tested)}. \
error: predicted / measured − 1. inside: in the 90 % interval of the prediction.</p>\
${table}${hidden > 0 ? more : ''}`;
}

export const notesHtml = ({ view }: Answered): Html =>
  html`<ul>${view.report.warnings.map(({ message }) => html`<li>${message}</li>`)}</ul>`;

/** What two answers are compared by; of users the GPUs, else the plans that the answers put first. */
function figuresOf({ view, failure }: Answered): readonly (readonly [string, string])[] {
  if (failure !== null) return [['answer', failure.message.split('\n')[0] as string]];
  const { report, fleet } = view;
  const row = fleet && (fleet.fleet.deploy ?? fleet.fleet.upside ?? fleet.fleet.cheapest);
  if (fleet)
    return row
      ? [
          ['plan', `${row.name}${row.servedBy ? ` on ${row.servedBy}` : ''}`],
          ['GPUs', `${row.gpus}: ${row.replicas} × ${row.tensorParallel}`],
          ['users of a replica', `${row.usersPerReplica} of at most ${row.mostUsersPerReplica}`],
          ['time a token', row.secondsPerStep ? timeWords(row.secondsPerStep) : '–'],
          ['$ an hour', row.usdPerHour === null ? '–' : brief(row.usdPerHour)],
        ]
      : [['answer', 'nothing serves these users']];
  const planRows = (name: string, id: string | undefined): (readonly [string, string])[] => {
    const p = report.plans.find((plan) => plan.id === id);
    if (!p) return [[name, 'none']];
    const d = shownDecode(p);
    const usd = d.usdPerMillionTokens;
    return [
      [name, `${isUncompressed(p.codec) ? 'full cache' : p.id.split('/').join(' by ')}, ${kernelsLabel(p)}`],
      [`${name}: fits, run`, `${p.maxBatch.exact}, ${d.batch}`],
      [`${name}: time a token`, d.secondsPerStep ? timeWords(d.secondsPerStep) : '–'],
      [`${name}: tok/s`, rateLabel(d)],
      [`${name}: $ per M tokens`, usd ? `${brief(usd.estimate)} (${brief(usd.low)}–${brief(usd.high)})` : '–'],
      [`${name}: keeps`, keepsLabel(p)],
    ];
  };
  const { deploy, fallback, upside } = report.answer;
  return [...planRows('Deploy', (deploy ?? fallback)?.planId), ...planRows(upsideLabel(report), upside?.planId)];
}

/** Of several answers each figure is prefixed with its question. */
const namedFigures = (a: Answered, several: boolean): (readonly [string, string])[] =>
  figuresOf(a).map(([name, value]) => [several ? `${a.view.report.answer.question}: ${name}` : name, value]);

export function compareHtml(kept: readonly Answered[], now: readonly Answered[]): Html {
  const sides = [kept, now].filter((of) => of.length > 0);
  const figures = sides.map((of) => new Map(of.flatMap((a) => namedFigures(a, of.length > 1))));
  const names = [...new Set(figures.flatMap((f) => [...f.keys()]))];
  const asked = sides.map(
    (of) => html`<td>${of.map(({ scenario }) => html`<code>${commandLine(scenario)}</code> `)}</td>`,
  );
  return html`<div class="scroll" role="region" aria-label="Two settings side by side" tabindex="0">\
<table class="compared"><thead><tr><th scope="col"></th><th scope="col">kept</th><th scope="col">now</th></tr></thead>
<tbody><tr><th scope="row">asked</th>${asked}</tr>
${names.map((name) => {
  const cells = figures.map((f) => f.get(name) ?? '–');
  const differs = cells[0] === cells[1] ? '' : html` class="differs"`;
  return html`<tr${differs}><th scope="row">${name}</th>${cells.map((c) => html`<td>${c}</td>`)}</tr>
`;
})}</tbody></table></div>`;
}
