/** A report's folder: what each file holds, and writing them so that a folder is never left half old and half new. */
import { existsSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { UserError, printable, show } from '../errors.js';
import { readTextFile } from '../io/files.js';
import { jsonText } from '../io/json.js';
import type { Scenario } from '../schema/settings.js';
import { commandLine } from './command-line.js';
import { htmlDocument } from './html/document.js';
import type { Html } from './html/html.js';
import { pageSources, withoutOwn, type KnownStacks } from './page-data.js';
import { PICTURE_IDS, picturesOf, servingPictures } from './pictures/index.js';
import type { Picture } from './pictures/picture.js';
import { planCsv } from './plan-csv.js';
import { fleetJson } from './plan-json.js';
import { reportMarkdown } from './report-markdown.js';
import type { Simulated } from './simulation.js';
import { Replacement, cannotWrite, makeFolder } from '../io/write.js';
import type { View } from './view.js';
import { PACKAGE_ROOT } from '../io/root.js';

const MAX_REPORT_BYTES = 2 ** 24;
const SIMULATION_FILE = 'simulation.json';
/** Files that some reports have and others have not. */
const OPTIONAL: readonly string[] = [...PICTURE_IDS.map((id) => `${id}.png`), SIMULATION_FILE];

/** Draws a picture as PNG; null where this machine has no canvas. */
export type Draw = ((picture: Picture) => Buffer) | null;

/** A part of a report that the page's controls do not change, as HTML and as Markdown. */
export interface FixedPart {
  /** Of its heading in the page. */
  readonly id: string;
  readonly title: string;
  /** Below its heading. */
  readonly html: Html;
  /** Begins with a heading of the second level. */
  readonly markdown: string;
}

/** Text of a scenario as a report may show it: one line each, nothing that a terminal would interpret. */
const shownScenario = (s: Scenario): Scenario => ({
  ...s,
  ...(s.name === undefined ? {} : { name: printable(s.name) }),
  ...(s.description === undefined ? {} : { description: printable(s.description) }),
});

/**
 * The files of a report by name: the same bytes for the same scenario, sources and version, whenever and wherever they
 * are made. They hold only the scenario's own words and the numbers.
 */
export function reportFiles(input: {
  view: View;
  scenario: Scenario;
  /** What gives the same report, where flags of `plan` alone do not. */
  command?: string | undefined;
  /** What the report is of: the scenario's file, or what was asked. */
  subject: string;
  parts: readonly FixedPart[];
  known: KnownStacks;
  script: string;
  draw: Draw;
  /** What happens when the scenario's requests arrive; null for a scenario without a workload. */
  simulated: Simulated | null;
}): Map<string, string | Buffer> {
  const { view, draw, parts, simulated } = input;
  const pictures = [...picturesOf(view), ...(simulated?.report ? servingPictures(simulated.report) : [])];
  const data = {
    scenario: shownScenario(input.scenario),
    ...(input.command === undefined ? {} : { command: input.command }),
    sources: pageSources(view.sources),
    validation: view.validation,
    known: withoutOwn(input.known, view.sources),
    ...(simulated ? { simulated } : {}),
  };
  const files = new Map<string, string | Buffer>([
    ['report.html', htmlDocument(view, pictures, data, parts, input.script)],
    [
      'report.md',
      `${reportMarkdown(view, input.command ?? commandLine(data.scenario), pictures, draw !== null, simulated)}\n` +
        `${parts.map((part) => part.markdown).join('\n')}\n${markOf(input.subject)}\n`,
    ],
    ['plans.csv', planCsv(view.report)],
    [
      'plans.json',
      jsonText(view.fleet ? fleetJson([{ ...view.fleet, simulated: simulated?.fleet ?? null }]) : view.report),
    ],
  ]);
  if (simulated?.report) files.set(SIMULATION_FILE, jsonText(simulated.report));
  if (draw) for (const p of pictures) files.set(`${p.id}.png`, draw(p));
  return files;
}

/** The last line of report.md, by which a later report knows whose folder it is. */
const markOf = (subject: string): string => `<!-- lla-sim report of ${subject.replace(/[^\w./ -]/g, '_')} -->`;

/**
 * Refuses a folder that holds something else: a report of another subject, or a report.md of another hand.
 * @throws UserError naming what is there
 */
export function refuseOthers(folder: string, subject: string): void {
  const file = join(folder, 'report.md');
  if (!existsSync(file)) return;
  const last = readTextFile(file, 'report', MAX_REPORT_BYTES).trimEnd().split('\n').at(-1) ?? '';
  if (last === markOf(subject)) return;
  const other = /^<!-- lla-sim report of (.+) -->$/.exec(last)?.[1];
  throw new UserError(
    `${show(folder)} holds ` +
      (other === undefined ? 'a report.md that is not of this version of lla-sim' : `the report of ${other}`),
    'name another folder with --output, or add --overwrite',
  );
}

/**
 * Writes a report's files: all of them or none. Pictures and the simulation of an earlier report that this one does not
 * have are removed; anything else in the folder stays.
 * @throws UserError when the folder cannot be written
 */
export function writeFolder(folder: string, files: ReadonlyMap<string, string | Buffer>): void {
  const replacement = new Replacement();
  try {
    makeFolder(folder, '--output');
    for (const [name, content] of files) replacement.add(join(folder, name), content);
    replacement.commit();
    for (const name of readdirSync(folder)) {
      if (!files.has(name) && OPTIONAL.includes(name)) rmSync(join(folder, name));
    }
  } catch (error) {
    replacement.discard();
    throw cannotWrite('--output', folder, error);
  }
}

/** @throws when the package was not built: that is a defect of the package, not of its user */
export const pageScript = (): string => readFileSync(join(PACKAGE_ROOT, 'dist/page/page.js'), 'utf8').trim();
