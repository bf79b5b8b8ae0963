/** The planner of the command line, as the page asks it: one question, or several devices, contexts and cache types. */
import type { UserError } from '../errors.js';
import type { ModelSource } from '../plan/ask/prepare.js';
import { hasSolution } from '../plan/plan.js';
import { runsOf } from '../plan/ask/runs.js';
import { sourcesFrom, type Shelf } from '../plan/ask/sources.js';
import { hostOf } from '../plan/ask/server.js';
import { nearestGroups, type JudgedGroup } from '../plan/ask/tested.js';
import { paragraph } from '../report/text/answer-text.js';
import { compareText } from '../report/text/compare-text.js';
import { fleetsWords } from '../report/text/fleet-text.js';
import { cheapestFirst } from '../report/plan-json.js';
import { fleetGist, gistOf } from '../report/gist.js';
import { noSolutionError } from '../report/no-solution.js';
import { viewOf, type View } from '../report/view.js';
import type { Scenario } from '../schema/settings.js';

/** Columns of a text. */
const WIDTH = 110;

export interface Answered {
  readonly scenario: Scenario;
  readonly view: View;
  /** Why nothing answers, and what would help; null where something does. */
  readonly failure: UserError | null;
  /** Published figures nearest to the question, which its line *Tested* counts. */
  readonly nearest: readonly JudgedGroup[];
}

/**
 * Answers each run of a scenario.
 * @param everyRow false: rows of a short table alone
 * @throws UserError for settings that cannot be
 */
export async function answersTo(
  scenario: Scenario,
  model: ModelSource | null,
  shelf: Shelf,
  everyRow: boolean,
): Promise<Answered[]> {
  const answered: Answered[] = [];
  for (const one of runsOf(scenario)) {
    const sources = await sourcesFrom(shelf, one, model);
    const view = viewOf(one, sources, null, { everyRow });
    const failed = view.fleet ? view.fleet.fleet.rows.length === 0 : !hasSolution(view.report);
    const { model: geometry, device } = view.report;
    const near = nearestGroups(sources.judged ?? [], {
      stack: sources.stack,
      server: hostOf(sources, one),
      geometry,
      device,
    });
    answered.push({
      scenario: one,
      view,
      failure: failed ? await noSolutionError([{ report: view.report, scenario: one, sources }]) : null,
      nearest: near?.groups ?? [],
    });
  }
  return answered;
}

/** Fleets in the order in which one would buy; plans as they were asked. */
export const inOrder = (answered: readonly Answered[]): readonly Answered[] =>
  answered.every(({ view }) => view.fleet) ? cheapestFirst(answered, ({ view }) => view.fleet!) : answered;

/** All answers in a few characters, as a link carries them. */
export const gistsOf = (answered: readonly Answered[]): string =>
  answered.map(({ view }) => (view.fleet ? fleetGist(view.fleet.fleet) : gistOf(view.report))).join(',');

/** Several answers side by side, as `plan` prints them; null of one, and of users, which have a table each. */
export function comparedText(answered: readonly Answered[]): string | null {
  const fleets = answered.flatMap(({ view }) => view.fleet ?? []);
  if (fleets.length > 1) {
    const best = fleetsWords(fleets);
    return best && paragraph({ label: 'Best', text: best }, WIDTH).join('\n');
  }
  const reports = answered.filter(({ view }) => !view.fleet).map(({ view }) => view.report);
  return reports.length > 1 ? compareText(reports, { width: WIDTH, colour: false }) : null;
}
