/** A report's folder: what each file holds, and writing them so that a folder is never left half old and half new. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { printable } from '../errors.js';
import type { Sources } from '../plan/answer.js';
import type { Scenario } from '../schema/settings.js';
import type { Origin } from './command-line.js';
import { htmlDocument } from './html/document.js';
import type { Html } from './html/html.js';
import { pageSources } from './page-data.js';
import { PICTURE_IDS, picturesOf } from './pictures/index.js';
import type { Picture } from './pictures/picture.js';
import { planCsv } from './plan-csv.js';
import { reportMarkdown } from './report-markdown.js';
import { cannotWrite, Replacement } from '../write.js';
import type { View } from './view.js';

/** Draws a picture as PNG; null where this machine has no canvas. */
export type Draw = ((picture: Picture) => Buffer) | null;

/**
 * The paper compared with the model, which does not depend on the question, as parts of the page and of the Markdown.
 */
export interface PaperPart {
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
  sources: Sources;
  origin: Origin;
  paper: PaperPart;
  script: string;
  draw: Draw;
}): Map<string, string | Buffer> {
  const { view, draw, paper } = input;
  const pictures = picturesOf(view);
  const data = {
    scenario: shownScenario(input.scenario),
    sources: pageSources(input.sources),
    origin: { ...input.origin, fields: shownScenario(input.origin.fields) },
    validation: view.validation,
  };
  const files = new Map<string, string | Buffer>([
    ['report.html', htmlDocument(view, pictures, data, paper.html, input.script)],
    ['report.md', `${reportMarkdown(view, pictures, draw !== null)}\n${paper.markdown}`],
    ['plans.csv', planCsv(view.report)],
    ['plans.json', `${JSON.stringify(view.report, null, 2)}\n`],
  ]);
  if (draw) for (const p of pictures) files.set(`${p.id}.png`, draw(p));
  return files;
}

/**
 * Writes a report's files: all of them or none. Pictures of an earlier report that this one does not have are removed;
 * anything else in the folder stays.
 * @throws UserError when the folder cannot be written
 */
export function writeFolder(folder: string, files: ReadonlyMap<string, string | Buffer>): void {
  const replacement = new Replacement();
  try {
    mkdirSync(folder, { recursive: true });
    for (const [name, content] of files) replacement.add(join(folder, name), content);
    replacement.commit();
    for (const name of readdirSync(folder)) {
      if (!files.has(name) && PICTURE_IDS.some((id) => name === `${id}.png`)) rmSync(join(folder, name));
    }
  } catch (error) {
    replacement.discard();
    throw cannotWrite('--output', folder, error);
  }
}
