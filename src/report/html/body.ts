/** What a report's page shows, as the file carries it and as the measuring page makes it (measure/). */
import { PRESETS } from '../../geometry/presets.js';
import { commandLine } from '../command-line.js';
import type { PageData } from '../page-data.js';
import type { FixedPart } from '../folder.js';
import type { Picture } from '../pictures/picture.js';
import { simulationHtml, SIMULATION_TITLE } from '../simulation.js';
import type { View } from '../view.js';
import { controlsOf, type Control } from './controls.js';
import { html, type Html } from './html.js';
import { sectionsOf } from './sections.js';

const field = (c: Control): Html =>
  html`<label>${c.label} <small>${c.hint}</small>${
    c.choices
      ? html`<select name="${c.name}">${c.choices.map(
          ([value, name]) => html`<option value="${value}"${value === c.value ? html` selected` : ''}>${name}</option>`,
        )}</select>`
      : html`<input type="text" name="${c.name}" value="${c.value}" autocomplete="off" spellcheck="false">`
  }</label>`;

/** What a report is called. */
export const titleOf = ({ report }: View): string =>
  report.scenario.name ?? `${report.model.name} on ${report.device.name}`;

/** @param parts that the controls do not change */
export function reportBody(
  view: View,
  pictures: readonly Picture[],
  data: PageData,
  parts: readonly Omit<FixedPart, 'markdown'>[],
): Html {
  const { report } = view;
  const sections = sectionsOf(view, data.simulated ?? null, pictures);
  const kinds = [...new Set(view.all.map((e) => e.plan.codec.kind))];
  const simulation = data.simulated ? html`<a href="#simulation">${SIMULATION_TITLE}</a> ` : '';
  return html`<header class="sheet">
<h1>${titleOf(view)}</h1>
<div id="question">${sections.question}</div>
<div id="answer">${sections.answer}</div>
<div id="decision">${sections.decision}</div>
<div id="sheet">${sections.sheet}</div>
</header>
<main>
<nav aria-label="Parts of this page"><a href="#ask">Change the question</a> <a href="#table">All combinations</a>\
 <a href="#memory">Memory</a> ${simulation}<a href="#pictures">Pictures</a>\
 <a href="#doubts">Before you believe it</a>${parts.map(({ id, title }) => html` <a href="#${id}">${title}</a>`)}</nav>
${report.scenario.description === null ? '' : html`<p>${report.scenario.description}</p>`}
<h2 id="ask">Change the question</h2>
<form id="controls" aria-labelledby="ask">
<div class="fields">${controlsOf(
    data,
    PRESETS.map((p) => p.name),
  ).map(field)}</div>
<div class="row"><button type="reset">Back to the first question</button><p id="status" role="status"></p></div>
<p>The same from the command line: \
<code class="command" id="command">${data.command ?? commandLine(data.scenario)}</code></p>
<noscript><p>Without JavaScript the page shows the report's own question;\
 its pictures lie beside this file as PNG.</p></noscript>
</form>
<h2 id="table">All combinations</h2>
<div class="tools" role="group" aria-label="Filter of the table">
<label>Find <input type="search" id="find" placeholder="lla 4x" autocomplete="off"></label>
<label>Codec <select id="kind"><option value="">all</option>${kinds.map((k) => html`<option>${k}</option>`)}</select>\
</label>
<label>Show <select id="state"><option value="">everything</option><option \
value="kept"${report.removed.length > 0 && report.plans.length > 0 ? html` selected` : ''}>\
what meets the targets</option><option value="pareto">Pareto front</option></select></label>
<button type="button" id="save">Save these plans as JSON</button>
<p id="count" role="status"></p>
</div>
<div class="scroll" id="rows" role="region" aria-label="All combinations" tabindex="0">${sections.rows}</div>
<h2 id="memory">The plan and its memory</h2>
<div id="plan">${sections.plan}</div>
${
  data.simulated
    ? html`<h2 id="simulation">${SIMULATION_TITLE}</h2>
${simulationHtml(data.simulated)}
`
    : ''
}<h2 id="pictures">Pictures</h2>
<p>What is drawn solid and filled was counted or measured; what is dashed and hollow is an estimate of kernels that \
nobody has measured.</p>
<div id="figures">${sections.figures}</div>
<h2 id="doubts">Before you believe it</h2>
<div id="notes">${sections.notes}</div>
${parts.map(
  ({ id, title, html: content }) => html`<h2 id="${id}">${title}</h2>
<div id="${id}-part">${content}</div>
`,
)}</main>`;
}
