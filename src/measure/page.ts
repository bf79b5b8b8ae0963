/// <reference lib="dom" />
/** The program of the measuring page, bundled for browsers (scripts/page-bundle.mjs). */
import type { CalibrationProgress } from '../bench/calibrate/calibrate.js';
import { callsOf } from '../bench/calibrate/lists.js';
import { UserError } from '../errors.js';
import { openBrowserDevice, type BrowserDevice } from '../gpu/browser.js';
import type { Device } from '../gpu/device.js';
import { GpuError } from '../../kernels/host/errors.js';
import { checkedBy } from '../io/issues.js';
import { parseJson } from '../io/json.js';
import { answerLines } from '../report/text/answer-text.js';
import { reportBody } from '../report/html/body.js';
import { finder, saveJson, say, showShare, takeFiles } from '../report/html/dom.js';
import { html, type Html } from '../report/html/html.js';
import { mountReport } from '../report/html/mount.js';
import type { KnownStacks } from '../report/page-data.js';
import { picturesOf } from '../report/pictures/index.js';
import { viewOf, type View } from '../report/view.js';
import { calibrationSchema, type Calibration } from '../schema/calibration.js';
import { readCalibration } from '../schema/drift.js';
import { isUncompressed } from '../codecs/registry.js';
import { readVram } from '../plan/ask/prepare.js';
import { shownDecode, timeWords } from '../plan/words/words.js';
import { describeBrowser } from './host.js';
import { planningOf } from './planning.js';
import { readRequest } from './request.js';
import { RooflineChart } from './roofline.js';
import { fitSession, measureSession } from './session.js';
import { forget, keep, kept } from './store.js';
import { checkedWords, clockWords, featureWords, gapWords, remedyFor } from './words.js';
import { Watch } from './watch.js';

const MAX_FILE_BYTES = 64 * 2 ** 20;
const MAX_VALUES = 2_000_000;
/** The picture is drawn again at most so often. */
const DRAW_EVERY_MS = 1500;

const element = finder('m-');
const form = element<HTMLFormElement>('form');
const start = element<HTMLButtonElement>('start');
const stop = element<HTMLButtonElement>('stop');
const files = JSON.parse(element('files').textContent ?? '') as KnownStacks['files'];
const host = describeBrowser();
const roofline = new RooflineChart();
const watch = new Watch();

let lent: BrowserDevice | null = null;
/** What the page has measured, or an earlier visit. */
let own: Calibration | null = null;
/** What the result shows, and the download holds. */
let shown: Calibration | null = null;
/** What is shown was measured elsewhere. */
let isFromFile = false;
let report: AbortController | null = null;

const status = (words: string, wrong?: boolean): void => say(element('status'), words, wrong);
const listItems = (words: readonly string[]): Html => html`${words.map((item) => html`<li>${item}</li>`)}`;
const fill = (id: string, content: Html): void => void (element(id).innerHTML = content.text);

function sayAdapter(): void {
  if (!lent) {
    element('name').classList.add('wrong');
    element('name').textContent =
      'There is no GPU for this page. ' +
      `${remedyFor(host.browser?.name ?? '', host.os, (navigator.gpu as GPU | undefined) !== undefined)}`;
    return;
  }
  const { device, features, limits } = lent;
  const { description, software } = device.description;
  element('name').textContent = software
    ? `${description}: a software adapter. It computes on the processor; its times say nothing about a GPU.`
    : description;
  const words = featureWords(features, limits, device.units.subgroupSizes, device.bounds.pointBytes);
  fill('features', listItems(words));
}

async function open(): Promise<Device> {
  lent = await openBrowserDevice();
  if (!lent) throw new GpuError('unsupported', 'the browser gives no GPU any more');
  return lent.device;
}

function statedMemory(): number | null {
  const value = new FormData(form).get('memory');
  const text = typeof value === 'string' ? value.trim() : '';
  return text === '' ? null : readVram(text);
}

const stated = (calibration: Calibration): Calibration => {
  const memory = statedMemory();
  return memory === null ? calibration : { ...calibration, device: { ...calibration.device, memoryBytes: memory } };
};

const pointsOf = ({ kernels }: Calibration): number => kernels.reduce((sum, k) => sum + k.samples.length, 0);

/** `4:05`: minutes and seconds. */
const clockFace = (seconds: number): string =>
  `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;

let drawn = 0;
function progress(p: CalibrationProgress, calibration: Calibration): void {
  showShare(element('bar'), Math.min(1, p.elapsedSeconds / p.budgetSeconds));
  const points = pointsOf(calibration);
  element('now').textContent =
    `${clockFace(p.secondsLeft)} left. ${points} shapes so far; now ${p.kernel} ` +
    `${p.variant}${p.gap === null ? '' : `: not measured, ${p.gap}`}`;
  if (performance.now() - drawn < DRAW_EVERY_MS) return;
  drawn = performance.now();
  element('shares').textContent = roofline.draw(calibration);
}

async function measure(): Promise<void> {
  const request = readRequest(location.hash);
  const minutes = Number(new FormData(form).get('minutes'));
  const stopped = new AbortController();
  const onStop = (): void => stopped.abort();
  stop.addEventListener('click', onStop);
  [start.disabled, stop.hidden] = [true, false];
  element('forget').hidden = true;
  element('progress').hidden = false;
  lent?.device.close();
  status('Measuring the ceilings of this GPU…');
  let says = true;
  try {
    const earlier = own;
    const measured = await measureSession({
      budgetSeconds: request.seconds ?? 60 * minutes,
      seed: request.seed ?? Date.now() % 2 ** 31,
      earlier,
      host,
      signal: stopped.signal,
      open,
      calls: (device) => request.calls(callsOf(device, null)),
      ready: () => watch.seen(),
      pausedSeconds: () => watch.pausedSeconds(),
      pauses: () => watch.pauses(),
      save: (calibration) => {
        if (own !== calibration) status('Measuring. Leave this tab in front.');
        own = calibration;
        void keep(calibration).then((could) => {
          if (!could && says) status('This browser keeps nothing for the page: leave it open until the end.');
          says &&= could;
        });
      },
      progress,
      say: (words) => status(words),
    });
    if (!measured) return status('Nothing was measured: give it more time.', true);
    own = measured;
    await fitSession(measured, (words) => void (element('now').textContent = words));
    await keep(measured);
    status('Done.');
    show(measured);
  } catch (error) {
    if (!(error instanceof GpuError)) throw error;
    status(`It ended early: ${error.message}. What was measured is kept.`, true);
  } finally {
    stop.removeEventListener('click', onStop);
    [start.disabled, stop.hidden] = [false, true];
    element('progress').hidden = true;
    offer();
  }
}

function offer(): void {
  const points = own ? pointsOf(own) : 0;
  element('forget').hidden = points === 0;
  start.textContent = points === 0 ? 'Measure' : `Go on from ${points} shapes`;
}

const fileName = ({ device }: Calibration): string =>
  `${(device.description.toLowerCase().match(/[a-z0-9]+/g) ?? ['gpu']).join('-').slice(0, 60)}.json`;

/** Takes the result from the page, and the planner with it. */
function clear(): void {
  report?.abort();
  shown = null;
  for (const id of ['result', 'progress']) element(id).hidden = true;
  for (const id of ['answer', 'facts', 'report']) element(id).replaceChildren();
  roofline.clear();
}

/** The result, and the planner with it. @param fromFile measured elsewhere */
function show(calibration: Calibration, fromFile = false): void {
  isFromFile = fromFile;
  shown = stated(calibration);
  element('result').hidden = false;
  element('file').textContent = fileName(shown);
  element('shares').textContent = roofline.draw(shown);
  const gaps = gapWords(shown);
  fill(
    'facts',
    html`<p>${checkedWords(shown)}</p><p>${clockWords(shown)}</p>${
      gaps.length === 0
        ? ''
        : html`<details><summary>What was not measured (${gaps.length} reasons)</summary>
<ul>${listItems(gaps)}</ul></details>`
    }`,
  );
  plan(shown);
}

/** What this machine does with the model as it is published. */
function fullCacheWords({ report: { plans, model, contextTokens } }: View): string {
  const full = plans.find(({ codec }) => isUncompressed(codec));
  if (!full || full.maxBatch.exact < 1)
    return `The full cache of ${model.name} does not fit this machine at ${contextTokens} tokens.`;
  const { batch, secondsPerStep } = shownDecode(full);
  const time = secondsPerStep === null ? 'nothing is known about its time' : `${timeWords(secondsPerStep)} a token`;
  return (
    `On this machine the full cache of ${model.name} holds ${full.maxBatch.exact} sequences of ` +
    `${contextTokens} tokens; with ${batch} of them, ${time}.`
  );
}

function plan(calibration: Calibration): void {
  report?.abort();
  report = new AbortController();
  try {
    const data = planningOf(readCalibration(calibration), fileName(calibration), statedMemory(), files);
    const view = viewOf(data.scenario, data.sources);
    fill('report', reportBody(view, picturesOf(view), data, []));
    mountReport(data, report.signal);
    const lines = answerLines(view.report).filter(({ label }) => label === 'Deploy' || label === 'Upside');
    fill(
      'answer',
      html`<p>${fullCacheWords(view)}</p>
${lines.map(({ label, text }) => html`<p><strong>${label}</strong> ${text}</p>`)}`,
    );
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    element('report').replaceChildren();
    element('answer').textContent =
      `To plan, say above how much memory the GPU has: ${error.message}. Then press Enter there.`;
  }
}

/** Reads a file from elsewhere: by the schema, as the command line does. */
async function openFile(file: File): Promise<void> {
  try {
    if (file.size > MAX_FILE_BYTES) throw new UserError('the file is larger than any calibration', 'choose another');
    const json = parseJson(await file.text(), 'the file', { maxValues: MAX_VALUES, hint: 'choose a calibration' });
    const subject = 'the file is not a calibration of this version';
    const calibration = checkedBy(calibrationSchema, json, subject, 'choose another');
    show(calibration, true);
    status(`This is the calibration of ${calibration.device.description}.`);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    status(`Not read: ${error.message}.`, true);
  }
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  try {
    statedMemory();
  } catch (error) {
    return status((error as Error).message, true);
  }
  const typing = document.activeElement instanceof HTMLInputElement && document.activeElement.name === 'memory';
  if (typing && shown) show(shown, isFromFile);
  else if (!start.disabled) void measure();
});
element('save').addEventListener(
  'click',
  () => shown && saveJson(`${JSON.stringify(shown, null, 1)}\n`, fileName(shown)),
);
element('forget').addEventListener('click', () => {
  own = null;
  if (!isFromFile) clear();
  void forget().then(() => status('Forgotten. The next measurement begins anew.'));
  offer();
});
takeFiles(element('drop'), element('open'), (file) => void openFile(file));
// Measurements under way are kept; a click too many should not end them.
addEventListener('beforeunload', (event) => {
  if (!stop.hidden && !readRequest(location.hash).seconds) event.preventDefault();
});

void (async () => {
  [lent, own] = await Promise.all([openBrowserDevice().catch(() => null), kept()]);
  sayAdapter();
  start.disabled = lent === null;
  offer();
  // A calibration that was finished is shown at once.
  if (own?.kernels.some((k) => Object.keys(k.predictors).length > 0)) show(own);
})();
