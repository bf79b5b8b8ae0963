/** `lla-sim report`: a plan as a folder that people can read, keep and send. */
import { basename } from 'node:path';
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { present } from '../present.js';
import { displayPath } from '../io/files.js';
import { readSources } from '../plan/ask/on-disk.js';
import type { Scenario } from '../schema/settings.js';
import { hasSolution } from '../plan/plan.js';
import { knownStacks } from '../plan/ask/stacks.js';
import { option, toggle, type Args, type Command } from './command.js';
import { noSolutionError } from '../report/no-solution.js';
import { inFileWords, readScenario, singleOptions } from './plan.js';
import { ProgressLine, say } from './output.js';
import type { Draw } from '../report/folder.js';

export const command: Command = {
  positional: { name: 'scenario', help: 'scenario file (YAML); flags override its fields' },
  options: {
    ...singleOptions,
    validation: option('JSON of lla-sim validate: adds the picture of predicted against measured', 'Measurements'),
    claims: option("JSON of lla-sim fidelity --claims: adds the paper's claims as tried on that model", 'Measurements'),
    output: option('folder to write to [reports/NAME of the scenario file]', 'Output', { short: 'o' }),
    overwrite: toggle('replace a report of another scenario in that folder', 'Output'),
  },
  shown: ['model', 'ctx', 'device', 'gpus', 'tpot', 'min', 'usd-per-hour', 'codec', 'ratio', 'output', 'overwrite'],
  examples: [
    [
      'report scenarios/chat-h200.yaml -o reports/chat-h200',
      'report.html, report.md, plans.csv, plans.json and pictures',
    ],
    ['report --device h200 --ctx 64k -o reports/h200-64k', 'the same from flags'],
  ],
  run,
};

/** Writes the folder, also when nothing answers the question: then it says why, and the exit code is 3. */
async function run(args: Args): Promise<ExitCode> {
  const quiet = args.isSet('quiet');
  const folder = args.text('output') ?? defaultFolder(args.positional);
  const { scenario, model, changed } = await readScenario(args);
  const [{ explained, viewOf }, { pageScript, refuseOthers, reportFiles, writeFolder }] = await Promise.all([
    import('../report/view.js'),
    import('../report/folder.js'),
  ]);
  const validationFile = args.text('validation');
  const validation =
    validationFile === null ? null : (await import('../schema/validation.js')).readValidation(validationFile);
  const claims = args.text('claims');
  const tried = claims === null ? null : (await import('../schema/claims.js')).readClaims(claims);
  const line = new ProgressLine(quiet);
  const { view, simulated } = await inFileWords(args, async () => {
    const planned = viewOf(scenario, await readSources(scenario, model), validation);
    if (scenario.workload === undefined) return { view: planned, simulated: null };
    const { simulatePlans } = await import('../report/simulate.js');
    return simulatePlans(scenario, planned, (doing) => line.show(`simulating ${doing}`));
  }).finally(() => line.clear());
  const { sources } = view;
  const explainedView = await explained(view, scenario);
  const draw = await loadDraw(quiet);
  const { paperPart } = await import('../paper/part.js');
  const { claimsPart } = await import('../report/claims.js');
  const { codecsPart } = await import('../ranking/report-part.js');
  const file = args.positional === null ? null : basename(args.positional);
  const subject = file === null ? view.report.answer.question : changed === '' ? file : `${file} with ${changed}`;
  if (!args.isSet('overwrite')) refuseOthers(folder, subject);
  const codecs = await codecsPart(scenario, view.report.contextTokens);
  const files = reportFiles({
    view: explainedView,
    scenario,
    command: await commandOf(scenario, folder),
    subject,
    parts: present([codecs, tried && claimsPart(tried), paperPart(sources)]),
    known: await knownStacks(),
    script: pageScript(),
    draw,
    simulated,
  });
  writeFolder(folder, files);
  say(quiet, `written to ${displayPath(folder)}: ${[...files.keys()].join(', ')}`);
  if (!hasSolution(view.report)) throw await noSolutionError([{ report: view.report, scenario, sources }]);
  return EXIT.ok;
}

/**
 * The command that writes the same report. Flags carry no workload and no server, a link does. Undefined where flags
 * are enough, or where a link cannot carry the question: the page then has the command of its plan.
 */
async function commandOf(scenario: Scenario, folder: string): Promise<string | undefined> {
  if (scenario.workload === undefined && scenario.server === undefined) return undefined;
  const { shellWord } = await import('../report/command-line.js');
  const { linkOfScenario } = await import('./link.js');
  try {
    return `lla-sim report ${shellWord(await linkOfScenario(scenario))} -o ${shellWord(basename(folder))}`;
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return undefined;
  }
}

/** The canvas is a native package: where there is none for a platform, a report does without pictures as files. */
async function loadDraw(quiet: boolean): Promise<Draw> {
  try {
    return (await import('../report/pictures/png.js')).png;
  } catch (error) {
    const missing = /(Cannot find|Failed to load) (native binding|module|package)/i.test(String(error));
    if (!missing) throw error;
    say(
      quiet,
      'warning: no PNG pictures: the package @napi-rs/canvas is not installed for this platform; report.html draws ' +
        'its own',
    );
    return null;
  }
}

function defaultFolder(positional: string | null): string {
  if (positional === null) throw new UserError('the folder of the report is not given', 'add --output reports/NAME');
  return `reports/${basename(positional).replace(/\.ya?ml$/i, '')}`;
}
