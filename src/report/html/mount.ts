/// <reference lib="dom" />
/**
 * The program of a report in a page: it draws the pictures, sorts and filters the table, and plans again when a control
 * changes, with the planner that the command line runs.
 */
import { hasSolution } from '../../plan/plan.js';
import { commandLine } from '../command-line.js';
import { fleetJson } from '../plan-json.js';
import type { PageData } from '../page-data.js';
import { picturesOf, servingPictures } from '../pictures/index.js';
import { UserError } from '../../errors.js';
import { jsonText } from '../../io/json.js';
import type { Scenario } from '../../schema/settings.js';
import type { Simulated } from '../simulation.js';
import { decidedBy, explained, ofReplica, viewOf, type View } from '../view.js';
import { asked, type ControlValues } from './controls.js';
import { drawing } from './charts.js';
import { finder, saveJson, say } from './dom.js';
import { answerSection, sectionsOf } from './sections.js';
import { filterRows, sortRows } from './table.js';

/** Typing pauses this long, milliseconds, before the page plans. */
const PAUSE = 250;

const element = finder('');

/**
 * Brings a report to life whose sections are in the document.
 * @param signal ends it: another report takes its place
 */
export function mountReport(data: PageData, signal?: AbortSignal): void {
  const until = signal ? { signal } : {};
  const form = element<HTMLFormElement>('controls');
  const charts = drawing(signal);

  // Of the report's own question, whatever the controls ask.
  const served = data.simulated?.report ? servingPictures(data.simulated.report) : [];
  /** The latest question: words that come after a newer one is asked are not shown. */
  let turn = 0;
  /** What the page saves. */
  let answered: object | null = null;

  const status = (message: string, wrong: boolean): void => say(element('status'), message, wrong);

  /** Plans the question of the controls. `first`: the file already holds the sections; only pictures are drawn. */
  function plan(first: boolean): void {
    const mine = ++turn;
    let shown: View;
    let scenario: Scenario;
    // What was simulated is of the report's own question.
    let simulated: Simulated | null;
    try {
      const values = Object.fromEntries(new FormData(form)) as ControlValues;
      const now = asked(data, values);
      scenario = now.scenario;
      const { sources, changed } = now;
      shown = viewOf(scenario, sources, data.validation);
      simulated = changed ? null : (data.simulated ?? null);
      if (simulated) shown = decidedBy(shown, simulated.chosen, simulated.report?.server ?? null);
      if (simulated?.fleet) shown = ofReplica(shown, scenario, simulated.fleet);
      element('command').textContent = (changed ? undefined : data.command) ?? commandLine(scenario);
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      status(`Not changed: ${error.message}; ${error.hint}.`, true);
      return;
    }
    answered = shown.fleet ? fleetJson([{ ...shown.fleet, simulated: simulated?.fleet ?? null }]) : shown.report;
    const pictures = [...picturesOf(shown), ...served];
    if (!first) {
      // Sections escape every value (html.ts); the page's content policy runs no other script either way.
      for (const [id, { text }] of Object.entries(sectionsOf(shown, simulated, pictures))) element(id).innerHTML = text;
      status(
        hasSolution(shown.report)
          ? `Planned anew: ${shown.report.plans.length} combinations answer.`
          : 'Planned anew: nothing answers this question.',
        false,
      );
      if (!hasSolution(shown.report)) void sayWhy(shown, scenario, mine);
    }
    sortRows(null);
    filter();
    charts.draw(pictures);
  }

  /** Why nothing answers, and what would help: more plans are made for it. */
  async function sayWhy(view: View, scenario: Scenario, mine: number): Promise<void> {
    const why = await explained(view, scenario);
    if (mine === turn) element('answer').innerHTML = answerSection(why, null).text;
  }

  function filter(): void {
    const { shown, of } = filterRows({
      find: element<HTMLInputElement>('find').value,
      kind: element<HTMLSelectElement>('kind').value,
      state: element<HTMLSelectElement>('state').value,
    });
    element('count').textContent = `${shown} of ${of} rows`;
  }

  let pause: ReturnType<typeof setTimeout> | undefined;
  const soon = (): void => {
    clearTimeout(pause);
    pause = setTimeout(() => plan(false), PAUSE);
  };
  form.addEventListener('input', soon, until);
  form.addEventListener('reset', soon, until);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    clearTimeout(pause);
    plan(false);
  });
  for (const id of ['find', 'kind', 'state']) element(id).addEventListener('input', filter);
  element('save').addEventListener('click', () => answered && saveJson(jsonText(answered), 'plans.json'));
  element('rows').addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('thead button') : null;
    if (button instanceof HTMLButtonElement) sortRows(button);
  });
  // Browsers restore what was typed: the report opens with its own question.
  form.reset();
  clearTimeout(pause);
  plan(true);
}
