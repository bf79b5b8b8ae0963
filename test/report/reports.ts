/** Reports made in tests: views of scenarios, and whole folders. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { paperPart } from '../../src/paper/part.js';
import { readSources } from '../../src/plan/ask.js';
import { knownStacks } from '../../src/plan/stacks.js';
import type { Sources } from '../../src/plan/answer.js';
import { reportFiles, type Draw } from '../../src/report/folder.js';
import { viewOf, type View } from '../../src/report/view.js';
import { readScenarioFile } from '../../src/schema/scenario.js';
import type { Scenario } from '../../src/schema/settings.js';
import { ROOT } from '../cli/program.js';

export const SCENARIOS = readdirSync(join(ROOT, 'scenarios'))
  .filter((n) => n.endsWith('.yaml'))
  .map((n) => n.replace(/\.yaml$/, ''))
  .sort();

export const scenarioOf = (name: string): Scenario => readScenarioFile(join(ROOT, 'scenarios', `${name}.yaml`));

export interface Made {
  readonly scenario: Scenario;
  readonly sources: Sources;
  readonly view: View;
}

export async function viewOfScenario(scenario: Scenario): Promise<Made> {
  const sources = await readSources(scenario);
  return { scenario, sources, view: viewOf(scenario, sources) };
}

/** A report's files. Without `draw` there are no PNGs, without `script` a page that only shows. */
export async function filesOf(
  scenario: Scenario,
  options: { draw?: Draw; script?: string; file?: string | null } = {},
): Promise<Map<string, string | Buffer>> {
  const made = await viewOfScenario(scenario);
  return reportFiles({
    ...made,
    paper: paperPart(made.sources),
    known: await knownStacks(),
    subject: options.file ?? 'flags',
    script: options.script ?? 'void 0',
    draw: options.draw ?? null,
  });
}

export const textOf = (files: ReadonlyMap<string, string | Buffer>, name: string): string => {
  const content = files.get(name);
  if (content === undefined) throw new Error(`no ${name} among ${[...files.keys()].join(', ')}`);
  return content.toString('utf8');
};
