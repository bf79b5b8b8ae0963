/// <reference lib="dom" />
/** The page: what its controls ask is planned, shown, and kept in the address. */
import { UserError } from '../errors.js';
import { jsonText } from '../io/json.js';
import type { ModelSource } from '../plan/ask/prepare.js';
import type { NamedCalibration } from '../plan/ask/measured.js';
import { commandLine, shellWord } from '../report/command-line.js';
import { fleetJson, plansJson } from '../report/plan-json.js';
import { changedWords } from '../report/gist.js';
import { questionWords } from '../report/text/fleet-text.js';
import { saveJson, say, takeFiles } from '../report/html/dom.js';
import { html } from '../report/html/html.js';
import { addressOf, isLink, linkedModel, linkOf, readLink, type LinkedModel } from '../report/link.js';
import type { Scenario } from '../schema/settings.js';
import { answersTo, comparedText, gistsOf, inOrder, type Answered } from './answer.js';
import { drawingLater, element, fill, later, showFigures, whole } from './dom.js';
import { scenarioOf, SEVERAL, valuesOf } from './form.js';
import { QUESTIONS } from './questions.js';
import { mountRanking } from './ranking.js';
import { answerHtml, compareHtml, nearHtml, notesHtml, picturesOfAnswer, sheetHtml, tableHtml } from './sections.js';
import { mountServing } from './serving.js';
import { shelfOf, type Carried } from './shelf.js';

/** Typing pauses this long, milliseconds, before the page plans. */
const PAUSE = 200;

interface Kept {
  readonly link: string | null;
  readonly answered: readonly Answered[];
}

const controls = (): (HTMLInputElement | HTMLSelectElement)[] => [
  ...document.querySelectorAll<HTMLInputElement | HTMLSelectElement>('form [name]'),
];

export function mountPlanner(): void {
  const carried = JSON.parse(element('carried').textContent ?? '') as Carried;
  const charts = drawingLater('pictures');
  let model: LinkedModel | null = null;
  let held: NamedCalibration | null = null;
  let words: Pick<Scenario, 'name' | 'description'> = {};
  let answered: readonly Answered[] = [];
  let link: string | null = null;
  let kept: Kept | null = null;
  /** While several devices are typed, the list that the text field replaces. */
  let typed: { readonly select: HTMLSelectElement; readonly input: HTMLInputElement } | null = null;
  /** The latest question: an answer that comes after a newer one is asked is not shown. */
  let turn = 0;
  const shelf = shelfOf(
    carried,
    () => held,
    (id) => element(id).textContent ?? '',
    whole,
  );

  const status = (text: string, wrong?: boolean): void => say(element('status'), text, wrong);

  /** Shows a value in its control; a choice that the control lacks is added to it. */
  function show(key: string, value: string): void {
    const control = controls().find((c) => c.name === key);
    if (!control) return;
    if (control instanceof HTMLSelectElement && value !== '' && ![...control.options].some((o) => o.value === value))
      control.add(new Option(value, value), 1);
    control.value = value;
  }

  const values = (): Record<string, string> => Object.fromEntries(controls().map((c) => [c.name, c.value]));

  function asked(): Scenario {
    const now = scenarioOf(values(), words);
    return held ? { ...now, calibration: held.file } : now;
  }

  /** The model of the question, where it is no preset. */
  const given = (scenario: Scenario): LinkedModel | null => (model && scenario.model === model.name ? model : null);
  const sourceOf = (own: LinkedModel | null): ModelSource | null => own && linkedModel({ model: own });

  /** Plans what the controls ask. @param before what a link was answered */
  async function plan(before: { was: string | null; version: string } | null = null): Promise<void> {
    const mine = ++turn;
    try {
      const scenario = asked();
      const own = given(scenario);
      const everyRow = element<HTMLInputElement>('all').checked;
      const now = await answersTo(scenario, sourceOf(own), shelf, everyRow);
      if (mine !== turn) return;
      answered = now;
      clearRanking();
      clearServed();
      element('changed').hidden = true;
      const changed = before && changedWords(before, gistsOf(now));
      if (changed) {
        element('changed').textContent = changed;
        element('changed').hidden = false;
      }
      keepInAddress(scenario, own);
      renderAnswer(scenario, own, everyRow);
      showStale(false);
      status('');
      // The words first, then pictures: a table takes longer.
      await new Promise((resolve) => setTimeout(resolve));
      if (mine !== turn) return;
      await renderPictures();
      if (mine === turn) renderRest(everyRow);
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      if (mine === turn) {
        showStale(true);
        status(`Not planned: ${error.message}; ${error.hint}.`, true);
      }
    }
  }

  /** Fades the answer of an earlier question. */
  function showStale(is: boolean): void {
    for (const id of ['answer', 'sheet', 'table']) element(id).classList.toggle('stale', is);
    element('take-away').hidden = is || answered.length === 0;
  }

  /** The command that asks the same. A model that was dropped is in the link; else its file has to be named. */
  function commandOf(scenario: Scenario, own: LinkedModel | null, verb: 'plan' | 'simulate'): string {
    const flags = verb === 'simulate' || (scenario.workload === undefined && scenario.server === undefined);
    if (flags && own === null) return commandLine(scenario, verb);
    try {
      const address = shellWord(addressOf(linkOf(scenario, own, null)));
      return `lla-sim ${verb === 'simulate' ? verb : 'open'} ${address}`;
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      return commandLine(own ? { ...scenario, model: './config.json' } : scenario, verb);
    }
  }

  /** The question in the address, so that it can be kept, sent and opened again. */
  function keepInAddress(scenario: Scenario, own: LinkedModel | null): void {
    try {
      link = linkOf(scenario, own, gistsOf(answered));
      history.replaceState(null, '', `#${link}`);
      element('link').textContent = location.href;
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      link = null;
      element('link').textContent = `No link: ${error.message}.`;
    }
  }

  function renderAnswer(scenario: Scenario, own: LinkedModel | null, everyRow: boolean): void {
    const shown = inOrder(answered);
    const several = comparedText(shown);
    fill(
      'answer',
      html`${
        several === null
          ? ''
          : html`<div class="scroll" role="region" aria-label="Side by side" tabindex="0">\
<pre>${several}</pre></div>`
      }${
        answered.length === 1
          ? answerHtml(answered[0]!)
          : shown.map(
              (a, i) =>
                html`<details${i === 0 && a.view.fleet ? html` open` : ''}><summary>${questionWords(a.view)}</summary>\
${answerHtml(a)}${tableHtml(a, everyRow)}${notesHtml(a)}</details>`,
            )
      }${
        scenario.users !== undefined && scenario.workload !== undefined
          ? html`<p class="units">On the command line these requests are simulated on the replicas, too, \
and may ask for more of them.</p>`
          : ''
      }`,
    );
    for (const id of ['take-away', 'simulate']) element(id).hidden = false;
    element('command').textContent = commandOf(scenario, own, 'plan');
  }

  const single = (): Answered | undefined => (answered.length === 1 ? answered[0] : undefined);

  function renderPictures(): Promise<void> {
    const first = single();
    const pictures = first ? picturesOfAnswer(first) : [];
    showFigures('pictures', pictures);
    return charts.draw(pictures);
  }

  function renderRest(everyRow: boolean): void {
    const first = single();
    fill('sheet', first && !first.view.fleet ? sheetHtml(first) : html``);
    element('rows').hidden = !first;
    element('every').hidden = first?.view.fleet !== null;
    fill('table', first ? tableHtml(first, everyRow) : html``);
    element('near').hidden = !first;
    element('ranking').hidden = answered.some(({ view }) => view.fleet !== null);
    fill('near-rows', first ? nearHtml(first) : html``);
    element('notes').hidden = !first;
    fill('note-list', first ? notesHtml(first) : html``);
    compare();
  }

  function compare(): void {
    element('compared').hidden = kept === null;
    if (kept) fill('sides', compareHtml(kept.answered, answered));
  }

  function ask(scenario: Scenario, own: LinkedModel | null): void {
    if (typed) typed.input.replaceWith(typed.select);
    typed = null;
    model = own;
    held = null;
    words = {
      ...(scenario.name === undefined ? {} : { name: scenario.name }),
      ...(scenario.description === undefined ? {} : { description: scenario.description }),
    };
    const shown = valuesOf(scenario);
    for (const { name } of controls()) show(name, shown[name] ?? '');
  }

  /** Opens the question of a link. @returns whether there is one */
  function open(fragment: string): boolean {
    if (!isLink(fragment)) return false;
    try {
      const read = readLink(fragment);
      linkedModel(read);
      ask(read.scenario, read.model);
      void plan(read);
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      status(`The link cannot be opened: ${error.message}; ${error.hint}.`, true);
    }
    return true;
  }

  async function take(text: string, name: string): Promise<void> {
    try {
      // With the schema of calibrations, which takes longer to load than an answer.
      await later();
      const { readDropped } = await import('./files.js');
      const dropped = readDropped(text, name);
      if (dropped.kind === 'model') {
        model = dropped.model;
        show('model', model.name);
      } else {
        held = dropped.calibration;
        // The device is the one that was measured, and so are the kernels.
        for (const key of ['device', 'stack']) show(key, '');
      }
      await plan();
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      status(`Not read: ${error.message}; ${error.hint}.`, true);
    }
  }

  let pause: ReturnType<typeof setTimeout> | undefined;
  const form = element<HTMLFormElement>('form');
  const now = (): void => {
    clearTimeout(pause);
    void plan();
  };
  form.addEventListener('input', (event) => {
    clearTimeout(pause);
    const { target } = event;
    if (target instanceof HTMLSelectElement && target.value === SEVERAL) return typeSeveral(target);
    if (target instanceof HTMLSelectElement && target.name === 'device') held = null;
    if (!(target instanceof HTMLElement) || !target.hasAttribute('name')) return;
    if (target instanceof HTMLSelectElement) now();
    else pause = setTimeout(now, PAUSE);
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    now();
  });
  element('clear').addEventListener('click', () => {
    ask({}, null);
    now();
  });
  element('all').addEventListener('input', now);
  element('first').addEventListener('click', ({ target }) => {
    const button = target instanceof Element ? target.closest<HTMLElement>('[data-question]') : null;
    const question = QUESTIONS[Number(button?.dataset['question'])];
    if (!button || !question) return;
    ask(question.scenario, null);
    // On a small screen the answer is below all controls.
    void plan().then(() => element('answer').scrollIntoView({ block: 'nearest' }));
  });
  element('keep').addEventListener('click', () => {
    kept = { link, answered };
    compare();
    status('Kept. Change a setting: both stand side by side.');
  });
  element('drop-kept').addEventListener('click', () => {
    kept = null;
    compare();
  });
  element('back').addEventListener('click', () => {
    const back = kept?.link;
    if (back) open(`#${back}`);
  });
  element('save').addEventListener('click', () => void save());
  for (const button of document.querySelectorAll<HTMLButtonElement>('[data-copy]'))
    button.addEventListener('click', () => void copy(button));

  async function save(): Promise<void> {
    try {
      await saveAll(asked());
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      status(`Not saved: ${error.message}; ${error.hint}.`, true);
    }
  }

  async function saveAll(scenario: Scenario): Promise<void> {
    const whole = inOrder(await answersTo(scenario, sourceOf(given(scenario)), shelf, true));
    const fleets = whole.flatMap(({ view }) => view.fleet ?? []);
    const content = fleets.length > 0 ? fleetJson(fleets) : plansJson(whole.map(({ view }) => view.report));
    saveJson(jsonText(content), 'plan.json');
  }

  async function copy(button: HTMLButtonElement): Promise<void> {
    const text = document.getElementById(button.dataset['copy'] ?? '')?.textContent ?? '';
    try {
      await navigator.clipboard.writeText(text);
      status('Copied.');
    } catch {
      // Without leave to write, the text is marked for the reader's own copy.
      getSelection()?.selectAllChildren(document.getElementById(button.dataset['copy'] ?? '') as HTMLElement);
      status('Marked: copy it with Ctrl+C.');
    }
  }

  function typeSeveral(select: HTMLSelectElement): void {
    const input = document.createElement('input');
    [input.type, input.name, input.id, input.placeholder] = ['text', select.name, select.id, 'h100,h200'];
    select.replaceWith(input);
    typed = { select, input };
    input.focus();
  }

  element('take').addEventListener(
    'click',
    () => void take(element<HTMLTextAreaElement>('paste').value, 'config.json'),
  );
  takeFiles(element('drop'), element('file'), (file) => void file.text().then((text) => take(text, file.name)));
  const source = (scenario: Scenario): ModelSource | null => sourceOf(given(scenario));
  const clearServed = mountServing({
    asked,
    source,
    shelf,
    command: (scenario) => commandOf(scenario, given(scenario), 'simulate'),
    // What only the simulation asks is in the link, too.
    begins: () => keepInAddress(asked(), given(asked())),
  });
  const clearRanking = mountRanking({ asked, source, link: () => link, shelf });
  addEventListener('hashchange', () => {
    // A link within the page: the question stays in the address.
    if (!open(location.hash) && link !== null) history.replaceState(null, '', `#${link}`);
  });
  if (!open(location.hash)) {
    ask((QUESTIONS[0] as (typeof QUESTIONS)[number]).scenario, null);
    void plan();
  }
}
