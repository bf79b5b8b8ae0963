/**
 * The measuring page as one HTML file. It uses no network: style, data and program are inside, and a content policy
 * allows exactly this style and this program.
 */
import { pageHead } from '../report/html/page-head.js';
import { Html, html } from '../report/html/html.js';
import { STYLE } from '../report/html/style.js';
import { scriptJson, type KnownStacks } from '../report/page-data.js';
import { VERSION } from '../version.js';

/** Minutes that a reader can give it. */
const BUDGETS = [2, 5, 10];

const budgetChoice = (minutes: number): Html => {
  const checked = minutes === 5 ? html` checked` : '';
  return html`<label><input type="radio" name="minutes" value="${minutes}"${checked}> ${minutes} minutes</label>`;
};

const OWN_STYLE = `${STYLE}
.bar{height:.8rem;border:1px solid var(--muted);border-radius:.4rem;overflow:hidden;margin:.6rem 0}
.bar div{height:100%;background:var(--good);width:0}
#m-drop{border:2px dashed var(--line);border-radius:.5rem;padding:.6rem 1rem;margin:1rem 0}
#m-drop.over{border-color:var(--link)}
.wrong{color:var(--warn);font-weight:600}
.intro{padding-top:1.5rem}
fieldset{border:0;padding:0;margin:0}fieldset label{display:inline-block;margin-right:1rem;font-weight:400}
legend{font-weight:600;font-size:.9rem}
@media print{#m-measure,#m-form,#m-drop,#m-progress,#m-save,#m-file{display:none}
#m-result,#m-adapter{break-inside:avoid}#figure-m-roofline .chart{height:8.6cm}}
`;

/**
 * @param script the page's program, bundled for browsers
 * @param files laws and servers that the planner reads
 */
export function measureDocument(script: string, files: KnownStacks['files']): string {
  return html`${pageHead({ title: 'What this GPU does with a looped model', style: OWN_STYLE, scripts: [script] })}
<body>
<a class="skip" href="#m-form">Skip to the measurement</a>
<main class="intro">
<h1>What this GPU does with a looped model</h1>
<p>This page measures the kernels of a looped language model on the GPU of this machine, and plans with what it finds:
how many users fit, and how fast each is served. Nothing leaves this machine: the page makes no request. It is lla-sim
${VERSION}.</p>
<noscript><p class="wrong">This page measures with JavaScript, which is switched off.</p></noscript>
<section id="m-adapter" aria-label="The GPU"><h2>The GPU</h2><p id="m-name">Looking for a GPU…</p><ul
id="m-features"></ul></section>
<h2 id="m-measure">Measure</h2>
<form id="m-form">
<fieldset><legend>How long</legend>${BUDGETS.map(budgetChoice)}</fieldset>
<label>Memory of the GPU <small>such as 8GB; browsers do not tell. Empty: what the catalogue says of this
GPU</small><input type="text" name="memory" autocomplete="off" spellcheck="false"></label>
<div class="row"><button type="submit" id="m-start" disabled>Measure</button> <button type="button" id="m-stop"
hidden>Stop and use what there is</button> <button type="button" id="m-forget" hidden>Forget what was
measured</button></div>
<p id="m-status" role="status"></p>
</form>
<section id="m-progress" aria-label="Progress" hidden>
<div class="bar" role="progressbar" aria-label="Share of the time" aria-valuemin="0" aria-valuemax="100"
id="m-bar"><div></div></div>
<p id="m-now"></p>
</section>
<figure id="figure-m-roofline" hidden><h3>Kernels against the ceilings</h3><div class="chart"><canvas role="img"
aria-label="Rates of the measured kernels beside the ceilings of this GPU"></canvas></div><figcaption
id="m-shares"></figcaption></figure>
<section id="m-result" hidden><h2>Result</h2><div id="m-answer"></div><div class="row"><button type="button"
id="m-save">Save the calibration</button><span id="m-file"></span></div><div id="m-facts"></div></section>
<div id="m-drop"><label>A calibration from another machine <small>drop the file here, or choose it</small><input
type="file" id="m-open" accept=".json,application/json"></label></div>
</main>
<div id="m-report"></div>
<footer><p>lla-sim ${VERSION}. Software adapters give right results and no GPU's speed. The file that is saved holds
the adapter, the browser and the system, and nothing else about this machine.</p></footer>
<script type="application/json" id="m-files">${new Html(scriptJson(files))}</script>
<script>${new Html(script)}</script>
</body>
</html>
`.text;
}
