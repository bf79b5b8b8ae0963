/**
 * The planner's page as one HTML file. It uses no network: style, data and program are inside, and a content policy
 * allows exactly this style and these programs, and a worker of the first for simulations.
 */
import { gzipSync } from 'node:zlib';
import { Html, html } from '../report/html/html.js';
import { STYLE } from '../report/html/style.js';
import { scriptJson, type KnownStacks } from '../report/page-data.js';
import { pageHead } from '../report/html/page-head.js';
import { VERSION } from '../version.js';
import { planControls, servingControls } from './form.js';
import { QUESTIONS } from './questions.js';
import type { Row } from '../schema/ledger-file.js';
import type { JudgedGroup } from '../plan/ask/tested.js';
import type { StackTables } from '../stacks/serving.js';
import { PACKED, tableName, type Carried } from './shelf.js';

const OWN_STYLE = `${STYLE}
.intro{padding-top:1.5rem}.questions{display:flex;flex-wrap:wrap;gap:.5rem;margin:.8rem 0 1.2rem;padding:0;\
list-style:none}
button{padding:.35rem .9rem;border:1px solid var(--muted);border-radius:.3rem;background:var(--paper);cursor:pointer;\
text-align:left}
button:hover{border-color:var(--link)}button[disabled]{opacity:.5;cursor:default}
.fields{grid-template-columns:repeat(auto-fit,minmax(min(100%,13.5rem),1fr));align-items:start}
.field small{display:block;font-size:.78rem;line-height:1.35;color:var(--muted);margin-top:.15rem}\
.field label{margin-bottom:.1rem}
details .fields{margin-top:.6rem}
.drop{border:2px dashed var(--line);border-radius:.5rem;padding:.5rem 1rem;margin-top:.8rem}\
.drop.over{border-color:var(--link)}
.drop input[type=file]{max-width:100%}textarea{font:inherit;width:100%;min-height:4.5rem;color:inherit;\
background:var(--paper);border:1px solid var(--muted);border-radius:.3rem}
.wrong{color:var(--warn);font-weight:600}.lines{white-space:pre-wrap}
pre{overflow-x:auto;background:var(--soft);padding:.6rem;border-radius:.4rem;\
font:.82rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:.6rem 0}
.share{display:grid;grid-template-columns:1fr auto;gap:.4rem .6rem;align-items:start;margin:.8rem 0}\
.share .command{margin:0}
.unseen{position:absolute;left:-999rem}
.rows td,.rows th{white-space:nowrap}.rows td:last-child{white-space:nowrap}
.compared td{white-space:normal;min-width:12rem}.compared th{min-width:9rem}.differs td{font-weight:600}
.bar{height:.8rem;border:1px solid var(--muted);border-radius:.4rem;overflow:hidden;margin:.6rem 0}\
.bar div{height:100%;background:var(--good);width:0}
#p-pictures,#p-served{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1.2rem;\
margin-top:1rem}
#p-run+details>summary{font-weight:600}
.verdict p{max-width:100ch;margin:.3rem 0}#p-changed::first-letter{text-transform:uppercase}
@media (max-width:40rem){.share{grid-template-columns:1fr}\
.fields{grid-template-columns:repeat(auto-fit,minmax(min(100%,9rem),1fr))}.questions button{width:100%}}
@media print{#p-form,#p-first,#p-simulate,#p-every,.row,.share button{display:none}.share{display:block}\
.rows td,.rows th{white-space:normal!important}#p-pictures,#p-served{display:block}}
`;

/** What the page opens with needs these alone: they are ready before the program, all others come packed after it. */
const FIRST_DEVICE = QUESTIONS[0]?.scenario.device;

const tableElement = (
  t: StackTables,
): Html => html`<script type="application/json" id="p-${tableName(t.file)}">${new Html(scriptJson(t))}</script>
`;
const packed = (tables: readonly StackTables[]): string =>
  gzipSync(JSON.stringify(tables), { level: 9 }).toString('base64');

/**
 * @param scripts the page's programs, bundled for browsers (scripts/page-bundle.mjs)
 * @param known tables and laws
 * @param judged figures that judge
 * @param claims what claims about codecs are held against
 */
export function plannerDocument(
  { first, later }: { readonly first: string; readonly later: string },
  known: KnownStacks,
  judged: readonly JudgedGroup[],
  claims: readonly Row[],
): string {
  const isEarly = ({ file }: StackTables): boolean => file.device === FIRST_DEVICE;
  const early = known.tables.filter(isEarly);
  const late = known.tables.filter((t) => !isEarly(t));
  const carried: Carried = {
    files: known.files,
    judged,
    ready: early.map((t) => tableName(t.file)),
    packed: late.map((t) => tableName(t.file)),
  };
  const head = pageHead({
    title: 'lla-sim: plan a looped language model',
    style: OWN_STYLE,
    scripts: [first, later],
    workers: true,
  });
  return html`${head}
<body>
<a class="skip" href="#p-answer">Skip to the answer</a>
<main class="intro">
<h1>Plan a looped language model</h1>
<p>How many users a GPU serves, how fast and at what price; what compressing the cache would bring, and what it loses \
by task. Every number says what it rests on. This page is the planner of lla-sim ${VERSION}: it makes no request, and \
nothing that you give it leaves this machine.</p>
<noscript><p class="wrong">This page plans with JavaScript, which is switched off.</p></noscript>
<ul class="questions" id="p-first" aria-label="First questions">\
${QUESTIONS.map((q, i) => html`<li><button type="button" data-question="${i}">${q.title}</button></li>`)}</ul>
<form id="p-form" aria-label="The question">
${planControls()}
<div class="drop" id="p-drop">
<label for="p-file">A model of your own, or a calibration <small>drop a config.json or a file of lla-sim calibrate \
here, or choose it</small></label><input type="file" id="p-file" accept=".json,application/json">
<details><summary>Paste a config.json</summary><label for="p-paste">Its text</label>\
<textarea id="p-paste" spellcheck="false" autocomplete="off"></textarea><button type="button" id="p-take">\
Take this model</button></details>
</div>
<div class="row"><button type="submit">Plan</button> <button type="button" id="p-clear">Empty all fields</button></div>
</form>
<p id="p-status" role="status"></p>
<p id="p-changed" class="wrong" role="status" hidden></p>
<section id="p-answer" aria-label="The answer" tabindex="-1"></section>
<section id="p-take-away" aria-label="Take this answer away" hidden>
<div class="share"><code class="command" id="p-command" tabindex="0" aria-label="Command line"></code>\
<button type="button" data-copy="p-command">Copy the command line</button>
<code class="command" id="p-link" tabindex="0" aria-label="Link"></code><button type="button" data-copy="p-link">\
Copy the link</button></div>
<div class="row"><button type="button" id="p-keep">Keep this answer to compare</button>\
 <button type="button" id="p-save">Save as JSON</button></div>
</section>
<section id="p-compared" aria-label="Two settings side by side" hidden><h2>Side by side</h2><div id="p-sides"></div>\
<div class="row"><button type="button" id="p-back">Go back to the kept one</button>\
 <button type="button" id="p-drop-kept">Compare no more</button></div></section>
<div id="p-pictures"></div>
<section id="p-sheet"></section>
<section id="p-rows" hidden><h2>Combinations</h2><label id="p-every"><input type="checkbox" id="p-all">\
 every combination, not one row a codec</label><div id="p-table"></div></section>
<section id="p-ranking" hidden><h2>Which codec, and which claims hold</h2>
<p>Every codec by the users that it serves within the targets, those without published scores apart;\
 and what its authors publish of size and speed, beside what this planner says of the same.</p>
<button type="button" id="p-rank">Rank every codec</button><p id="p-ranked-status" role="status"></p>\
<div id="p-ranked"></div></section>
<section id="p-near" hidden><h2>Nearest published figures</h2><div id="p-near-rows"></div></section>
<section id="p-simulate" hidden><h2>When requests arrive</h2>
<p>The same question with requests that come, wait, share a server and go. A plan above knows of none of that.</p>
<form id="p-serving" aria-label="Requests and server">${servingControls()}
<div class="row"><button type="submit" id="p-run">Simulate</button> <button type="button" id="p-rate">\
Find the highest rate</button> <button type="button" id="p-ways">Compare early exit, speculation, compression</button>\
 <button type="button" id="p-stop" hidden>Stop</button></div>
</form>
<p id="p-served-status" role="status"></p>
<div class="bar" id="p-bar" role="progressbar" aria-label="Share of the simulation" aria-valuemin="0" \
aria-valuemax="100" hidden><div></div></div>
<div id="p-served-text"></div><div id="p-served"></div></section>
<section id="p-notes" hidden><h2>Before you believe it</h2><div id="p-note-list"></div></section>
</main>
<footer><p>lla-sim ${VERSION}. Sizes are exact for its own layout; times carry their evidence;\
 quality is what was published. A GPU of your own is measured by measure.html beside this page: drop its file above.\
</p></footer>
<script type="application/json" id="p-carried">${new Html(scriptJson(carried))}</script>
${early.map(tableElement)}<script id="p-program">${new Html(first)}</script>
<script>${new Html(later)}</script>
<script type="application/json" id="p-claims">${new Html(scriptJson(claims))}</script>
<script type="text/plain" id="p-${PACKED}">${packed(late)}</script>
</body>
</html>
`.text;
}
