/** Reports made in tests: views of scenarios, and whole folders. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { codecsPart } from '../../src/ranking/report-part.js';
import { paperPart } from '../../src/paper/part.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { knownStacks } from '../../src/plan/ask/stacks.js';
import type { Sources } from '../../src/plan/ask/prepare.js';
import { reportFiles, type Draw } from '../../src/report/folder.js';
import { simulatePlans } from '../../src/report/simulate.js';
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

const made = new Map<string, Promise<Made>>();
/** By the calibration that may price it (paperDeviceOf): nothing else of a question changes it. */
const papers = new Map<string | null, ReturnType<typeof paperPart>>();

/** Made once for each scenario. */
export function viewOfScenario(scenario: Scenario): Promise<Made> {
  const key = JSON.stringify(scenario);
  const known = made.get(key) ?? make(scenario);
  made.set(key, known);
  return known;
}

async function make(scenario: Scenario): Promise<Made> {
  const sources = await readSources(scenario);
  return { scenario, sources, view: viewOf(scenario, sources) };
}

function paperOf(sources: Sources): ReturnType<typeof paperPart> {
  const key = sources.calibration?.file ?? null;
  const part = papers.get(key) ?? paperPart(sources);
  papers.set(key, part);
  return part;
}

/** Users with a workload that is soon simulated. */
export const SERVED_USERS: Scenario = {
  device: 'h200',
  codec: ['full'],
  gpus: 1,
  users: 60,
  tpot: '25ms',
  ttft: '1s',
  workload: { promptTokens: 500, outputTokens: 50, requests: 100, think: '100ms' },
};

/** Pictures that nobody looks at. */
export const blank = (): Buffer => Buffer.from('');

type Files = ReadonlyMap<string, string | Buffer>;
interface FilesOptions {
  readonly draw?: Draw;
  readonly script?: string;
  readonly file?: string | null;
  readonly anew?: boolean;
  readonly simulate?: boolean;
  readonly command?: string | undefined;
}
const written = new Map<string, Promise<Files>>();

/**
 * A report's files, made once for each scenario and options. Without `draw` there are no PNGs, without `script` a page
 * that only shows; `anew` plans even where a test before has; `simulate` serves the requests of a scenario with a
 * workload, which takes seconds.
 */
export function filesOf(scenario: Scenario, options: FilesOptions = {}): Promise<Files> {
  if (options.anew) return makeFiles(scenario, options);
  const key = JSON.stringify([scenario, { ...options, draw: options.draw?.name ?? null }]);
  const files = written.get(key) ?? makeFiles(scenario, options);
  written.set(key, files);
  return files;
}

async function makeFiles(scenario: Scenario, options: FilesOptions): Promise<Files> {
  const { sources, ...of } = await (options.anew ? make(scenario) : viewOfScenario(scenario));
  const simulated = options.simulate && scenario.workload ? await simulatePlans(scenario, of.view) : null;
  const codecs = await codecsPart(scenario, of.view.report.contextTokens);
  return reportFiles({
    ...of,
    view: simulated?.view ?? of.view,
    parts: [codecs, paperOf(sources)].filter((part) => part !== null),
    known: await knownStacks(),
    command: options.command,
    subject: options.file ?? 'flags',
    script: options.script ?? 'void 0',
    draw: options.draw ?? null,
    simulated: simulated?.simulated ?? null,
  });
}

export const textOf = (files: Files, name: string): string => {
  const content = files.get(name);
  if (content === undefined) throw new Error(`no ${name} among ${[...files.keys()].join(', ')}`);
  return content.toString('utf8');
};
